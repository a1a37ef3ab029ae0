"""The processes under test: operators that stand for leadership, and the extender.

Each has a clock of its own, can be killed (nothing leaves it any more, not even from ``finally``),
paused, and comes back by itself as a container does.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from contextvars import Context
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from bireme.core.settings import SchedulingSettings
from bireme.kube import names
from bireme.kube.cluster_state import ClusterState
from bireme_extender.cache import ClusterCache, PlanWaits
from bireme_extender.metrics import Metrics as ExtenderMetrics
from bireme_extender.scoring import ScorerLoader
from bireme_extender.verbs import CacheBehind, Verb, Verbs
from bireme_operator.leader import LeaderTerm
from bireme_operator.lease import Lease
from bireme_operator.metrics import OperatorMetrics
from bireme_operator.settings import OperatorSettings
from bireme_operator.term import TermContext
from testbed.simcluster.network import WORLD, MemoryClient, Part, Plug
from testbed.simcluster.resources import ReflectedResources
from testbed.simcluster.virtual import PROCESS, VirtualLoop

EPOCH_SECONDS = 1_900_000_000.0
"""POSIX seconds at the beginning of virtual time."""


@dataclass(frozen=True, slots=True)
class Clock:
    """Clocks of a process: the monotonic one runs at ``rate``, the wall clock is ``ahead``."""

    loop: VirtualLoop
    rate: float = 1.0
    offset: float = 0.0
    ahead_seconds: float = 0.0

    def monotonic(self) -> float:
        return self.loop.time() * self.rate + self.offset

    def wall(self) -> float:
        return EPOCH_SECONDS + self.loop.time() + self.ahead_seconds

    def date(self) -> datetime:
        return datetime.fromtimestamp(self.wall(), UTC)


@dataclass(eq=False)
class Process(Part, ABC):
    """A program that starts, dies, is paused and is started again."""

    name: str
    scheduling: SchedulingSettings
    starts: int = 0
    faults: list[BaseException] = field(default_factory=list)
    """Errors it died of."""
    clocks: list[Clock] = field(default_factory=list)
    """The clocks of all its lives."""
    plug: Plug = field(default_factory=lambda: Plug(is_in=False))
    _task: asyncio.Task[None] | None = None

    def __post_init__(self) -> None:
        self.clock = Clock(self.loop)

    @property
    def is_up(self) -> bool:
        return self._task is not None and not self._task.done()

    def client(self, fence: Callable[[], None] = lambda: None) -> MemoryClient:
        """Return a client that dies with this life of the process."""
        return MemoryClient(self.server, self.plug, fence)

    def start(self) -> None:
        self.starts += 1
        self.plug = Plug()
        drawn = self.chance
        # A lease has to bear monotonic clocks that drift by 2 %, and wall clocks an hour off.
        skew = drawn.choice((0.0, 0.0, drawn.uniform(-2, 2), drawn.uniform(-3600, 3600)))
        self.clock = Clock(self.loop, drawn.uniform(0.98, 1.02), drawn.uniform(0, 1e6), skew)
        self.clocks.append(self.clock)
        self._task = self.spawn(self._live())

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        context: Context = WORLD.copy()
        context.run(PROCESS.set, self.name)
        return self.loop.create_task(work, context=context)

    async def kill(self) -> None:
        """SIGKILL: from now on nothing leaves it."""
        self.plug.is_in = False
        # Held callbacks have to run, or tasks of a paused process could not be cancelled.
        self.loop.resume(self.name)
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    @abstractmethod
    async def _live(self) -> None:
        """Run one life, from its start until it is cancelled."""


class OperatorProcess(Process):
    """The operator around lease and term, its own kinds brought by reflectors."""

    term: LeaderTerm | None = None
    settings = OperatorSettings(node_lost_seconds=20.0)

    async def _live(self) -> None:
        ended = asyncio.Event()
        clock = self.clock
        identity = f"{self.name}-{self.starts}"
        lease = Lease(
            self.client(),
            self.settings.lease_namespace,
            names.OPERATOR_LEASE,
            identity,
            clock=clock.monotonic,
            wall_clock=clock.date,
        )
        client = self.client(lease.fence)
        tasks: list[asyncio.Task[Any]] = []

        def started(epoch: int) -> None:
            self.tell(f"{identity} leads, epoch {epoch}")
            self.term = LeaderTerm(
                TermContext(
                    client,
                    self.settings,
                    self.scheduling,
                    OperatorMetrics(),
                    epoch,
                    identity,
                    lease.fence,
                    clock.monotonic,
                    clock.wall,
                    ReflectedResources(client, clock.monotonic),
                    samples_shadows=False,
                )
            )
            tasks.append(asyncio.create_task(self._lead(self.term, ended)))

        tasks.append(asyncio.create_task(lease.run(started, ended.set)))
        try:
            await ended.wait()
        finally:
            self.term = None
            for task in reversed(tasks):
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _lead(self, term: LeaderTerm, ended: asyncio.Event) -> None:
        try:
            await term.run()
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # noqa: BLE001  # as in the application
            self.faults.append(error)
        ended.set()


class ExtenderProcess(Process):
    """The extender behind its HTTP side."""

    is_reachable = True
    _verbs: Verbs | None = None

    async def _live(self) -> None:
        clock = self.clock.monotonic
        waits = PlanWaits(0.2, clock)
        metrics = ExtenderMetrics()
        scorers = ScorerLoader("", metrics)
        state = ClusterState(self.scheduling, policies=scorers.known)
        cache = ClusterCache(self.client(), state, clock=clock, on_plan=waits.notify)
        self._verbs = Verbs(state, waits, metrics, cache, lambda: scorers.scorer)
        try:
            await cache.run()
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # noqa: BLE001  # judged at the end
            self.faults.append(error)
        finally:
            await scorers.close()

    async def ask(self, verb: Verb, body: bytes) -> bytes:
        """Return the reply to a call of the scheduler; ConnectionError when there is none."""
        if not (self.is_up and self.is_reachable) or self._verbs is None:
            raise ConnectionRefusedError("no extender")
        known = self._verbs.at_once(verb, body)
        if known is not None:
            return known
        answer = self.spawn(self._verbs.call(verb, body))
        answer.add_done_callback(lambda done: done.cancelled() or done.exception())
        try:
            # A paused process does not notice that the scheduler has lost its patience.
            reply: bytes = await asyncio.shield(answer)
        except CacheBehind as error:
            raise ConnectionError("503") from error
        return reply
