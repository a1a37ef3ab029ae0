"""A small cluster that carries the decisions of the cycle out, second by second of its own time.

Victims keep the work they have done and leave after ``stop_seconds``; until then they hold their
places. ``problems`` are broken promises in words.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from bireme.core.cycle import run_cycle
from bireme.core.decision import Admit, Decision, Preempt, Resize
from bireme.core.gangs import Gang
from bireme.core.nodes import Node
from bireme.core.policy import Policy
from bireme.core.queues import Queue
from bireme.core.running import RunningGang
from bireme.core.settings import SchedulingSettings
from bireme.core.snapshot import ClusterSnapshot
from bireme.core.turns import CycleBudget
from bireme.testing import a_snapshot, with_running
from testbed.model.oracles import broken_promises

MAX_CYCLES = 100
"""At one moment; all but the last start, stop or resize somebody."""


@dataclass
class SmallCluster:
    """Gangs that wait, run and leave.

    Attributes:
        seconds: How long each gang has left to run, by uid.
        leaves: When a gang that is being stopped has left, by uid.
        started: When each gang started first, by uid.
        moves: Every preemption and resize, as (time, uid).
        seen: The snapshot of each cycle.
        visits: Gangs that a cycle has time for; None for all.
    """

    nodes: Sequence[Node]
    policy: Policy
    settings: SchedulingSettings = field(default_factory=SchedulingSettings)
    queues: Sequence[Queue] = (Queue("default"),)
    stop_seconds: float = 0.0
    now: float = 0.0
    waiting: dict[str, Gang] = field(default_factory=dict)
    running: dict[str, RunningGang] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    leaves: dict[str, float] = field(default_factory=dict)
    started: dict[str, float] = field(default_factory=dict)
    moves: list[tuple[float, str]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    seen: list[ClusterSnapshot] = field(default_factory=list)
    visits: int | None = None
    turns: CycleBudget = field(default_factory=CycleBudget)

    def submit(self, gang: Gang, seconds: float) -> None:
        self.waiting[gang.uid] = replace(gang, arrived=self.now)
        self.seconds[gang.uid] = seconds

    def snapshot(self) -> ClusterSnapshot:
        bare = a_snapshot(
            self.nodes,
            *self.waiting.values(),
            queues=self.queues,
            now=self.now,
            settings=self.settings,
        )
        return with_running(bare, *self.running.values())

    @property
    def next_end(self) -> float:
        """Time at which the next gang finishes or has left; infinite when none runs."""
        ends = {uid: r.started + self.seconds[uid] for uid, r in self.running.items()}
        return min((ends | self.leaves).values(), default=float("inf"))

    def advance(self, until: float) -> None:
        """Let time pass; gangs done by ``until`` are gone then."""
        self.now = until
        for uid, running in list(self.running.items()):
            left = self.leaves.get(uid)
            if left is None and running.started + self.seconds[uid] <= until:
                del self.running[uid]
            elif left is not None and left <= until:
                del self.running[uid], self.leaves[uid]
                gang = _waiting_again(running, left - self.stop_seconds)
                self.waiting[uid] = replace(gang, evictions=gang.evictions + 1)

    def lose(self, name: str) -> None:
        """Lose node ``name``: its gangs wait again, before all others."""
        row = self.snapshot().nodes.row[name]
        for uid, running in list(self.running.items()):
            if row in running.placement.node_rows():
                del self.running[uid]
                self.leaves.pop(uid, None)
                self.waiting[uid] = replace(_waiting_again(running, self.now), displaced=True)
        self.nodes = [
            replace(node, is_ready=node.is_ready and node.name != name) for node in self.nodes
        ]

    def decide(self) -> Decision:
        snapshot = self.snapshot()
        self.seen.append(snapshot)
        turns = (
            self.turns if self.visits is None else replace(self.turns, is_time_left=self._time())
        )
        decision = run_cycle(snapshot, self.policy, explain=False, turns=turns)
        self.turns = turns.after(decision, self.now)
        self.problems += broken_promises(snapshot, decision)
        if decision.fallback:
            self.problems.append(decision.fallback)
        for action in decision.actions:
            if isinstance(action, Admit):
                self._start(action)
            elif isinstance(action, Preempt):
                self._stop(action.running)
            elif isinstance(action, Resize):
                self._resize(action)
        return decision

    def _time(self) -> Callable[[], bool]:
        left = iter(range(self.visits or 0))
        return lambda: next(left, None) is not None

    def settle(self) -> list[Decision]:
        """Decide at this moment until a cycle changes nothing more."""
        decisions = [self.decide()]
        while any(isinstance(a, Admit | Preempt | Resize) for a in decisions[-1].actions):
            self.advance(self.now)
            decisions.append(self.decide())
            if len(decisions) > MAX_CYCLES:
                self.problems.append(f"at {self.now} the cycle does not come to rest")
                break
        return decisions

    def _start(self, action: Admit) -> None:
        gang = self.waiting.pop(action.gang.uid)
        self.running[gang.uid] = RunningGang(
            gang, action.placement, self.now, is_opportunistic=action.is_opportunistic
        )
        self.started.setdefault(gang.uid, self.now)

    def _stop(self, running: RunningGang) -> None:
        uid = running.gang.uid
        if uid in self.leaves:
            self.problems.append(f"{uid} was stopped twice")
        self.moves.append((self.now, uid))
        self.seconds[uid] -= self.now - running.started
        self.leaves[uid] = self.now + self.stop_seconds
        self.running[uid] = replace(self.running[uid], is_leaving=True)

    def _resize(self, action: Resize) -> None:
        old = self.running[action.running.gang.uid]
        self.moves.append((self.now, old.gang.uid))
        self.running[old.gang.uid] = RunningGang(
            old.gang,
            action.placement,
            old.started,
            self.now,
            anchor_row=old.anchor_row,
            is_opportunistic=old.is_opportunistic,
        )


def _waiting_again(running: RunningGang, stopped: float) -> Gang:
    """Return the gang as it waits again: only waiting counts as waited, not what it has run."""
    gang, ran = running.gang, max(0.0, stopped - running.started)
    attained = gang.attained_seconds + ran
    return replace(gang, arrived=gang.arrived + ran, attained_seconds=attained, interrupted=True)
