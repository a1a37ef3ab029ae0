"""How many gangs came to their end, by the node pool they ran in: the task rate of a pool."""

from collections import Counter
from collections.abc import Mapping

from bireme.core.gangs import Key
from bireme.core.resources import BoolArray
from bireme.core.running import RunningGang
from bireme.core.snapshot import ClusterSnapshot
from bireme.kube.cluster_state import ClusterState


class Finishes:
    """Follows running gangs from look to look. A gang that waits again has not finished."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._running: dict[str, tuple[Key, str]] = {}

    def look(self, snapshot: ClusterSnapshot, pools: Mapping[str, BoolArray]) -> Counter[str]:
        """Gangs that finished since the last look, by pool; ``pools`` are masks over the nodes."""
        known, self._running = self._running, {}
        for running in snapshot.running:
            gang = running.gang
            if gang.uid in known:
                self._running[gang.uid] = known.pop(gang.uid)
            else:
                self._running[gang.uid] = (gang.key, _pool_of(running, pools))
        waiting = {gang.uid for gang in snapshot.waiting}
        return Counter(
            pool
            for uid, (key, pool) in known.items()
            if pool and uid not in waiting and self._is_finished(key, uid)
        )

    def _is_finished(self, key: Key, uid: str) -> bool:
        """Whether a gang that runs no longer is done; pods of others just go when they are."""
        job = self._state.jobs.get(key)
        if job is not None and job.uid == uid:
            return job.is_finished
        group = self._state.groups.get(key)
        return group is not None and group.uid == uid and group.plan is None


def _pool_of(running: RunningGang, pools: Mapping[str, BoolArray]) -> str:
    """The pool of its first replica; empty for none."""
    rows = [row for task in running.placement.tasks for row in task.rows[:1]]
    return next((name for name, mask in pools.items() if rows and mask[rows[0]]), "")
