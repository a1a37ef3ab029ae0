"""Turns of queues: guarantees first, then weighted shares, then the policy's order."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from bireme.core.policy import Ranked
from bireme.core.queue_tree import QueueTree
from bireme.core.queues import Queue
from bireme.testing import GPU, a_gang, a_task

TOTAL = {GPU: 12, "cpu": 100_000}


def ranked(*gangs: str) -> list[Ranked]:
    """Gangs in the policy's order, each written ``queue:gpus``; named by their place in it."""
    given_gangs = (gang.split(":") for gang in gangs)
    return [
        Ranked(a_gang(f"{place}", a_task(gpus=int(gpus), cpu_millis=0), queue=queue), 0.0)
        for place, (queue, gpus) in enumerate(given_gangs)
    ]


def order(tree: QueueTree, entries: Sequence[Ranked], refused: str = "") -> str:
    """Places in the policy's order as their turns come, when all but ``refused`` are admitted."""
    found = ""
    for entry in tree.merge(entries):
        found += entry.gang.name
        if entry.gang.name not in refused:
            tree.take(entry.gang.queue, entry.gang.demand)
    return found


def a_tree(*queues: Queue, **gpus: int) -> QueueTree:
    usage = {name: {GPU: count} for name, count in gpus.items()}
    return QueueTree({queue.name: queue for queue in queues}, usage, TOTAL)


def test_without_guarantees_and_weights_the_policys_order_stands() -> None:
    tree = a_tree(Queue("a"), Queue("b", parent="a"), Queue("c"), a=9)
    assert order(tree, ranked("c:1", "a:1", "b:1", "a:1")) == "0123"


def test_a_queue_goes_first_for_as_long_as_it_stays_within_its_guarantee() -> None:
    tree = a_tree(Queue("a"), Queue("b", guaranteed={GPU: 4}), b=1)
    assert order(tree, ranked("a:1", "a:1", "b:2", "b:1", "b:1")) == "23014"


def test_a_gang_that_is_not_admitted_takes_nothing_of_the_guarantee() -> None:
    waiting = ranked("a:1", "a:1", "b:2", "b:2", "b:1")
    assert order(a_tree(Queue("a"), Queue("b", guaranteed={GPU: 3})), waiting) == "20134"
    tree = a_tree(Queue("a"), Queue("b", guaranteed={GPU: 3}))
    assert order(tree, waiting, refused="2") == "23401"


def test_a_gang_too_large_for_the_guarantee_waits_its_turn_and_so_do_those_behind_it() -> None:
    tree = a_tree(Queue("a"), Queue("b", guaranteed={GPU: 4}))
    assert order(tree, ranked("a:1", "b:5", "b:1")) == "012"


def test_of_two_queues_within_their_guarantees_the_better_ranked_gang_decides() -> None:
    tree = a_tree(Queue("a", guaranteed={GPU: 2}), Queue("b", guaranteed={GPU: 2}))
    assert order(tree, ranked("b:1", "a:1", "b:1", "b:1", "a:1", "a:1")) == "012435"


def test_with_weights_the_lowest_share_goes_first_whatever_the_policy_says() -> None:
    tree = a_tree(Queue("a", weight=2), Queue("b"), a=2)
    assert order(tree, ranked("a:1", "a:1", "a:1", "b:1", "b:1", "b:1")) == "304125"


def test_a_queue_without_a_weight_counts_as_one_beside_siblings_that_set_theirs() -> None:
    tree = a_tree(Queue("a", weight=1), Queue("b"), a=1, b=1)
    assert order(tree, ranked("a:1", "b:1", "a:1", "b:1")) == "0123"


def test_what_is_guaranteed_does_not_count_against_a_weight() -> None:
    tree = a_tree(Queue("a", weight=1, guaranteed={GPU: 3}), Queue("b", weight=1), a=3, b=1)
    assert order(tree, ranked("b:1", "b:1", "a:1", "a:1")) == "2031"


def test_weights_speak_to_siblings_alone() -> None:
    tree = a_tree(
        Queue("x", weight=1),
        Queue("y", weight=1),
        Queue("xa", parent="x"),
        Queue("xb", parent="x"),
        xa=6,
        y=5,
    )
    assert order(tree, ranked("y:1", "xa:1", "xb:1", "y:1")) == "0132"


def test_gangs_of_an_inner_queue_compete_as_a_branch_of_their_own() -> None:
    tree = a_tree(Queue("x"), Queue("xa", parent="x", weight=2), x=2, xa=2)
    assert order(tree, ranked("x:1", "x:1", "xa:1", "xa:1")) == "2301"


def test_turns_follow_what_others_take_and_give_back_in_between() -> None:
    tree = a_tree(Queue("a", weight=1), Queue("b", weight=1))
    turns = tree.merge(ranked("a:1", "a:1", "b:1", "b:1", "b:1"))
    names = [next(turns).gang.name]
    tree.take("a", {GPU: 4})
    names.append(next(turns).gang.name)
    tree.take("b", {GPU: 6})
    names.append(next(turns).gang.name)
    with tree.without([("b", {GPU: 6})]):
        names.append(next(turns).gang.name)
    names.append(next(turns).gang.name)
    assert names == ["0", "2", "1", "3", "4"]


@st.composite
def trees(draw: st.DrawFn, names: str = "abcde") -> tuple[Queue, ...]:
    """Queues in a tree, some with a guarantee, some with a weight."""
    return tuple(
        Queue(
            name,
            parent=draw(st.sampled_from(["", *names[:place]])),
            weight=draw(st.sampled_from([None, None, 1, 3])),
            guaranteed=draw(st.sampled_from([{}, {}, {GPU: 2}, {GPU: 5}, {"cpu": 1}])),
        )
        for place, name in enumerate(names)
    )


WAITING = st.lists(
    st.builds("{}:{}".format, st.sampled_from([*"abcde", "gone"]), st.integers(0, 4)), max_size=12
)


@given(trees(), WAITING, st.sets(st.integers(0, 11)))
def test_every_gang_gets_one_turn_and_gangs_of_one_queue_keep_their_order(
    queues: tuple[Queue, ...], gangs: list[str], refused: set[int]
) -> None:
    entries, tree = ranked(*gangs), a_tree(*queues)
    turns = []
    for entry in tree.merge(entries):
        turns.append(entry)
        if int(entry.gang.name) not in refused:
            tree.take(entry.gang.queue, entry.gang.demand)
    assert sorted(turns, key=entries.index) == entries
    for queue in {entry.gang.queue for entry in entries}:
        own = [entry for entry in entries if entry.gang.queue == queue]
        assert [entry for entry in turns if entry.gang.queue == queue] == own


@given(trees(), WAITING)
def test_a_tournament_without_terms_is_the_policys_order(
    queues: tuple[Queue, ...], gangs: list[str]
) -> None:
    plain = [Queue(queue.name, parent=queue.parent) for queue in queues]
    # A weight where nobody competes: the tournament is held, and must change nothing.
    idle = (Queue("idle"), Queue("only", parent="idle", weight=7))
    entries = ranked(*gangs)
    assert list(a_tree(*plain).merge(entries)) == entries
    assert list(a_tree(*plain, *idle).merge(entries)) == entries


@given(trees(), WAITING, st.sets(st.integers(0, 11)))
def test_every_turn_is_what_the_rule_says_of_that_moment(
    queues: tuple[Queue, ...], gangs: list[str], refused: set[int]
) -> None:
    tree, waiting = a_tree(*queues), ranked(*gangs)
    if not tree.has_guarantees and all(queue.weight is None for queue in queues):
        return
    for entry in tree.merge(list(waiting)):
        assert entry is by_the_rule(tree, queues, waiting)
        waiting.remove(entry)
        if int(entry.gang.name) not in refused:
            tree.take(entry.gang.queue, entry.gang.demand)


def by_the_rule(tree: QueueTree, queues: Sequence[Queue], waiting: Sequence[Ranked]) -> Ranked:
    """The next gang, found by asking every level from the top, with nothing remembered."""
    own_use = {q.name: dict(tree.usage(q.name)) for q in queues}
    for queue in queues:
        if queue.parent:
            for name, amount in tree.usage(queue.name).items():
                own_use[queue.parent][name] = own_use[queue.parent].get(name, 0) - amount

    def best(level: str) -> Ranked | None:
        below = [queue for queue in queues if queue.parent == level]
        strangers = {"gone"} if not level else set()
        contest: list[tuple[tuple[bool, float, int], Ranked]] = []
        for name in [queue.name for queue in below] + sorted(strangers):
            found = best(name) if name != "gone" else first(waiting, "gone")
            if found is not None:
                within = tree.is_within_guarantee(name, found.gang.demand)
                contest.append(key(found, not within, tree.dominant_share(name), below))
        own = first(waiting, level)
        if own is not None and not below:
            return own
        if own is not None:
            parts = [held / TOTAL[name] for name, held in own_use[level].items() if name in TOTAL]
            contest.append(key(own, True, max(parts, default=0.0), below))
        return min(contest, key=lambda entry: entry[0])[1] if contest else None

    def key(
        entry: Ranked, borrows: bool, share: float, siblings: Sequence[Queue]
    ) -> tuple[tuple[bool, float, int], Ranked]:
        weighs = any(queue.weight is not None for queue in siblings)
        return (borrows, share if weighs else 0.0, int(entry.gang.name)), entry

    found = best("")
    assert found is not None
    return found


def first(waiting: Sequence[Ranked], queue: str) -> Ranked | None:
    return next((entry for entry in waiting if entry.gang.queue == queue), None)
