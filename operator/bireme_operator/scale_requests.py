"""Sends one pool's orders to its scale target, in a task of its own, one request after another.

A request that hangs, fails or is refused delays no decision; retries come at growing intervals. An
order is sent only while the target's replicas equal those at the time of the decision.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import structlog

from bireme.core.reasons import Reason
from bireme.kube import names
from bireme.kube.api.node_pool_scaler import ScaleTarget
from bireme.kube.client import ApiError, NotLeader
from bireme.kube.scale import ReplicaManager, Scale, ScaleFault, ScaleTargets, fault_of
from bireme.tasks import Tasks
from bireme_operator.metrics import PoolMetrics
from bireme_operator.workqueue import BackOffs

_log = structlog.get_logger(__name__)
# Interval between two reads of a target without an order: other clients may scale it too.
READ_SECONDS: Final = 15.0
# A node counts as in use for this time after a read found pods on it.
_OCCUPIED_SECONDS: Final = 60.0
# BackOffs has one entry per gang; here it has a single entry for the target.
_KEY: Final = ("", "")


@dataclass(frozen=True, slots=True)
class ScaleOrder:
    """Ask the target for ``replicas``.

    Attributes:
        step: Number of replicas that only a forecast asks for.
        leaving: For a scale-in, the empty nodes, of which some will leave.
    """

    replicas: int
    step: int = 0
    leaving: tuple[str, ...] = ()


@dataclass(slots=True)
class ScaleRequester:
    """Sends one pool's orders to its target; ``clock`` gives monotonic seconds.

    Attributes:
        scale: The target's scale at the last read or write; None before.
        fault: Fault that keeps the target from being scaled now.
        finished_orders: Written orders, until the pool has counted them and clears the list.
    """

    name: str
    target: ScaleTarget
    targets: ScaleTargets
    metrics: PoolMetrics
    clock: Callable[[], float]
    on_change: Callable[[], None]
    scale: Scale | None = None
    fault: ScaleFault | None = None
    finished_orders: list[ScaleOrder] = field(default_factory=list)
    _back_offs: BackOffs = field(init=False)
    _read_at: float = float("-inf")
    _nodes_in_use: frozenset[str] = frozenset()
    _checked_at: float = float("-inf")
    _has_written: bool = False
    _tasks: Tasks = field(default_factory=Tasks)

    def __post_init__(self) -> None:
        self._back_offs = BackOffs(self.clock)

    @property
    def replicas(self) -> int | None:
        """Replicas of the target; None if it cannot be scaled."""
        return None if self.scale is None or self.fault is not None else self.scale.replicas

    @property
    def nodes_in_use(self) -> frozenset[str]:
        """Nodes of a refused scale-in, on which pods were found, such as ended ones."""
        is_fresh = self.clock() - self._checked_at < _OCCUPIED_SECONDS
        return self._nodes_in_use if is_fresh else frozenset()

    @property
    def is_busy(self) -> bool:
        return bool(self._tasks)

    def submit(self, order: ScaleOrder | None) -> bool:
        """Carry out ``order``; without one, read the target at intervals.

        Return whether a request was started.
        """
        is_old = self.clock() - self._read_at >= READ_SECONDS
        is_due = order is not None or self.fault is not None or is_old
        if not is_due or self.is_busy or not self._back_offs.are_over(_KEY):
            return False
        self._tasks.start(self._run(order))
        return True

    def stop(self) -> None:
        """Cancel the request under way."""
        self._tasks.cancel()

    async def close(self) -> None:
        """Cancel the request under way, and return when it has ended."""
        await self._tasks.close()

    async def _run(self, order: ScaleOrder | None) -> None:
        previous = self.scale, self.fault, self.nodes_in_use
        try:
            await self._work(order)
            self.fault = None
            self._back_offs.end(_KEY)
        except NotLeader:
            return  # the process is about to end
        except (ApiError, ScaleFault) as error:
            self._fail(error, order)
        if (self.scale, self.fault, self.nodes_in_use) != previous:
            self.on_change()

    async def _work(self, order: ScaleOrder | None) -> None:
        scale, previous = await self.targets.read(self.target), self.scale
        self.scale, self._read_at = scale, self.clock()
        if order is not None and (previous is None or scale.replicas != previous.replicas):
            order = None  # the decision was based on another scale
        if order is not None and order.leaving:
            self._nodes_in_use = await self.targets.nodes_with_pods(order.leaving)
            self._checked_at = self.clock()
            if self._nodes_in_use:
                order = None  # the next decision avoids these nodes
        # Finding the owners takes a dry run of a write, so it is not done at every read.
        if order is not None or previous is None or self.fault is not None:
            replicas = order.replicas if order is not None else scale.replicas + 1
            self._respect(await self.targets.owners(scale, replicas))
        if order is not None:
            self.scale = await self.targets.write(scale, order.replicas)
            self._has_written = True
            self.finished_orders.append(order)
            self.metrics.writes.labels("written").inc()
            _log.info("target scaled", pool=self.name, replicas=order.replicas)

    def _respect(self, owners: tuple[ReplicaManager, ...]) -> None:
        """Raise ScaleFault if another client manages the replicas."""
        for owner in owners:
            took_back = self._has_written and owner.manager != names.FIELD_MANAGER
            if owner.is_lasting or took_back:
                raise ScaleFault(Reason.REPLICAS_OWNED_BY_ANOTHER, self._whose(owner))

    def _whose(self, owner: ReplicaManager) -> str:
        kind, name = self.target.kind, self.target.name
        how = "applies" if owner.applied else "has set"
        return (
            f"{owner.manager!a} {how} spec.replicas, so Bireme does not write it; to hand it "
            f"over, remove the field there, then run: kubectl patch {kind.lower()} {name} "
            f"--subresource=scale --type=merge --field-manager={names.FIELD_MANAGER} -p "
            "'{:{:N}}'"
        )

    def _fail(self, error: ApiError | ScaleFault, order: ScaleOrder | None) -> None:
        is_conflict = isinstance(error, ApiError) and error.is_conflict
        if not is_conflict:  # after another client's write, read again and decide anew
            self.fault = fault_of(self.target, error) if isinstance(error, ApiError) else error
        pause = self._back_offs.add(_KEY, error, None)
        self.metrics.writes.labels(_outcome(error)).inc(order is not None)
        _log.info("target not scaled", pool=self.name, error=str(error), seconds=pause)


def _outcome(error: ApiError | ScaleFault) -> str:
    if isinstance(error, ScaleFault):
        return "refused"
    return "conflict" if error.is_conflict else "failed"
