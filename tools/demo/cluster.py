"""The demo's cluster with Bireme on it, as its story sees it, and what every kind shares.

:mod:`tools.demo.embedded_cluster` and :mod:`tools.demo.real_cluster` start them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
QUEUES: Final = ROOT / "manifests" / "demo" / "queues.yaml"
# Logs, history, record and job files of the last run, below the folder it was started in.
RUN: Final = Path(".run") / "demo"
NAME: Final = "bireme"
INTERNALS: Final = {
    "status_refresh_seconds": 1.0,  # a live table lives from fresh positions
    "progress_write_seconds": 1.0,
}
READY: Final = "ready.json"
"""Name of the file that says where an embedded cluster is, once it is ready."""
Say = Callable[[str], None]


class DemoClusterError(Exception):
    """A cluster of the demo did not start, is there already, or is not there."""


@dataclass(frozen=True, slots=True)
class DemoCluster:
    """A running cluster.

    Attributes:
        apply: Applies files of jobs, as a user does.
        programs: Folders of programs to have in PATH.
    """

    kubeconfig: Path
    apply: Callable[[Sequence[Path]], None]
    programs: tuple[Path, ...]
    board_address: str = ""
