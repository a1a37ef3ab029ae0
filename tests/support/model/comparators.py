"""Whether an order is one: what holds of the comparator behind every orderer, asked pair by pair.

An orderer that judges each gang by itself has a comparator, its answer on two gangs alone. One that
weighs gangs against each other has none but within a list; then the list must at least not depend
on how it was written down, and a gang that has nothing to do with the others must not move them.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import combinations, permutations
from random import Random

from bireme.core.gangs import Gang
from bireme.core.policy import Orderer
from bireme.core.snapshot import ClusterSnapshot

Irrelevant = Callable[[Gang, Sequence[Gang]], bool]
"""Whether a gang has nothing to do with any of some others."""


def faults_of_list(
    orderer: Orderer,
    gangs: Sequence[Gang],
    snapshot: ClusterSnapshot,
    is_irrelevant: Irrelevant,
    shuffle: Random,
) -> Iterator[str]:
    """What is wrong with the order of a list, in words."""
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
    """What is wrong with the comparator of an orderer, in words."""
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
