"""How long a program in a container takes from its first instruction to being ready."""

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from tools.controlplane.process import answers, processes
from tools.controlplane.waiting import wait_until

TICKS_PER_SECOND: Final = os.sysconf("SC_CLK_TCK")
LOOK_SECONDS: Final = 0.02


@dataclass(frozen=True, slots=True)
class StartTime:
    """Seconds by the clock, and of one processor: those do not depend on who else runs."""

    clock_seconds: float
    processor_seconds: float

    @classmethod
    def of(cls, program: str, group: str, ready_url: str) -> Self:
        """Waits for ``ready_url`` to answer 200; returns what its program took until then.

        It is the last program started whose command names the file ``program``, in a control group
        whose path has ``group`` in it, such as a cluster's.

        Raises:
            ControlPlaneError: it is not ready in a minute.
        """
        wait_until(lambda: answers(ready_url), 60, ready_url, poll_seconds=LOOK_SECONDS)
        now_seconds = time.clock_gettime(time.CLOCK_BOOTTIME)
        found = [
            _times(pid)
            for pid, line in processes().items()
            if program in line and group in Path(f"/proc/{pid}/cgroup").read_text()
        ]
        began_seconds, processor_seconds = max(found)
        return cls(now_seconds - began_seconds, processor_seconds)


def _times(pid: int) -> tuple[float, float]:
    """When a process started, in seconds since boot, and its processor seconds so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    user, system, began = int(fields[11]), int(fields[12]), int(fields[19])
    return began / TICKS_PER_SECOND, (user + system) / TICKS_PER_SECOND
