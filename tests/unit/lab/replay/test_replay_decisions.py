"""Decision by decision: the policy of the record does as recorded, and others differ in words."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bireme.core.settings import SchedulingSettings
from bireme.core.snapshot import ClusterSnapshot
from bireme.registry import make_policy
from bireme.replay.reader import open_record
from bireme.replay.record import Outline
from bireme.testing import a_gang, a_node, a_running, a_snapshot, a_task, with_running
from bireme_lab.replay.decisions import KINDS, DecisionComparison, differences
from testbed.examples import examples
from testbed.recordings import RecordedCluster, record
from testbed.workloads import ELASTIC, NODES, PATIENT, QUEUES, Arrival, arrivals
from testbed.workloads import KINDS as SHAPES

PLAIN = SchedulingSettings()


def against(folder: Path, settings: SchedulingSettings) -> DecisionComparison:
    """The policy of ``settings`` against the record in ``folder``."""
    comparison, found, policy = DecisionComparison(), open_record([folder]), make_policy(settings)
    for cycle in found.cycles():
        comparison.compare(cycle, found.place, policy)
    return comparison


def changed(comparison: DecisionComparison) -> dict[str, int]:
    return {kind: count for kind, count in comparison.counts.items() if count}


@pytest.mark.parametrize("orderer", ["combined-priority", "srtf", "tiresias-las"])
@examples(10)
@given(todo=arrivals((*SHAPES, *ELASTIC), tuple(q.name for q in QUEUES), (1.0, None)))
def test_policy_decides_its_own_record_as_it_did(
    orderer: str, todo: list[Arrival], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("record")
    chosen = replace(PATIENT, orderer=orderer)
    world = RecordedCluster(NODES, settings=chosen, queues=QUEUES, stop_seconds=3.0, folder=folder)
    for at, gang, seconds in todo:
        world.advance(float(at))
        world.submit(gang, seconds)
        world.decide()
    world.writer.close()
    comparison = against(folder, chosen)
    assert comparison.same == comparison.cycles > 0
    assert not changed(comparison)


def contested(*, priority: int = 1000) -> ClusterSnapshot:
    """One node that two gangs need whole, the important one having come later."""
    old = a_gang("old", a_task(8), arrived=0.0)
    new = a_gang("new", a_task(8), arrived=5.0, priority=priority)
    return a_snapshot([a_node("n0")], old, new, now=10.0)


def test_other_start_is_reported_from_both_sides_with_the_gangs_names(tmp_path: Path) -> None:
    record(tmp_path, contested())
    comparison = against(tmp_path, replace(PLAIN, orderer="fifo"))
    assert (comparison.cycles, comparison.same) == (1, 0)
    assert changed(comparison) == {"starts": 1, "missing_starts": 1}
    (example,) = comparison.examples
    assert example.gangs == {"starts": ("default/old",), "missing_starts": ("default/new",)}
    assert example.place.endswith("record-00000001.jsonl line 2")


def test_stop_that_another_policy_would_not_make_is_missing(tmp_path: Path) -> None:
    bare = a_snapshot([a_node("n0")], a_gang("new", a_task(8), priority=1000), now=1000.0)
    runs = a_running(a_gang("old", a_task(8)), bare.nodes, {"n0": 8})
    record(tmp_path, with_running(bare, runs))
    comparison = against(tmp_path, replace(PLAIN, orderer="fifo"))
    assert changed(comparison)["missing_stops"] == 1


def test_start_on_other_nodes_is_counted_apart(tmp_path: Path) -> None:
    nodes = [a_node("n0"), a_node("n1", 4)]
    record(tmp_path, a_snapshot(nodes, a_gang("one", a_task(2))))
    comparison = against(tmp_path, replace(PLAIN, placer="first-fit"))
    assert changed(comparison) == {"other_places": 1}


def test_cycle_that_differs_in_its_order_alone_is_not_the_same(tmp_path: Path) -> None:
    nodes = [a_node("n0", 0)]
    first = a_gang("first", arrived=0.0)
    second = a_gang("second", arrived=1.0, priority=1000)
    record(tmp_path, a_snapshot(nodes, first, second, now=2.0))
    comparison = against(tmp_path, replace(PLAIN, orderer="fifo"))
    assert (comparison.same, changed(comparison), comparison.examples) == (0, {}, [])


def test_every_kind_is_explained_where_users_read_of_it() -> None:
    page = Path(__file__).parents[4] / "docs" / "replay.md"
    text = page.read_text(encoding="utf-8")
    assert [kind for kind in KINDS if f"`{kind}`" not in text] == []


PLACES = {"worker": {"n0": 1}}
OUTLINES = st.builds(
    Outline,
    digest=st.just(""),
    starts=st.dictionaries(st.sampled_from("abc"), st.just(PLACES)),
    resizes=st.dictionaries(st.sampled_from("de"), st.just(PLACES)),
    stops=st.dictionaries(st.sampled_from("de"), st.sampled_from("abc")),
    holds=st.dictionaries(st.sampled_from("abc"), st.sampled_from(("x", "y"))),
    growth=st.dictionaries(st.sampled_from("abc"), st.just({"pool": 1})),
)


@given(OUTLINES, OUTLINES)
def test_differences_are_mirrored_when_the_sides_are(one: Outline, other: Outline) -> None:
    there, back = differences(one, other), differences(other, one)
    assert there.keys() == KINDS.keys()
    assert there["starts"] == back["missing_starts"]
    assert there["stops"] == back["missing_stops"]
    for kind in ("other_places", "resizes", "other_reasons", "other_growth"):
        assert there[kind] == back[kind]
    assert not any(differences(one, one).values())
