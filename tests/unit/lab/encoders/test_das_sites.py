"""Sites are what one finds by trying every domain and every slowest machine."""

from typing import Any

import numpy as np
import pytest

from bireme.core.gpus import UNKNOWN_MODEL
from bireme.core.resources import FloatArray
from bireme_lab.encoders.das_inputs import FEE_WEIGHTS, SITE_FEATURES, Machines, Sites

FACTORS = (1.0, 0.74, 0.55)
FIRST_OF_WEIGHTS = 7


def machines(seed: int, *shape: int, racks: int = 2) -> Machines:
    chance = np.random.default_rng(seed)
    size = shape or (8,)
    capacity = np.full(size, 4)
    rack = np.arange(size[-1]) % racks
    rack[-1] = -1  # it stands alone
    return Machines(
        room=chance.integers(0, 5, size),
        capacity=capacity,
        speed=chance.choice([0.4, 0.75, 1.0, 1.7], size),
        dollars=chance.choice([0.35, 1.46, 2.48], size),
        rack=np.broadcast_to(rack, size).copy(),
        own_replicas=np.zeros(size, dtype=np.int64),
    )


def tried(cluster: Machines, need: int, weight: float) -> tuple[FloatArray, list[set[int]]]:
    """Worth of every machine's best site by trying, and the members of all sites of most worth."""
    count = len(cluster.room)
    pace = cluster.speed * np.where(cluster.room < cluster.capacity, 0.94, 1.0)
    worth, found = np.zeros(count), []
    for slowest in range(count):
        domains = [
            {slowest},
            {m for m in range(count) if cluster.rack[m] == cluster.rack[slowest]},
            set(range(count)),
        ]
        for factor, domain in zip(FACTORS, domains, strict=True):
            inside = [m for m in domain if pace[m] >= pace[slowest]]
            room = sum(int(cluster.room[m]) for m in inside)
            if room < need:
                continue
            rent = sum(float(cluster.room[m] * cluster.dollars[m]) for m in inside) / room
            one = (1 + weight * UNKNOWN_MODEL.dollars_per_hour) / (1 + weight * rent)
            value = factor * float(pace[slowest]) * one
            found.append((value, {m for m in inside if cluster.room[m]}))
            worth[slowest] = max(worth[slowest], value)
    most = max((value for value, _ in found), default=0.0)
    return worth, [members for value, members in found if value == pytest.approx(most)]


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("need", [1, 4, 8, 16])
def test_worths_and_best_site_are_those_found_by_trying(seed: int, need: int) -> None:
    cluster = machines(seed)
    sites = Sites.of(cluster)
    best, features = sites.best(np.array([need]))[0], sites.features(np.array(need))
    assert features.shape == (8, SITE_FEATURES)
    for index, weight in enumerate(FEE_WEIGHTS):
        worth, members = tried(cluster, need, weight)
        own, is_in = features[:, FIRST_OF_WEIGHTS + 2 * index :][:, :2].T
        assert best[index] == pytest.approx(worth.max())
        expected = np.where(cluster.room > 0, worth / max(worth.max(), 1e-9), 0.0)
        np.testing.assert_allclose(own, expected, atol=1e-9)
        chosen = set(np.flatnonzero(is_in).tolist())
        alone = set().union(*[site for site in members if len(site) == 1]) if members else set()
        assert chosen in [*members, alone] if members else not chosen


def test_worlds_of_a_batch_are_those_on_their_own() -> None:
    together = machines(3, 5, 8)
    needs = np.array([1, 2, 4, 8, 16])
    features, best = Sites.of(together).features(needs), Sites.of(together).best(needs[:, None])
    for world, need in enumerate(needs):
        fields = ("room", "capacity", "speed", "dollars", "rack", "own_replicas")
        alone = Sites.of(Machines(*(getattr(together, name)[world] for name in fields)))
        np.testing.assert_allclose(features[world], alone.features(np.array(need)))
        np.testing.assert_allclose(best[world], alone.best(np.array([need])))


def test_order_of_machines_does_not_matter() -> None:
    plain, turned = machines(4), Machines(*(part[::-1] for part in _parts(machines(4))))
    need = np.array(6)
    np.testing.assert_allclose(
        Sites.of(plain).features(need)[::-1, :7], Sites.of(turned).features(need)[:, :7]
    )


def test_padding_without_room_changes_nothing_for_others() -> None:
    cluster = machines(5)
    ends = (np.zeros(2, int), np.zeros(2, int), np.zeros(2), np.zeros(2), np.full(2, -1))
    padding = (*ends, np.zeros(2, int))
    wider = Machines(*(np.concatenate(pair) for pair in zip(_parts(cluster), padding, strict=True)))
    need = np.array(7)
    found = Sites.of(wider).features(need)
    np.testing.assert_allclose(found[:8], Sites.of(cluster).features(need))
    assert not found[8:, 7:].any()


def test_replica_that_is_already_there_keeps_the_others_in_its_rack() -> None:
    cluster = machines(6)
    held = np.zeros(8, dtype=np.int64)
    held[0] = 1
    room = np.full(8, 4)
    fast = np.array([0.4, 1.7] * 4)
    with_one = Machines(room, cluster.capacity, fast, cluster.dollars, cluster.rack, held)
    is_in_fastest = Sites.of(with_one).features(np.array(2))[:, FIRST_OF_WEIGHTS + 1]
    assert is_in_fastest[0] == 1.0
    assert not is_in_fastest[1:].any()


def _parts(cluster: Machines) -> list[Any]:
    names = ("room", "capacity", "speed", "dollars", "rack", "own_replicas")
    return [getattr(cluster, name) for name in names]
