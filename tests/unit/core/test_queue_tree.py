"""The tree of queues: paths, faults, limits at every level, effective guarantees, shares."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bireme.core.errors import SettingError, SnapshotError
from bireme.core.queue_tree import MAX_LEVELS, QueueTree
from bireme.core.queues import Queue
from bireme.core.resources import Amounts

HUGE = 2**200


def a_tree(*queues: Queue, total: Amounts | None = None, **usage: dict[str, int]) -> QueueTree:
    """A tree of ``queues`` in a cluster of 100 of everything; ``usage`` by queue name."""
    return QueueTree({q.name: q for q in queues}, usage, total or {"gpu": 100, "cpu": 100})


TEAMS = (
    Queue("org", limit={"gpu": 10}),
    Queue("team", limit={"gpu": 8}, parent="org"),
    Queue("user", limit={"gpu": 6}, parent="team"),
    Queue("other", parent="org"),
)


def test_the_path_of_a_queue_leads_up_to_its_root() -> None:
    tree = a_tree(*TEAMS)
    assert tree.path("user") == ("user", "team", "org")
    assert tree.path("org") == ("org",)
    assert tree.path("gone") == ("gone",)
    assert [tree.fault(queue.name) for queue in TEAMS] == [None] * 4


def test_what_a_queue_holds_counts_in_every_queue_above_it() -> None:
    tree = a_tree(*TEAMS, user={"gpu": 2}, team={"gpu": 1, "cpu": 5}, other={"gpu": 3})
    tree.take("user", {"gpu": 1})
    assert tree.usage("user") == {"gpu": 3}
    assert tree.usage("team") == {"gpu": 4, "cpu": 5}
    assert tree.usage("org") == {"gpu": 7, "cpu": 5}
    tree.give_back("team", {"cpu": 5})
    assert tree.usage("org") == {"gpu": 7, "cpu": 0}


@pytest.mark.parametrize(
    ("usage", "asked", "level"),
    [
        pytest.param({}, 6, None, id="fits-everywhere"),
        pytest.param({}, 7, ("user", (7, 0, 6)), id="its-own-limit-first"),
        pytest.param({"team": {"gpu": 5}}, 4, ("team", (4, 5, 8)), id="beside-its-parents-own"),
        pytest.param({"other": {"gpu": 7}}, 4, ("org", (4, 7, 10)), id="beside-a-cousins"),
        pytest.param({"other": {"gpu": 99}}, 0, None, id="asks-nothing-of-what-is-full"),
        pytest.param({"gone": {"gpu": 99}}, 6, None, id="a-queue-that-is-gone-is-no-relative"),
    ],
)
def test_a_limit_holds_for_the_whole_branch(
    usage: dict[str, dict[str, int]], asked: int, level: tuple[str, tuple[int, int, int]] | None
) -> None:
    found = a_tree(*TEAMS, **usage).excess("user", {"gpu": asked, "cpu": 50})
    assert found == (None if level is None else (level[0], {"gpu": level[1]}))


def test_what_would_pass_a_limit_even_alone_is_distinguished_from_what_must_wait() -> None:
    tree = a_tree(*TEAMS, other={"gpu": 9})
    assert tree.excess_when_empty("user", {"gpu": 6}) is None
    assert tree.excess_when_empty("other", {"gpu": 11}) == ("org", {"gpu": (11, 0, 10)})
    assert tree.excess_when_empty("gone", {"gpu": 11}) is None


def test_amounts_beyond_every_machine_word_are_still_counted_exactly() -> None:
    tree = a_tree(Queue("q", limit={"gpu": HUGE}), q={"gpu": HUGE - 1})
    assert tree.excess("q", {"gpu": 1}) is None
    assert tree.excess("q", {"gpu": 2}) == ("q", {"gpu": (2, HUGE - 1, HUGE)})


def test_a_negative_amount_is_refused_wherever_it_comes_in() -> None:
    tree = a_tree(*TEAMS)
    for refuse in (tree.take, tree.give_back, tree.excess):
        with pytest.raises(SnapshotError, match=r"queue 'user'.*'gpu': -1.*never negative"):
            refuse("user", {"gpu": -1})
    with pytest.raises(SnapshotError, match="'team'"):
        a_tree(*TEAMS, team={"gpu": -1})
    assert tree.usage("org") == {}


def test_a_trial_leaves_no_trace_whatever_is_taken_and_given_back_in_it() -> None:
    tree = a_tree(*TEAMS, user={"gpu": 5}, other={"gpu": 5})
    with tree.without([("user", {"gpu": 5})]):
        assert tree.excess("user", {"gpu": 5}) is None
        tree.take("user", {"gpu": 3})
        with tree.without([("other", {"gpu": 5})]):
            assert tree.usage("org") == {"gpu": 3}
        assert tree.usage("org") == {"gpu": 8}
    assert tree.usage("user") == {"gpu": 5}
    assert tree.usage("org") == {"gpu": 10}
    with pytest.raises(SnapshotError), tree.without([("user", {"gpu": 1}), ("other", {"gpu": -1})]):
        pass
    assert tree.usage("org") == {"gpu": 10}


# --- faults -----------------------------------------------------------------------------------


def test_a_parent_that_does_not_exist_is_the_fault_of_all_below() -> None:
    tree = a_tree(Queue("a", parent="b"), Queue("b", parent="nobody"))
    for queue in ("a", "b"):
        assert tree.fault(queue) == (
            "parent of queue 'b' is 'nobody', which does not exist; "
            "create that queue or change the parent"
        )
    assert tree.path("a") == ("a", "b"), "what is known of it still counts"


def test_a_circle_of_parents_is_shown_and_every_queue_in_it_stands_alone() -> None:
    circle = (Queue("a", parent="b"), Queue("b", parent="a"), Queue("c", parent="a"))
    tree = a_tree(*circle, a={"gpu": 1}, b={"gpu": 2})
    assert tree.fault("c") == (
        "parent of queue 'c' leads in a circle, c -> a -> b -> a; take the parent from one of them"
    )
    assert tree.fault("a") is not None
    assert [tree.path(name) for name in "abc"] == [("a",), ("b",), ("c",)]
    assert tree.usage("a") == {"gpu": 1}
    assert a_tree(Queue("a", parent="a")).fault("a") is not None


def test_queues_nest_so_deep_and_no_deeper() -> None:
    chain = [Queue(f"q{i}", parent=f"q{i - 1}" if i else "") for i in range(MAX_LEVELS + 1)]
    tree = a_tree(*chain)
    assert tree.fault(f"q{MAX_LEVELS - 1}") is None
    assert tree.fault(f"q{MAX_LEVELS}") == (
        f"parent of queue 'q{MAX_LEVELS}' is 'q{MAX_LEVELS - 1}', which makes more than "
        f"{MAX_LEVELS} levels; nest queues less deeply"
    )


PARENTS = st.dictionaries(st.sampled_from("abcdef"), st.sampled_from(["", *"abcdefg"]))


@given(PARENTS)
def test_whatever_the_parents_are_every_path_ends_and_no_two_contradict_each_other(
    parents: dict[str, str],
) -> None:
    queues = {name: Queue(name, parent=parent) for name, parent in parents.items()}
    tree = QueueTree(queues, {}, {})
    for name, parent in parents.items():
        path = tree.path(name)
        assert len(set(path)) == len(path)
        assert path[0] == name
        if tree.fault(name) is None:
            assert path[1:] == (tree.path(parent) if parent else ())
            assert all(tree.fault(above) is None for above in path)


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"weight": 0}, r"weight of queue 'q' is 0; it must be at least 1"),
        ({"guaranteed": {"gpu": -1}}, r"guaranteed\['gpu'\] of queue 'q' is -1; .* at least 0"),
    ],
)
def test_a_queue_with_a_senseless_number_is_refused(
    fields: dict[str, object], problem: str
) -> None:
    with pytest.raises(SettingError, match=problem):
        Queue("q", **fields)  # type: ignore[arg-type]


# --- guarantees and shares --------------------------------------------------------------------


def test_a_branch_is_guaranteed_the_most_of_what_its_queue_states_and_those_below_sum_to() -> None:
    tree = a_tree(
        Queue("org", guaranteed={"gpu": 4, "cpu": 9}),
        Queue("a", parent="org", guaranteed={"gpu": 3}),
        Queue("b", parent="org", guaranteed={"gpu": 3, "cpu": 1}),
        Queue("c", parent="b", guaranteed={"gpu": 1}),
    )
    assert tree.guarantee("org") == {"gpu": 6, "cpu": 9}
    assert tree.guarantee("b") == {"gpu": 3, "cpu": 1}
    assert tree.has_guarantees


def test_no_branch_is_guaranteed_more_than_its_limit_and_zero_is_no_guarantee() -> None:
    tree = a_tree(
        Queue("org", limit={"gpu": 5}),
        Queue("a", parent="org", guaranteed={"gpu": 4}),
        Queue("b", parent="org", guaranteed={"gpu": 4, "cpu": 0}),
    )
    assert tree.guarantee("org") == {"gpu": 5}
    assert tree.guarantee("b") == {"gpu": 4}
    assert not a_tree(Queue("a", guaranteed={"gpu": 0})).has_guarantees


@pytest.mark.parametrize(
    ("demand", "is_within"),
    [
        pytest.param({"gpu": 2, "cpu": 2}, True, id="exactly"),
        pytest.param({"gpu": 3, "cpu": 1}, False, id="one-too-many"),
        pytest.param({"gpu": 1, "cpu": 3}, False, id="too-many-of-the-other"),
        pytest.param({"gpu": 1, "memory": HUGE}, True, id="what-it-does-not-name-is-not-counted"),
        pytest.param({"memory": 1}, False, id="asks-nothing-that-it-names"),
        pytest.param({"gpu": 0, "memory": 1}, False, id="asks-zero-of-what-it-names"),
    ],
)
def test_a_guarantee_covers_only_gangs_that_ask_what_it_names(
    demand: dict[str, int], is_within: bool
) -> None:
    tree = a_tree(Queue("q", guaranteed={"gpu": 4, "cpu": 4}), q={"gpu": 2, "cpu": 2})
    assert tree.is_within_guarantee("q", demand) is is_within
    assert not a_tree(Queue("q")).is_within_guarantee("q", demand)


def test_the_dominant_share_is_the_largest_part_of_any_resource_over_the_weight() -> None:
    plain = Queue("q")
    held = {"gpu": 20, "cpu": 50, "lost": 9}
    assert a_tree(plain, q=held).dominant_share("q") == 0.5
    assert a_tree(Queue("q", weight=5), q=held).dominant_share("q") == 0.1
    assert a_tree(plain).dominant_share("q") == 0.0
    assert a_tree(plain, total={"gpu": 0}, q=held).dominant_share("q") == 0.0
    assert a_tree(plain, gone=held).dominant_share("gone") == 0.5


def test_what_is_guaranteed_is_no_part_of_the_share() -> None:
    queue = Queue("q", guaranteed={"gpu": 15, "cpu": 60})
    assert a_tree(queue, q={"gpu": 20, "cpu": 50}).dominant_share("q") == 0.05


def test_equal_shares_are_equal_to_the_last_bit() -> None:
    heavy = a_tree(Queue("q", weight=3), q={"gpu": 30}).dominant_share("q")
    assert heavy == a_tree(Queue("q"), q={"gpu": 10}).dominant_share("q")
