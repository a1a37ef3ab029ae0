"""The control groups that the pods of a node live in, below one named by its cluster.

Version 1 has a tree per controller; version 2 has one, which systems with version 1 may have, too.
"""

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from testbed.controlplane.waiting import wait_until

CGROUPS: Final = Path("/sys/fs/cgroup")
CONTROLLERS: Final = CGROUPS / "cgroup.controllers"  # only version 2 has it
SHARES: Final = 1024  # of one program, as the kernel counts
REMOVAL_TIMEOUT_SECONDS: Final = 20.0


def make(name: str) -> None:
    """Make the group in every tree, with the processors and memory nodes of its parent.

    Beside other programs of a busy machine its pods count as one for each processor; by default
    they would count as one in all.
    """
    for tree in _trees():
        group = tree / name
        group.mkdir(exist_ok=True)
        if CONTROLLERS.exists():  # version 2 inherits by itself
            continue
        for inherited in ("cpuset.cpus", "cpuset.mems"):
            if (tree / inherited).exists():
                (group / inherited).write_text((tree / inherited).read_text())
        if (tree / "cpu.shares").exists():
            (group / "cpu.shares").write_text(str(SHARES * (os.cpu_count() or 1)))
    if CONTROLLERS.exists():
        for controller in CONTROLLERS.read_text().split():
            (CGROUPS / "cgroup.subtree_control").write_text(f"+{controller}")


def remove(name: str) -> None:
    """Remove the group with all below it, once the processes in it are gone."""
    what = f"the control groups of {name} to be free of processes"
    wait_until(lambda: not _left_of(name), REMOVAL_TIMEOUT_SECONDS, what)


def _left_of(name: str) -> list[Path]:
    """Remove groups and return those left; the kernel takes a while over a process's end."""
    groups = [tree / name for tree in _trees() if (tree / name).is_dir()]
    for group in groups:
        for inner in sorted(group.rglob("*/"), reverse=True):
            with suppress(OSError):
                inner.rmdir()
        with suppress(OSError):
            group.rmdir()
    return [group for group in groups if group.exists()]


def _trees() -> list[Path]:
    mounts = (line.split() for line in Path("/proc/mounts").read_text().splitlines())
    return [Path(fields[1]) for fields in mounts if fields[2] in ("cgroup", "cgroup2")]
