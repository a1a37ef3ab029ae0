"""``python -m testbed.walk``: the way of one job through the code, from its event to its pods.

The operator runs against the fake API server. A call counts if the repr of one of its arguments
has the job's name. The walk is the sequence of the files of those calls. A *stay* is a run of calls
in one file; a *return* is a stay in a file that the walk has left before.
"""

import asyncio
import sys
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from types import FrameType
from typing import Any, Final

from testbed.fakeapi import FakeApi
from testbed.kubelets import FakeKubelets, runs
from testbed.operator_term.term import furnish, leading, phases, pods, silence, submit, until
from testbed.scenario.manifests import task, training_job

ROOT: Final = Path(__file__).parents[1]
SHIPPED: Final = ("operator", "extender", "policies")
JOB: Final = "followed-job"
_CYCLE: Final = "run_cycle"


@dataclass
class Walk:
    """The calls that got the job, in their order.

    Attributes:
        calls: File and function of each, from the repository's root.
        cycle: The calls among them that ``run_cycle`` made or led to.
    """

    calls: list[tuple[str, str]] = field(default_factory=list)
    cycle: list[tuple[str, str]] = field(default_factory=list)
    is_on: bool = False
    _depth_of_cycle: int = 0

    def on_event(self, frame: FrameType, event: str, _: Any) -> None:
        """Take in one event of :func:`sys.setprofile`."""
        if not self.is_on or event not in ("call", "return"):
            return
        code = frame.f_code
        path = _shipped_path(code.co_filename)
        if path is None:
            return
        if code.co_name == _CYCLE:
            self._depth_of_cycle += 1 if event == "call" else -1
        if event == "call" and _gets_the_job(frame):
            call = (path, code.co_qualname)
            self.calls.append(call)
            if self._depth_of_cycle:
                self.cycle.append(call)

    def files(self) -> list[str]:
        """Return the files of the walk, sorted."""
        return sorted({path for path, _ in self.calls})

    def returns(self) -> int:
        """Return how many stays are in a file that the walk has left before."""
        return _returns(self.calls)

    def cycle_returns(self) -> int:
        """Return the same for the calls within ``run_cycle``."""
        return _returns(self.cycle)


def _returns(calls: Sequence[tuple[str, str]]) -> int:
    stays = [path for path, _ in groupby(path for path, _ in calls)]
    return len(stays) - len(set(stays))


_paths: dict[str, str | None] = {}


def _shipped_path(name: str) -> str | None:
    if name not in _paths:
        path = Path(name)
        is_shipped = path.is_relative_to(ROOT) and path.relative_to(ROOT).parts[0] in SHIPPED
        _paths[name] = str(path.relative_to(ROOT)) if is_shipped else None
    return _paths[name]


def _gets_the_job(frame: FrameType) -> bool:
    code = frame.f_code
    count = code.co_argcount + code.co_kwonlyargcount
    for name in code.co_varnames[:count]:
        value = frame.f_locals.get(name)
        try:
            if JOB in repr(value):
                return True
        except Exception:  # noqa: BLE001, S112  # an object that __init__ has not filled yet
            continue
    return False


async def _follow(walk: Walk, folder: Path) -> None:
    async with FakeApi() as api:
        furnish(api)
        async with FakeKubelets(api, runs), leading(api, folder):
            await silence(api)
            walk.is_on = True
            submit(api, training_job(JOB, task("worker", 4)))
            await until(lambda: len(pods(api)) == 4)
            walk.is_on = False
            await until(lambda: phases(api) == ["Running"])


def follow() -> Walk:
    """Follow a job of four workers until its pods are made."""
    walk = Walk()
    # Cycles run in a thread of their own, which must have the hook when it begins.
    threading.setprofile(walk.on_event)
    sys.setprofile(walk.on_event)
    try:
        with tempfile.TemporaryDirectory() as folder:
            asyncio.run(_follow(walk, Path(folder)))
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return walk


def main() -> int:
    """Print the files of the walk and every call of it."""
    seen = follow()
    files, cycle_returns = len(seen.files()), seen.cycle_returns()
    print(f"{files} files, {seen.returns()} returns, {cycle_returns} of them in run_cycle")
    for path, names in groupby(seen.calls, key=lambda call: call[0]):
        print(f"  {path}: {', '.join(name for _, name in names)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
