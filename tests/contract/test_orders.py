"""The comparator of every registered orderer: total, antisymmetric, transitive, stable.

Every orderer is classified: it judges each gang by itself, or it is in ``RELATIVE`` with the reason
why others matter to it. A new one fails here until somebody has decided which.
"""

import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import combinations, permutations
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bireme import policy_names
from bireme.core.gangs import Gang
from bireme.core.policy import Orderer, Ranked
from bireme.core.queues import Queue
from bireme.core.snapshot import ClusterSnapshot
from bireme.registry import make_orderer
from bireme.testing import a_gang, a_node, a_running_gang, a_snapshot, a_task, with_running
from testbed.examples import examples

Irrelevant = Callable[[Gang, Sequence[Gang]], bool]
"""Whether a gang has nothing to do with any of some others."""


def faults_of_list(
    orderer: Orderer,
    gangs: Sequence[Gang],
    snapshot: ClusterSnapshot,
    is_irrelevant: Irrelevant,
    shuffle: Random,
) -> Iterator[str]:
    """The faults of the order of a list, in words."""
    first = _order(orderer, gangs, snapshot)
    if sorted(first) != sorted(gang.uid for gang in gangs):
        yield f"not total: {len(gangs)} gangs were given, {first} came back"
    mixed = list(gangs)
    shuffle.shuffle(mixed)
    if _order(orderer, mixed, snapshot) != first:
        yield "not stable: another way to list the gangs gives another order"
    for gang in gangs:
        others = [other for other in gangs if other is not gang]
        if is_irrelevant(gang, others):
            alone = _order(orderer, others, snapshot)
            if [uid for uid in first if uid != gang.uid] != alone:
                yield f"not independent: without {gang.uid} the others come as {alone}"


def faults_of_pairs(
    orderer: Orderer, gangs: Sequence[Gang], snapshot: ClusterSnapshot
) -> Iterator[str]:
    """The faults of the comparator of an orderer, in words."""
    before = {
        (one.uid, other.uid): _order(orderer, [one, other], snapshot)[:1] == [one.uid]
        for one, other in permutations(gangs, 2)
    }
    for one, other in combinations([gang.uid for gang in gangs], 2):
        if before[one, other] is before[other, one]:
            yield f"not antisymmetric: {one} and {other}"
    for a, b, c in permutations([gang.uid for gang in gangs], 3):
        if before[a, b] and before[b, c] and not before[a, c]:
            yield f"not transitive: {a}, {b}, {c}"
    for one, other in combinations(_order(orderer, gangs, snapshot), 2):
        if not before[one, other]:
            yield f"not independent: {one} comes before {other} only in the list"


def _order(orderer: Orderer, gangs: Sequence[Gang], snapshot: ClusterSnapshot) -> list[str]:
    return [entry.gang.uid for entry in orderer.order(list(gangs), snapshot)]


several = examples(10)
QUEUES = (Queue("default"), Queue("heavy", weight=5))
BY_THEMSELVES = {
    *("combined-priority", "fcfs", "fifo", "random", "sjf", "smallest-first", "srsf", "srtf"),
    *("learned-index", "rlpto", "tiresias-gittins", "tiresias-las", "tradl"),
}


def always(gang: Gang, others: Sequence[Gang]) -> bool:
    return True


def never(gang: Gang, others: Sequence[Gang]) -> bool:
    return False


def is_alone(holder: Callable[[Gang], str]) -> Irrelevant:
    """Whether nobody else is of the gang's holder."""
    return lambda gang, others: holder(gang) not in map(holder, others)


RELATIVE: dict[str, tuple[Irrelevant, str]] = {
    "a2c": (never, "it weighs each gang against the middle run time and the length of the list"),
    "a2c-cnn": (never, "it sees a gang in one image with nine others"),
    "das": (never, "it sees every gang beside all others"),
    "drf": (is_alone(lambda gang: gang.user), "a user's share grows by all that is served before"),
    "fair-share": (is_alone(lambda gang: gang.queue), "the same, of queues"),
    "malo": (never, "it searches for the best order of all"),
    "mosa": (never, "it searches for the best order of all"),
    "rifling": (never, "it learns on the forecast of all"),
    "tapfinger": (never, "node pools choose among all that wait, and what one takes others lack"),
    "tetris": (never, "it weighs shortness by the mean of all, and alignment by what they free"),
}


@st.composite
def gangs(draw: st.DrawFn, uid: str) -> Gang:
    """A gang from few values, so that ties are common."""
    gang = a_gang(
        uid,
        a_task(draw(st.sampled_from((1, 1, 4))), draw(st.sampled_from((0, 1, 8)))),
        arrived=draw(st.sampled_from((0.0, 1.0, 90.0))),
        priority=draw(st.sampled_from((0, 0, 10))),
        queue=draw(st.sampled_from(("default", "heavy"))),
        interrupted=draw(st.booleans()),
    )
    return replace(
        gang,
        user=draw(st.sampled_from(("", "ann", "bob"))),
        estimated_seconds=draw(st.sampled_from((None, 10.0, 10.0, 5000.0))),
        attained_seconds=draw(st.sampled_from((0.0, 0.0, 5000.0))),
    )


@st.composite
def snapshots(draw: st.DrawFn) -> ClusterSnapshot:
    """Up to five gangs, each waiting or running."""
    drawn = [draw(gangs(f"g{number}")) for number in range(draw(st.integers(2, 5)))]
    since = [draw(st.sampled_from((None, None, 50.0, 99.0))) for _ in drawn]
    pairs = list(zip(drawn, since, strict=True))
    waiting = [gang for gang, start in pairs if start is None]
    snapshot = a_snapshot([a_node("n", 64)], *waiting, queues=QUEUES, now=100.0)
    runs = [(gang, start) for gang, start in pairs if start is not None]
    return with_running(
        snapshot, *(a_running_gang(gang, snapshot.nodes, started=start) for gang, start in runs)
    )


def everyone(snapshot: ClusterSnapshot) -> list[Gang]:
    return [*snapshot.waiting, *(running.gang for running in snapshot.running)]


def test_every_orderer_is_classified() -> None:
    assert BY_THEMSELVES | set(RELATIVE) == set(policy_names.class_paths("orderer"))
    assert not BY_THEMSELVES & set(RELATIVE)


@pytest.mark.parametrize("name", sorted(policy_names.class_paths("orderer")))
@several
@given(snapshots(), st.randoms(use_true_random=False))
def test_a_list_has_one_order_which_no_irrelevant_gang_changes(
    name: str, snapshot: ClusterSnapshot, shuffle: random.Random
) -> None:
    is_irrelevant, _ = RELATIVE.get(name, (always, ""))
    found = faults_of_list(make_orderer(name), everyone(snapshot), snapshot, is_irrelevant, shuffle)
    assert list(found) == []


@pytest.mark.parametrize("name", sorted(BY_THEMSELVES))
@several
@given(snapshots())
def test_a_comparator_is_antisymmetric_transitive_and_the_order_of_the_list(
    name: str, snapshot: ClusterSnapshot
) -> None:
    assert list(faults_of_pairs(make_orderer(name), everyone(snapshot), snapshot)) == []


@pytest.mark.parametrize("name", sorted(policy_names.class_paths("orderer")))
@several
@given(snapshots())
def test_scores_are_numbers_and_claims_can_be_compared(
    name: str, snapshot: ClusterSnapshot
) -> None:
    for entry in make_orderer(name).order(everyone(snapshot), snapshot):
        assert math.isfinite(entry.score)
        claims = (entry.preemption_priority, entry.stop_priority)
        assert not any(claim is not None and math.isnan(claim) for claim in claims)


@pytest.mark.parametrize("name", sorted(policy_names.class_paths("orderer")))
@several
@given(snapshots(), st.sampled_from((1.0, 5000.0, 1e7)))
def test_a_claim_does_not_grow_by_waiting_alone(
    name: str, snapshot: ClusterSnapshot, seconds: float
) -> None:
    waiting = list(snapshot.waiting)
    now = {e.gang.uid: e.preemption_priority for e in make_orderer(name).order(waiting, snapshot)}
    later = make_orderer(name).order(waiting, replace(snapshot, now=snapshot.now + seconds))
    for entry in later:
        earlier = now[entry.gang.uid]
        if entry.preemption_priority is not None and earlier is not None:
            assert entry.preemption_priority <= earlier


@pytest.mark.parametrize("name", sorted(policy_names.class_paths("orderer")))
def test_nobody_is_ordered_where_nobody_is(name: str) -> None:
    assert make_orderer(name).order([], a_snapshot([a_node("n")])) == []
    assert make_orderer(name).order([], a_snapshot([])) == []


# --- orders that are none ---------------------------------------------------------------------


class AsListed:
    """Equal gangs in the order in which they came in."""

    def order(self, gangs: Sequence[Gang], snapshot: ClusterSnapshot) -> list[Ranked]:
        return [Ranked(gang, 0.0) for gang in sorted(gangs, key=lambda gang: gang.arrived)]


class RockPaperScissors:
    """Of two gangs the one that is one ahead of the other in a circle of three."""

    def order(self, gangs: Sequence[Gang], snapshot: ClusterSnapshot) -> list[Ranked]:
        found = sorted(gangs, key=lambda gang: gang.uid)
        if len(found) == 2 and (int(found[1].uid[1:]) - int(found[0].uid[1:])) % 3 == 2:
            found.reverse()
        return [Ranked(gang, 0.0) for gang in found]


class ByDistanceFromTheMean:
    """Orders by distance from the mean of all gangs: the key of one depends on the others."""

    def order(self, gangs: Sequence[Gang], snapshot: ClusterSnapshot) -> list[Ranked]:
        mean = sum(gang.arrived for gang in gangs) / max(1, len(gangs))
        found = sorted(gangs, key=lambda gang: (abs(gang.arrived - mean), gang.uid))
        return [Ranked(gang, 0.0) for gang in found]


class WithoutTheLast:
    """The last gang is forgotten."""

    def order(self, gangs: Sequence[Gang], snapshot: ClusterSnapshot) -> list[Ranked]:
        return [Ranked(g, 0.0) for g in sorted(gangs, key=lambda gang: gang.uid)[:-1]]


@pytest.mark.parametrize(
    ("orderer", "faults"),
    [
        (AsListed(), {"not stable", "not antisymmetric"}),
        (RockPaperScissors(), {"not transitive", "not independent"}),
        (ByDistanceFromTheMean(), {"not independent"}),
        (WithoutTheLast(), {"not total"}),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_is_no_order_is_seen(orderer: Orderer, faults: set[str]) -> None:
    times = (0.0, 0.0, 7.0, 90.0)
    listed = [a_gang(f"g{number}", arrived=at) for number, at in enumerate(times)]
    snapshot = a_snapshot([a_node("n")], *listed)
    found = [*faults_of_list(orderer, listed, snapshot, always, random.Random(2))]  # noqa: S311
    found += faults_of_pairs(orderer, listed, snapshot)
    assert faults <= {words.partition(":")[0] for words in found}
