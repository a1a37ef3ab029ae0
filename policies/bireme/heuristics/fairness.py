"""Fair orders: the holder with the least goes next.

Both rules fill an imaginary empty cluster: repeatedly they serve the next gang of the holder (user
or queue) with the smallest dominant share. A holder's running gangs are served before its waiting
ones; its gangs come by arrival. A gang's rank is its holder's share just before it is served.
Running gangs count whether they are in the list or not.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

from bireme.core.gangs import Gang
from bireme.core.policy import Ranked
from bireme.core.resources import Amounts, add
from bireme.core.snapshot import ClusterSnapshot
from bireme.heuristics.ranking import SortKey, rank_by, tie


class DominantResourceFairness:
    """The user with the smallest dominant share of the cluster first (DRF).

    The score and the preemption priority are minus the share. Gangs without a user belong to their
    namespace.

    Source: Ghodsi et al., Dominant Resource Fairness, NSDI'11, algorithm 1.
    """

    def order(self, gangs: Sequence[Gang], snapshot: ClusterSnapshot) -> list[Ranked]:
        """Return ``gangs`` by the share that the gang's user has before it."""
        shares = _shares_before(_to_serve(gangs, snapshot), _owner, snapshot)
        return rank_by(gangs, lambda gang: _by_share(shares[gang.uid]))


class FairShare:
    """First the queue with the least share per weight, in it the user with the least share.

    The score and the preemption priority are minus the queue's dominant share, divided by the
    queue's weight (1 if none is set). The cycle enforces guarantees of queues, for every order.

    Source: the fair scheduler of Hadoop (FS in the paper on RLPTO), with the shares of DRF.
    """

    def order(self, gangs: Sequence[Gang], snapshot: ClusterSnapshot) -> list[Ranked]:
        """Return ``gangs`` by the weighted share that the gang's queue has before it."""
        in_turn = _to_serve(gangs, snapshot)
        users = _shares_before(in_turn, lambda gang: (gang.queue, _owner(gang)), snapshot)
        in_turn.sort(key=lambda gang: users[gang.uid])
        queues = _shares_before(in_turn, lambda gang: gang.queue, snapshot)
        weights = {name: queue.weight or 1 for name, queue in snapshot.queues.items()}
        return rank_by(
            gangs,
            lambda gang: _by_share(queues[gang.uid] / weights.get(gang.queue, 1), users[gang.uid]),
        )


def dominant_share(amounts: Amounts, total: Amounts) -> float:
    """Return the largest share of ``amounts`` in any resource the cluster offers, 0 for nothing."""
    return max((amounts[name] / total[name] for name in amounts if total.get(name)), default=0.0)


def _by_share(share: float, *then: float) -> SortKey:
    return SortKey((share, *then), -share, -share)


def _owner(gang: Gang) -> str:
    return gang.user or gang.namespace


def _to_serve(gangs: Iterable[Gang], snapshot: ClusterSnapshot) -> list[Gang]:
    """Return ``gangs`` and all running ones, in the order of service for one holder."""
    running = snapshot.running_by_uid
    every = {uid: running_gang.gang for uid, running_gang in running.items()} | {
        gang.uid: gang for gang in gangs
    }

    def turn(gang: Gang) -> tuple[float, tuple[bool, float, str]]:
        running_gang = running.get(gang.uid)
        return (math.inf if running_gang is None else running_gang.started, tie(gang))

    return sorted(every.values(), key=turn)


def _shares_before(
    in_turn: Iterable[Gang], holder: Callable[[Gang], object], snapshot: ClusterSnapshot
) -> Mapping[str, float]:
    """Return the dominant share of each gang's holder once the holder's earlier gangs are
    served.
    """
    served: dict[object, dict[str, int]] = {}
    shares = {}
    for gang in in_turn:
        so_far = served.get(holder(gang), {})
        shares[gang.uid] = dominant_share(so_far, snapshot.total)
        running = snapshot.running_by_uid.get(gang.uid)
        current = gang if running is None else running.current
        served[holder(gang)] = add(so_far, current.demand)
    return shares
