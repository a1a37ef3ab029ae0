"""RLPTO's three queues: interrupted gangs, urgent ones and normal ones, in this order.

Each gang has a priority from 1 to 5, and its owner may request another (equation 4):

    pr_t = pr_{t-1} + 0.1 N        N requests to raise it, less those to lower it

A normal gang whose priority exceeds 5 becomes urgent, an urgent one below 5 normal; either way its
priority is reset. The paper leaves the threshold and the new values open. Here the threshold is 5,
as urgent in its table V; a new urgent gang gets 5, a new normal gang 4.

In a cluster a PriorityClass gives the first priority, and waiting counts as requests: one in ten
minutes. So waiting makes a gang urgent, but gives it no preemption priority, which only classes
give. The paper stops the task that started last. Here this holds among normal gangs; urgent gangs
and gangs that were stopped before are not stopped.

Lu et al., "RLPTO", IEEE TPDS 2023, section V.
"""

from collections.abc import Sequence
from typing import Annotated, Final

import numpy as np

from bireme.core.bounds import Within
from bireme.core.gangs import Gang
from bireme.core.parameters import check_parameters
from bireme.core.policy import Ranked
from bireme.core.resources import BoolArray, FloatArray
from bireme.core.snapshot import ClusterSnapshot
from bireme.heuristics.ranking import SortKey, rank_by

CHANGE: Final = 0.1
"""Change of the priority by one request, mu in the paper."""
URGENT: Final = 5.0
"""The lowest priority of an urgent task."""
DEMOTED: Final = 4.0
"""The priority of a task that is no longer urgent."""


def apply_requests(
    priority: FloatArray, is_urgent: BoolArray, requests: FloatArray
) -> tuple[FloatArray, BoolArray]:
    """Return priorities and urgency after ``requests``, all of one shape (Lu et al., equation
    4).
    """
    raised = priority + CHANGE * requests
    is_raised, is_lowered = ~is_urgent & (raised > URGENT), is_urgent & (raised < URGENT)
    reset = np.where(is_raised, URGENT, np.where(is_lowered, DEMOTED, raised))
    return reset, (is_urgent | is_raised) & ~is_lowered


class RlptoQueues:
    """Urgent classes, then interrupted gangs, then by a priority that grows by waiting.

    The score is the priority. Class values from ``urgent_priority`` on are urgent, which gives a
    preemption priority above gangs that are not; lower values are scaled to priorities from 1.
    Gangs
    that became urgent by waiting precede normal ones, without preemption priority.
    Source: Lu et al., "RLPTO: A Reinforcement Learning-Based Performance-Time Optimized Task and
    Resource Scheduling Mechanism for Distributed Machine Learning", IEEE TPDS 2023, section V.
    """

    keeps_equal_gangs_in_order = True

    def __init__(
        self,
        urgent_priority: Annotated[
            int, Within(1), "from this value of their PriorityClass on gangs are urgent"
        ] = 500,
        request_seconds: Annotated[
            float, Within(1), "time of waiting that raises the priority by 0.1"
        ] = 600.0,
    ) -> None:
        """Raises SettingError if a parameter is out of its bounds."""
        check_parameters(
            type(self), urgent_priority=urgent_priority, request_seconds=request_seconds
        )
        self._urgent_priority, self._request_seconds = urgent_priority, request_seconds

    def order(self, gangs: Sequence[Gang], snapshot: ClusterSnapshot) -> list[Ranked]:
        """Return ``gangs`` by queue, then by priority, then by arrival."""
        waits = np.array([snapshot.wait_seconds(gang) for gang in gangs])
        value = np.clip([gang.priority for gang in gangs], 0, self._urgent_priority)
        first = 1 + (URGENT - 1) * value / self._urgent_priority
        is_born_urgent = first >= URGENT
        now, is_urgent = apply_requests(
            first, is_born_urgent, np.floor(waits / self._request_seconds)
        )
        rows = zip(now.tolist(), is_urgent.tolist(), is_born_urgent.tolist(), strict=True)
        rows_by_uid = {gang.uid: row for gang, row in zip(gangs, rows, strict=True)}

        def sort_key(gang: Gang) -> SortKey:
            priority, urgent, may_preempt = rows_by_uid[gang.uid]
            # A gang that may preempt precedes interrupted ones, unlike in the paper: both wait for
            # the
            # next cycle, and otherwise the stopped gang would take its place back.
            is_back = gang.interrupted and gang.uid in snapshot.running_by_uid
            key = (not is_back, not may_preempt, not gang.interrupted, not urgent, -priority)
            return SortKey(key, priority, float(may_preempt))

        return rank_by(gangs, sort_key)
