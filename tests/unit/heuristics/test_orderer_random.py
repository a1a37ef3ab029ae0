"""The lottery: one draw for ever, another with another seed, no favourites."""

from bireme.heuristics.simple_orderers import RandomOrder, ticket
from bireme.testing import a_gang, a_snapshot

GANGS = [a_gang(f"g{number}", arrived=float(number)) for number in range(200)]


def draw(policy: RandomOrder) -> list[str]:
    return [entry.gang.uid for entry in policy.order(GANGS, a_snapshot([]))]


def test_every_process_draws_the_same() -> None:
    assert draw(RandomOrder()) == draw(RandomOrder(seed=0))
    assert ticket("g0", 0) == 0xF839569D60CC7BCB  # as "b2sum -l 64" has it


def test_another_seed_is_another_draw() -> None:
    assert draw(RandomOrder(seed=1)) != draw(RandomOrder(seed=2))


def test_the_draw_does_not_follow_arrival() -> None:
    places = [int(uid[1:]) for uid in draw(RandomOrder())]
    passed = sum(left > right for i, left in enumerate(places) for right in places[i + 1 :])
    assert 0.4 < passed / (200 * 199 / 2) < 0.6


def test_nobody_is_stopped_for_luck() -> None:
    assert {entry.preemption_priority for entry in RandomOrder().order(GANGS, a_snapshot([]))} == {
        None
    }
