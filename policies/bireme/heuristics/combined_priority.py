"""Combined inter-job priority, after Du et al., EURASIP JWCN 2023:45.

    P = w_user*U + w_job*T + w_wait*min(1, wait/W) + w_par*R,   weights normalised to sum 1

The paper names four factors: user priority, job priority, longest wait, parallelism. It leaves
their scales open; ours are independent of which other gangs are waiting, so that an unrelated
arrival never reorders the rest:

    U = userPriority / 100             of the queue, set by an administrator
    T = v / (v + job_priority_half)    v = value of the PriorityClass, negative counts as 0
    R = n / (n + parallelism_half)     n = replicas of the gang

T and R grow strictly and never reach 1, so no class value and no width saturates. W is the
queue's wait bound. Ties, also those of values too large to differ in the rounded score:
interrupted gangs first, then class value, arrival, replicas, uid. Only U and T give a claim to
the places of others: neither waiting long nor being wide stops anybody. The intra-job half of the
paper (task order, PS/worker affinity) is :mod:`bireme.heuristics.packing`.
"""

from collections.abc import Sequence
from functools import partial

from bireme.core.gangs import Gang
from bireme.core.policy import Factor, Ranked
from bireme.core.queues import Queue
from bireme.core.settings import SchedulingSettings
from bireme.core.snapshot import ClusterSnapshot

_FACTORS = ("userPriority", "jobPriority", "wait", "parallelism")

_SCORE_DECIMALS = 9
"""Scores are rounded before comparing, so that the last bits of a float never decide."""


class CombinedPriority:
    """Highest combined priority first: user, job, wait and parallelism, weighted.

    Source: Du et al., EURASIP JWCN 2023:45.
    """

    keeps_kin_in_line = True

    def order(self, gangs: Sequence[Gang], snapshot: ClusterSnapshot) -> list[Ranked]:
        """All gangs by descending P; a total order."""
        weights = _weights(snapshot.settings)
        return sorted((_ranked(gang, snapshot, weights) for gang in gangs), key=_sort_key)

    def rank(self, gang: Gang, snapshot: ClusterSnapshot) -> Ranked:
        """One gang with its score, its claim and, when asked, the factors behind them."""
        return _ranked(gang, snapshot, _weights(snapshot.settings))


def _weights(settings: SchedulingSettings) -> tuple[float, ...]:
    """Of U, T, the wait and R; they sum to 1."""
    weights = (
        settings.user_weight,
        settings.job_weight,
        settings.wait_weight,
        settings.parallelism_weight,
    )
    total = sum(weights)
    return tuple(weight / total for weight in weights)


def _ranked(gang: Gang, snapshot: ClusterSnapshot, weights: tuple[float, ...]) -> Ranked:
    user, job, wait, parallelism = _values(gang, snapshot)
    by_claim = weights[0] * user + weights[1] * job
    score = by_claim + weights[2] * wait + weights[3] * parallelism
    return Ranked(
        gang,
        round(score, _SCORE_DECIMALS),
        partial(_factors, gang, snapshot),
        round(by_claim, _SCORE_DECIMALS),
    )


def _values(gang: Gang, snapshot: ClusterSnapshot) -> tuple[float, float, float, float]:
    """U, T, the wait and R, each from 0 to 1."""
    settings = snapshot.settings
    job_priority = max(0, gang.priority)
    return (
        _queue(gang, snapshot).user_priority / 100,
        job_priority / (job_priority + settings.job_priority_half),
        min(1.0, snapshot.wait_seconds(gang) / snapshot.wait_bound_seconds(gang)),
        gang.replicas / (gang.replicas + settings.parallelism_half),
    )


def _queue(gang: Gang, snapshot: ClusterSnapshot) -> Queue:
    """That of ``gang``; the plainest one for a running gang whose queue was deleted."""
    return snapshot.queues.get(gang.queue) or Queue(gang.queue)


def _factors(gang: Gang, snapshot: ClusterSnapshot) -> tuple[Factor, ...]:
    queue = _queue(gang, snapshot)
    wait, bound = snapshot.wait_seconds(gang), snapshot.wait_bound_seconds(gang)
    measured = (
        f"{queue.user_priority} of 100 in queue {queue.name}",
        f"class value {gang.priority}",
        f"{wait:.0f} s of {bound} s",
        f"{gang.replicas} replicas",
    )
    values, weights = _values(gang, snapshot), _weights(snapshot.settings)
    return tuple(map(Factor, _FACTORS, measured, values, weights))


def _sort_key(entry: Ranked) -> tuple[float, bool, int, float, int, str]:
    gang = entry.gang
    tie = (not gang.interrupted, -gang.priority, gang.arrived, -gang.replicas, gang.uid)
    return (-entry.score, *tie)
