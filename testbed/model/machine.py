"""A state machine in which anything may happen to a cluster, and what must hold after each step.

Hypothesis draws the steps: users submit, edit and delete jobs, nodes come and go, queues change,
clocks jump, gangs end and fail, caches lag, writes are refused, the program crashes in the middle
of its work. Every decision is checked against what the program knew; where it knew everything, the
cluster must take all of it.
"""

import copy
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from bireme.core.cycle import run_cycle
from bireme.core.nodes import NodeTable
from bireme.core.policy import Policy
from bireme.core.settings import SchedulingSettings
from bireme.core.snapshot import ClusterSnapshot
from testbed.model.cluster import (
    KINDS,
    ModelCluster,
    Thing,
    Things,
    a_job,
    a_node,
    a_queue,
    a_task,
)
from testbed.model.invariants import DecisionCase, Promises, violations
from testbed.model.snapshots import Move, moves_of, node_of, snapshot_of
from testbed.workloads import COMBINED

SETTINGS = SchedulingSettings(
    wait_bound_seconds=30,
    min_runtime_seconds=5,
    eviction_budget=1,
    eviction_backoff_seconds=15,
    resize_settle_seconds=5,
    service_threshold=20,
    service_preemption_delay_seconds=10,
    preemption_cost_seconds=6,
)

JOBS: tuple[Thing, ...] = (
    {"tasks": {"worker": a_task(1)}},
    {"tasks": {"worker": a_task(3)}},
    {"tasks": {"worker": a_task(1, 4)}},
    {"tasks": {"worker": a_task(1, 8)}},
    {"tasks": {"worker": a_task(2, 4)}},
    {"tasks": {"worker": a_task(12)}},
    {"tasks": {"worker": a_task(4, 1, least=2)}},
    {"tasks": {"worker": a_task(2, 0, 40_000)}},
    {"tasks": {"ps": a_task(1, 0, 30_000), "worker": a_task(3, 2)}},
    {"tasks": {"worker": a_task(2, least=1, most=8)}, "elastic": True},
    {"tasks": {"worker": a_task(4, least=2, most=14)}, "elastic": True},
    {"tasks": {"worker": a_task(3, most=4)}, "elastic": True},
)
FIRST_QUEUES: dict[str, Thing] = {
    "open": {},
    "first": {"priority": 90},
    "small": {"limit": 6},
    "org": {"limit": 9},
    "team": {"parent": "org"},
}
# Jobs may name a queue that is not there, or comes later: ``gone``.
QUEUES = ("open", "first", "small", "org", "team", "gone")
CHANGES: tuple[Thing, ...] = (
    *({"limit": limit} for limit in (6, None, 0)),
    *({"guaranteed": gpus} for gpus in (4, 0)),
    *({"weight": weight} for weight in (3, None)),
    *({"parent": queue} for queue in ("org", "team", "")),
    *({"priority": 90}, {"bound": 10}),
)
Submission: TypeAlias = tuple[int, int, int, float | None]
"""Kind of job, queue, priority and estimate."""
submissions = st.tuples(
    st.integers(0, len(JOBS) - 1),
    st.sampled_from((0, 0, 0, 1, 2, 3, 4, 4, 5)),
    st.sampled_from((0, 0, 10, 1000)),
    st.sampled_from((None, 5.0, 20.0, 100.0)),
)


@dataclass(eq=False)
class Decider:
    """Decides on what it has heard of ``cluster``, and changes it.

    Attributes:
        cache: Its view of the cluster.
        heard: By kind, how many changes it has heard of.
    """

    cluster: ModelCluster
    policy: Policy
    settings: SchedulingSettings
    cache: Things = field(init=False)
    heard: dict[str, int] = field(init=False)
    _table: NodeTable | None = None

    def __post_init__(self) -> None:
        self.crash()

    def crash(self) -> None:
        self.cache, self.heard = {}, {}
        for kind in KINDS:
            self.relist(kind)

    def relist(self, kind: str) -> None:
        """List one kind anew: its watch was too old (410), or there was none."""
        self.cache[kind] = copy.deepcopy(self.cluster.things[kind])
        self.heard[kind] = len(self.cluster.log[kind])
        self._forget_table(kind)

    def listen(self, kind: str, most: int) -> None:
        """Take in the next ``most`` changes of a kind."""
        start = self.heard[kind]
        for name, version, thing in self.cluster.log[kind][start : start + most]:
            self.heard[kind] += 1
            self._hear(kind, name, version, thing)

    def catch_up(self) -> None:
        for kind in KINDS:
            self.listen(kind, len(self.cluster.log[kind]))

    def _hear(self, kind: str, name: str, version: int, thing: Thing | None) -> None:
        known = self.cache[kind].get(name)
        # An own write is in the cache before its event comes back.
        if known is not None and known["version"] >= version:
            return
        self.cache[kind].pop(name, None)
        if thing is not None:
            self.cache[kind][name] = copy.deepcopy(thing)
        self._forget_table(kind)

    def _forget_table(self, kind: str) -> None:
        if kind == "node":
            self._table = None

    @property
    def is_up_to_date(self) -> bool:
        return self.cache == self.cluster.things

    @property
    def table(self) -> NodeTable:
        """All nodes it knows as arrays; kept until one changes."""
        if self._table is None:
            self._table = self.fresh_table()
        return self._table

    def fresh_table(self) -> NodeTable:
        nodes = [node_of(name, node) for name, node in self.cache["node"].items()]
        return NodeTable(nodes, self.settings.topology_levels)

    def snapshot(self) -> ClusterSnapshot:
        return snapshot_of(self.cache, self.table, self.cluster.now, self.settings)

    def decide(self) -> list[Move]:
        return moves_of(run_cycle(self.snapshot(), self.policy), self.table)

    def carry_out(self, moves: Sequence[Move]) -> list[str]:
        """Write the decision on the cache as it is; return the refusals in words."""
        versions = {name: job["version"] for name, job in self.cache["job"].items()}
        refused = []
        for move in moves:
            answer = self._write(move, versions)
            if answer != "ok":
                refused.append(f"{move['do']} {move['job']}: {answer}")
        return refused

    def _write(self, move: Move, versions: dict[str, int]) -> str:
        name, cluster = move["job"], self.cluster
        if move["do"] == "hold":
            return "ok"
        if move["do"] == "start":
            yields = move["yields"]
            answer = cluster.start(name, versions[name], move["places"], cluster.now, yields=yields)
        elif move["do"] == "resize":
            answer = cluster.resize(name, versions[name], move["places"], cluster.now)
        else:
            answer = cluster.stop(name, versions[name])
        if answer != "conflict":
            job = cluster.things["job"][name]
            self._hear("job", name, job["version"], job)
        return answer


FAULTS = ("NeverFits", "NodesNotReady", "QueueNotFound", "QueueInvalid")
STEPS = 50
"""In one life."""
MAX_JOBS = 12
"""At once; more of them find nothing more, only later."""
MAX_ROUNDS = 300
"""Until a cluster that nobody disturbs has finished everything."""
DISTURBANCES = (
    *("delete", "edit", "add_node", "change_node", "change_queue", "jump"),
    *("hear", "expire", "crash"),
)
index = st.integers(0, 11)


class Machine(RuleBasedStateMachine):
    """One life of a cluster; the problems of the last step are what it fails with."""

    def __init__(self) -> None:
        super().__init__()
        self.cluster = ModelCluster()
        self.promises = Promises()
        self.is_sound, self.count = True, 0
        for name, gpus in (("n0", 8), ("n1", 4), ("n2", 2)):
            self.cluster.put("node", name, a_node(gpus))
        for name, given in FIRST_QUEUES.items():
            self.cluster.put("queue", name, a_queue(**given))

    @initialize(backlog=st.lists(submissions, min_size=2, max_size=6))
    def begin(self, backlog: list[Submission]) -> None:
        """Start the program where some jobs wait already."""
        self.program = Decider(self.cluster, COMBINED, SETTINGS)
        for submission in backlog:
            self.submit_one(submission)

    @rule(what=st.sampled_from(DISTURBANCES), at=index, how=index)
    def disturb(self, what: str, at: int, how: int) -> None:
        """Do something that happens rarely."""
        getattr(self, what)(at, how)

    # --- users ----------------------------------------------------------------------------------

    @rule(submission=submissions)
    def submit(self, submission: Submission) -> None:
        self.submit_one(submission)

    @rule(submission=submissions)
    def submit_and_decide(self, submission: Submission) -> None:
        self.submit_one(submission)
        self.decide(2)

    def submit_one(self, submission: Submission) -> None:
        if len(self.cluster.things["job"]) < MAX_JOBS:
            self.count += 1
            kind, queue, priority, estimate = submission
            given: Thing = {"queue": QUEUES[queue], "priority": priority, "estimate": estimate}
            shape = copy.deepcopy(JOBS[kind])
            given["resumable"] = bool(shape.get("elastic")) or self.count % 3 != 1
            given["preemptible"] = self.count % 5 != 2
            job = a_job(self.cluster.now, **shape, **given)
            self.cluster.put("job", f"j{self.count:02}", job)

    def delete(self, at: int, _: int) -> None:
        """Delete a job; one that holds places leaves them later."""
        if name := _pick(self.cluster.jobs("waiting", "running"), at):
            self.promises.void()
            if self.cluster.things["job"][name]["phase"] == "waiting":
                self.cluster.remove("job", name)
            else:
                self.cluster.change("job", name, deleted=True, phase="leaving")

    def edit(self, at: int, kind: int) -> None:
        if name := _pick(self.cluster.jobs("waiting", "running"), at):
            self.promises.void()
            spec: dict[str, Any] = {"elastic": False, **copy.deepcopy(JOBS[kind])}
            self.cluster.change("job", name, **spec)

    # --- the cluster ------------------------------------------------------------------------------

    def add_node(self, at: int, _: int) -> None:
        gpus = (1, 2, 8)[at % 3]
        self.count += 1
        if len(self.cluster.things["node"]) < 6:
            self.promises.void()
            self.cluster.put("node", f"m{self.count:02}", a_node(gpus))

    def change_node(self, at: int, change: int) -> None:
        how = ("gone", "lost", "cordoned", "smaller", "avoided", "well")[change % 6]
        if name := _pick(sorted(self.cluster.things["node"]), at):
            self.promises.void()
            if how == "gone":
                self.cluster.remove("node", name)
            elif how == "smaller":
                offers = self.cluster.things["node"][name]["offers"]
                fewer = {**offers, "gpu": max(0, offers["gpu"] - 2)}
                self.cluster.change("node", name, offers=fewer)
            else:
                health = {"ready": how != "lost", "cordoned": how == "cordoned"}
                self.cluster.change("node", name, **health, avoided=how == "avoided")
            if how in ("gone", "lost"):
                self.cluster.lose(name)

    def change_queue(self, at: int, change: int) -> None:
        name = QUEUES[at % len(QUEUES)]
        self.promises.void()
        if name not in self.cluster.things["queue"]:
            self.cluster.put("queue", name, a_queue(**CHANGES[change]))
        elif change == 0 and name != "open":
            self.cluster.remove("queue", name)
        else:
            self.cluster.change("queue", name, **CHANGES[change])

    @rule(at=index, how=st.sampled_from(("finish", "finish", "fail")))
    def end(self, at: int, how: str) -> None:
        """End a job, or fail a member, so that the gang has to start again."""
        if name := _pick(self.cluster.jobs("running"), at):
            if how == "finish":
                self.cluster.remove("job", name)
            else:
                self.promises.void()
                self.cluster.requeue(name, interrupted=True)

    @rule(at=index)
    def leave(self, at: int) -> None:
        if name := _pick(self.cluster.jobs("leaving"), at):
            self.cluster.leave(name)

    @rule(seconds=st.sampled_from((1.0, 5.0, 20.0, 70.0)))
    def tick(self, seconds: float) -> None:
        self.cluster.now += seconds

    def jump(self, at: int, _: int) -> None:
        self.promises.void()
        self.cluster.now += (-100.0, -5.0, 1000.0)[at % 3]

    # --- the program ------------------------------------------------------------------------------

    def hear(self, kind: int, most: int) -> None:
        """Deliver some events; the program decides on what it has heard so far."""
        self.program.listen(KINDS[kind % 3], most)
        self.cycle()

    def expire(self, kind: int, _: int) -> None:
        """End a watch with 410: the kind is listed anew."""
        self.program.relist(KINDS[kind % 3])

    @rule(cycles=st.sampled_from((1, 1, 2, 5)))
    def decide(self, cycles: int) -> None:
        """Deliver all events; the program decides."""
        for _ in range(cycles):
            self.program.catch_up()
            self.cycle()

    def crash(self, writes: int, _: int) -> None:
        """Decide, write some of it, and start again."""
        moves = [move for move in self.checked() if move["do"] != "hold"]
        self.promises.void()
        self.program.carry_out(moves[: writes % 4])
        self.program.crash()

    def cycle(self) -> list[Move]:
        """Decide and carry out; with all known, nothing of it may be refused."""
        is_fresh = self.program.is_up_to_date
        moves = self.checked()
        refused = self.program.carry_out(moves)
        if is_fresh:
            self.demand(f"the cluster refuses what was decided: {words}" for words in refused)
        elif any(move["do"] != "hold" for move in moves):
            self.promises.void()
        return moves

    def checked(self) -> list[Move]:
        """Return a decision that breaks no invariant."""
        seen = copy.deepcopy(self.program.cache)
        moves = self.program.decide()
        case = DecisionCase(seen, moves, self.cluster.now, SETTINGS)
        self.demand(violations(case))
        self.demand(self.differences(moves))
        if self.program.is_up_to_date:
            self.demand(f"a promise is broken: {words}" for words in self.promises.broken(case))
        return moves

    def differences(self, moves: list[Move]) -> Iterable[str]:
        """I8, I9: a program that has just started decides alike, whatever it hears of first."""
        # Seeded by the case, so that Hypothesis can replay and shrink a failure.
        snapshot, shuffle = self.program.snapshot(), random.Random(len(moves))  # noqa: S311
        waiting, running = list(snapshot.waiting), list(snapshot.running)
        shuffle.shuffle(waiting)
        shuffle.shuffle(running)
        table = self.program.fresh_table()
        other = replace(snapshot, nodes=table, waiting=tuple(waiting), running=tuple(running))
        again = moves_of(run_cycle(other, COMBINED, explain=False), table)
        if again != moves:
            yield f"equal snapshots are decided differently: {moves} and {again}"

    def demand(self, problems: Iterable[str]) -> None:
        found = list(problems)
        self.is_sound = self.is_sound and not found
        if found:
            raise AssertionError("\n".join(found))

    def teardown(self) -> None:
        """I3, I5, I9: without disturbances everything that can has run in the end."""
        if not self.is_sound or not hasattr(self, "program"):
            return
        for _ in range(MAX_ROUNDS):
            self.cluster.now += 10.0
            self.program.catch_up()
            moves = self.cycle()
            leaving = self.cluster.jobs("leaving")
            for name in leaving:
                self.cluster.leave(name)
            if leaving or any(move["do"] != "hold" for move in moves):
                continue
            if not (running := self.cluster.jobs("running")):
                break
            # One at a time: the next cycle has to make do with just the room of this one.
            self.cluster.remove("job", running[0])
        left = [f"{m['job']} is left and is told {m.get('why')}" for m in moves]
        self.demand(words for words in left if not words.endswith(FAULTS))
        self.demand(
            f"{name} still holds places" for name in self.cluster.jobs("running", "leaving")
        )


def _pick(names: list[str], at: int) -> str:
    return names[at % len(names)] if names else ""
