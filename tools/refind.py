"""Bugs that the tests have found: find one again, in the code as it was before its fix.

``python -m tools.refind NAME`` checks the commit before a fix out beside this one and runs what
found the bug there; all of them without a name. The exit status is 1 when one is not found. The
list is in docs/reliability.md too, with what each was.
"""

import argparse
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tools.worktrees import PACKAGES, ROOT, checkout, git

_TIMEOUT_SECONDS: Final = 900.0


@dataclass(frozen=True, slots=True)
class Found:
    """A bug: the commit that fixed it, and what fails before.

    With ``by_its_test`` that is a test which came with the fix; it runs on the programs of before.
    """

    fix: str
    command: tuple[str, ...]
    by_its_test: bool = False


def _simulated(seed: int) -> tuple[str, ...]:
    return ("testbed.simcluster", "--seeds", str(seed))


def _tested(*tests: str) -> tuple[str, ...]:
    return ("pytest", "-q", "-x", *tests)


FOUND: Final = {
    "gate-of-another-webhook": Found("b4c734dc", _simulated(4116)),
    "rolled-back-without-its-gate": Found("3ee51e0b", _simulated(6991)),
    "plan-without-an-answer": Found(
        "d151ac1e",
        _tested("tests/integration/test_operator_faults.py", "-k", "without_an_answer"),
        by_its_test=True,
    ),
    "workers-away-from-their-server": Found(
        "976f1aee", _tested("tests/unit/kube/test_pod_manifests.py"), by_its_test=True
    ),
    "server-without-room-beside-it": Found(
        "55909274", _tested("tests/unit/kube/test_pod_manifests.py"), by_its_test=True
    ),
    "volume-not-there-yet": Found(
        "01034bd9", _tested("tests/unit/core/test_shared_volumes.py"), by_its_test=True
    ),
    "spread-in-another-order": Found(
        "a669481f", _tested("tests/unit/core/test_pod_affinity.py"), by_its_test=True
    ),
    "pause-by-a-wrong-clock": Found(
        "785417fb", _tested("tests/unit/operator/test_failed_starts.py"), by_its_test=True
    ),
    "pod-under-resize": Found(
        "14df17e4", _tested("tests/unit/kube/test_pods.py"), by_its_test=True
    ),
    "stopped-in-vain": Found(
        "7078d11a", _tested("tests/unit/core/test_preferences.py"), by_its_test=True
    ),
    "operator-of-a-later-kubernetes": Found(
        "5924900d", _tested("tests/unit/kube/test_waiting_gangs.py"), by_its_test=True
    ),
    "rules-of-a-later-kubernetes": Found(
        "f6274d85", _tested("tests/unit/kube/test_waiting_gangs.py"), by_its_test=True
    ),
    "room-made-by-another": Found(
        "cf7f54f7",
        _tested("tests/cluster/test_starts_on_nodes.py", "-k", "has_freed"),
        by_its_test=True,
    ),
    "documents-of-another-form": Found(
        "1ade6682",
        _tested("tests/unit/test_parsers.py", "-k", "document", "--hypothesis-profile", "verify"),
        by_its_test=True,
    ),
    "labels-kept-for-ever": Found(
        "3f406008", _tested("tests/unit/kube/test_rules_that_change.py"), by_its_test=True
    ),
}
"""By the names of docs/reliability.md."""


def is_found(found: Found, folder: Path) -> bool:
    """Return whether the bug is found in the code of before its fix, checked out in ``folder``."""
    with _checkout(found, folder):
        paths = os.pathsep.join(str(folder / each) for each in PACKAGES)
        done = subprocess.run(
            [sys.executable, "-m", *found.command],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": paths},
            timeout=_TIMEOUT_SECONDS,
            check=False,
        )
    # 1 is a finding; whatever else says that the command itself did not work.
    return done.returncode == 1


@contextmanager
def _checkout(found: Found, folder: Path) -> Iterator[None]:
    before = f"{found.fix}~"
    with checkout(folder, found.fix if found.by_its_test else before):
        if found.by_its_test:
            git("-C", str(folder), "checkout", before, "--", *PACKAGES)
        yield


def main(arguments: Sequence[str] | None = None) -> int:
    """Find the bugs that were named, or all, and return the exit status."""
    parser = argparse.ArgumentParser(prog="refind", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(FOUND))
    names = parser.parse_args(arguments).names or list(FOUND)
    if unknown := sorted(set(names) - FOUND.keys()):
        parser.error(f"no bug {unknown[0]!r}; there are {', '.join(FOUND)}")
    missing = []
    for name in names:
        print(f"{name}: {shlex.join(FOUND[name].command)} before {FOUND[name].fix}", flush=True)
        if not is_found(FOUND[name], ROOT / ".run" / f"refind-{os.getpid()}"):
            missing.append(name)
    print(f"{len(names) - len(missing)} of {len(names)} found again")
    if missing:
        print(f"not found: {', '.join(missing)}", file=sys.stderr)
    return int(bool(missing))


if __name__ == "__main__":
    sys.exit(main())
