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
the places of others: neither waiting long nor being wide stops anybody. The intra-job half of the paper
(task order, PS/worker affinity) is :mod:`bireme.heuristics.packing`.
"""

from collections.abc import Sequence

from bireme.core.gangs import Gang
from bireme.core.policy import Factor, Ranked
from bireme.core.snapshot import ClusterSnapshot

_SCORE_DECIMALS = 9
"""Scores are rounded before comparing, so that the last bits of a float never decide."""


class CombinedPriority:
    """Highest combined priority first: user, job, wait and parallelism, weighted.

    Source: Du et al., EURASIP JWCN 2023:45.
    """

    keeps_kin_in_line = True

    def order(self, gangs: Sequence[Gang], snapshot: ClusterSnapshot) -> list[Ranked]:
        """All gangs by descending P; a total order."""
        return sorted((self.rank(gang, snapshot) for gang in gangs), key=_sort_key)

    def rank(self, gang: Gang, snapshot: ClusterSnapshot) -> Ranked:
        """One gang with its score and the four factors behind it."""
        factors = _factors(gang, snapshot)
        score = round(sum(factor.contribution for factor in factors), _SCORE_DECIMALS)
        claim = round(factors[0].contribution + factors[1].contribution, _SCORE_DECIMALS)
        return Ranked(gang, score, factors, claim)


def _factors(gang: Gang, snapshot: ClusterSnapshot) -> tuple[Factor, ...]:
    settings = snapshot.settings
    queue = snapshot.queues[gang.queue]
    wait, bound = snapshot.wait_seconds(gang), snapshot.wait_bound_seconds(gang)
    job_priority = max(0, gang.priority)
    total = (
        settings.user_weight
        + settings.job_weight
        + settings.wait_weight
        + settings.parallelism_weight
    )
    return (
        Factor(
            "userPriority",
            f"{queue.user_priority} of 100 in queue {queue.name}",
            queue.user_priority / 100,
            settings.user_weight / total,
        ),
        Factor(
            "jobPriority",
            f"class value {gang.priority}",
            job_priority / (job_priority + settings.job_priority_half),
            settings.job_weight / total,
        ),
        Factor(
            "wait",
            f"{wait:.0f} s of {bound} s",
            min(1.0, wait / bound),
            settings.wait_weight / total,
        ),
        Factor(
            "parallelism",
            f"{gang.replicas} replicas",
            gang.replicas / (gang.replicas + settings.parallelism_half),
            settings.parallelism_weight / total,
        ),
    )


def _sort_key(entry: Ranked) -> tuple[float, bool, int, float, int, str]:
    gang = entry.gang
    tie = (not gang.interrupted, -gang.priority, gang.arrived, -gang.replicas, gang.uid)
    return (-entry.score, *tie)
