"""Follow one job through the code and count the files that handle it, by traced runs.

Two runs are traced with Python's profiler hook: a TrainingJob on a fake API server up to its first
pod and the extender's answer for that pod, and one line of a trace simulated to its completion. A
file is on the way if one of its functions is called with the job: its name stands in the repr of an
argument. The core and its rules, which both runs share, are listed apart.
"""

import argparse
import asyncio
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Final

from bireme.cli import main as bireme
from bireme_extender.cache import PlanWaits
from bireme_extender.verbs import Verbs
from testbed.extender_calls import FixedFreshness, a_body, a_state, make_metrics
from testbed.fakeapi import FakeApi
from testbed.operator_term.term import JOBS, PODS, furnish, leading, pods, submit, until
from testbed.scenario.manifests import task, training_job

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = ROOT / "docs" / "architecture.md"
JOB: Final = "followed-job"
SHARED: Final = ("policies/bireme/core/", "policies/bireme/heuristics/")
_SHIPPED: Final = ("operator/", "extender/", "policies/")
_LONGEST: Final = 20_000
"""Characters of an argument's repr that are searched."""


class Trace:
    """Functions that were called with the job, by file, in the order of the first call."""

    def __init__(self) -> None:
        self.functions: dict[str, dict[str, None]] = {}

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        if event != "call":
            return
        name = frame.f_code.co_filename.removeprefix(f"{ROOT}/")
        if name.startswith(_SHIPPED) and self._has_job(frame):
            self.functions.setdefault(name, {})[frame.f_code.co_qualname] = None

    @contextmanager
    def tracing(self) -> Iterator[None]:
        threading.setprofile(self)  # for threads that begin from now on, the next for this one
        sys.setprofile(self)
        try:
            yield
        finally:
            self.stop()

    @staticmethod
    def stop() -> None:
        sys.setprofile(None)
        threading.setprofile(None)

    def _has_job(self, frame: FrameType) -> bool:
        code = frame.f_code
        names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        # A repr may be of an object that is half made; then it cannot hold the job yet.
        for value in (frame.f_locals.get(name) for name in names):
            try:
                if JOB in repr(value)[:_LONGEST]:
                    return True
            except Exception:  # noqa: BLE001, S112
                continue
        return False


async def _in_cluster(trace: Trace, folder: Path) -> None:
    async with FakeApi() as api:
        furnish(api)
        async with leading(api, folder) as term:
            await until(lambda: term.watches.are_synced)
            # The API server itself ends the trace: whether the pod is read back within the next
            # milliseconds is chance, and kube-scheduler does not wait for it.
            api.store.collection(PODS).subscribers.append(lambda _: trace.stop())
            with trace.tracing():
                submit(api, training_job(JOB, task("worker", 2)))
                await until(lambda: len(pods(api)) == 2)
        nodes = list(api.store.collection("/api/v1/nodes").objects.values())
        jobs = list(api.store.collection(JOBS).objects.values())
        verbs = Verbs(a_state(nodes, jobs), PlanWaits(0.2), make_metrics(), FixedFreshness())
        body = a_body(pods(api)[0], [node["metadata"]["name"] for node in nodes])
        with trace.tracing():
            await verbs.call("filter", body)


def in_cluster() -> Trace:
    """Trace a job from its watch event to the extender's answer for its first pod."""
    trace = Trace()
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(_in_cluster(trace, Path(folder)))
    return trace


def in_simulator() -> Trace:
    """Trace a job from its line in a trace file to its completion time."""
    trace = Trace()
    with tempfile.TemporaryDirectory() as folder:
        lines = ["job_id,num_gpu,submit_time,model_name,duration", f"{JOB},2,0,resnet,600"]
        (Path(folder) / "trace.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
        asked = ["simulate", "--trace", f"tiresias:{folder}/trace.csv", "--nodes", "1x8"]
        with trace.tracing():
            bireme([*asked, "--json", f"{folder}/result.json"])
    return trace


def main() -> int:
    parser = argparse.ArgumentParser(prog="walk", description="Follow one job through the code.")
    parser.add_argument("--check", action="store_true", help="compare with docs/architecture.md")
    options = parser.parse_args()
    missing = []
    for title, trace in (
        ("from watch event to planned pod", in_cluster()),
        ("from trace line to completion time", in_simulator()),
    ):
        own = [name for name in trace.functions if not name.startswith(SHARED)]
        shared = len(trace.functions) - len(own)
        print(f"{title}: {len(own)} files, and {shared} of core and heuristics")
        for name, functions in trace.functions.items():
            print(f"  {name}: {', '.join(list(functions)[:4])}")
        text = PAGE.read_text(encoding="utf-8")
        missing += [name for name in own if f"`{name.partition('/')[2]}`" not in text]
    if options.check and missing:
        print(f"not in {PAGE.name}: {', '.join(missing)}")
    return 1 if options.check and missing else 0


if __name__ == "__main__":
    sys.exit(main())
