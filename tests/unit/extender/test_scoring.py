"""Score mode: hard rules first, then whole points, and rules whenever a scorer fails."""

from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pytest

from bireme.core.policy import ScoreQuestion, Scorer
from bireme.core.resources import FloatArray
from bireme.kube import wire
from bireme.kube.cluster_state import ClusterState
from bireme.kube.cluster_usage import ClusterUsage
from bireme_extender import protocol, scoring
from bireme_extender.membership import Membership, Refusal, RefusalReason, membership
from bireme_extender.scoring import FeasibleNodes, NamedNodes, NodeChoice
from testbed.extender_calls import a_body, a_group, a_node, a_pod, a_state
from testbed.objects.facts import through_the_wire

PLACES = (("ps", "n0", "0"), ("worker", "n0", "0-7"))
NODES = [a_node(f"n{number}", rack=f"r{number // 2}") for number in range(6)]
ALL = [f"n{number}" for number in range(6)]


class Fixed:
    """A scorer that answers what it was given, wrong or not."""

    def __init__(self, answer: Callable[[ScoreQuestion], Any]) -> None:
        self.answer = answer

    def score(self, question: ScoreQuestion) -> FloatArray:
        return self.answer(question)  # type: ignore[no-any-return]  # wrong answers are the point


def chosen(state: ClusterState, pod: dict[str, Any]) -> FeasibleNodes | Refusal:
    decoded = msgspec.convert(pod, wire.V1Pod)
    found = membership(decoded, state)
    assert isinstance(found, Membership)
    return NodeChoice(state).feasible(decoded, found)


def named(found: FeasibleNodes, names: list[str]) -> NamedNodes:
    return NamedNodes.of(names, found.question.capacity.nodes.row)


def feasible(state: ClusterState, pod: dict[str, Any], asked: list[str] = ALL) -> list[str]:
    found = chosen(state, pod)
    assert isinstance(found, FeasibleNodes)
    return found.among(named(found, asked)).names


def test_unknown_names_and_duplicates_are_never_returned() -> None:
    state = a_state(NODES, [a_group(places=PLACES, mode="Score")])
    assert feasible(state, a_pod(), ["n3", "ghost", "n1", "n3", ""]) == ["n3", "n1"]


def test_full_cordoned_and_unready_nodes_are_left_out() -> None:
    full = [a_pod(i, group="x", node="n0", phase="Running") for i in range(8)]
    nodes = [*NODES[:4], a_node("n4", is_ready=False), a_node("n5", gpus=0)]
    nodes[1] = {**nodes[1], "spec": {"unschedulable": True}}
    state = a_state(nodes, [a_group(places=PLACES, mode="Score")], others=full)
    assert feasible(state, a_pod()) == ["n2", "n3"]


def test_planned_but_unbound_members_of_other_gangs_take_room() -> None:
    other = a_group("other", places=(("worker", "n2", "0-7"),))
    state = a_state(NODES, [a_group(places=PLACES, mode="Score"), other])
    assert feasible(state, a_pod()) == ["n0", "n1", "n3", "n4", "n5"]


def test_members_of_the_own_gang_take_room_only_once_they_are_bound() -> None:
    group = a_group(places=(("worker", "n0", "0-8"),), mode="Score")
    assert "n0" in feasible(a_state(NODES, [group]), a_pod())
    bound = [a_pod(i, node="n0", phase="Running") for i in range(1, 9)]
    assert "n0" not in feasible(a_state(NODES, [group], bound), a_pod())


def test_node_selector_affinity_and_tolerations_are_honoured() -> None:
    state = a_state(NODES, [a_group(places=PLACES, mode="Score")])
    pod = a_pod(nodeSelector={"topology.bireme.dev/rack": "r1"})
    assert feasible(state, pod) == ["n2", "n3"]
    pin = {"key": "metadata.name", "operator": "In", "values": ["n4"]}
    required = {"nodeSelectorTerms": [{"matchFields": [pin]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    assert feasible(state, a_pod(affinity=affinity)) == ["n4"]


def test_operator_of_a_later_kubernetes_is_refused_not_ignored() -> None:
    state = a_state(NODES, [a_group(places=PLACES, mode="Score")])
    term = {"matchExpressions": [{"key": "a", "operator": "Resembles", "values": ["b"]}]}
    required = {"nodeSelectorTerms": [term]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    found = chosen(state, a_pod(affinity=affinity))
    assert isinstance(found, Refusal)
    assert found.reason is RefusalReason.CONSTRAINTS_UNREADABLE
    assert "Resembles" in found.message


def best_of(state: ClusterState, pod: dict[str, Any], scorer: Scorer | None = None) -> Any:
    found = chosen(state, pod)
    assert isinstance(found, FeasibleNodes)
    among = found.among(named(found, ALL))
    scores, fault = scoring.scores_for(found, among, scorer or scoring._DEFAULT_SCORER)
    return scoring.points(among.names, scores), fault


def test_tightest_node_wins_before_any_member_is_bound() -> None:
    busy = [a_pod(i, group="x", node="n3", phase="Running") for i in range(5)]
    state = a_state(NODES, [a_group(places=PLACES, mode="Score")], others=busy)
    ranked, fault = best_of(state, a_pod())
    assert ranked[0][0] == "n3"
    assert ranked[0][1] > ranked[1][1]
    assert not fault


def test_nodes_near_bound_members_win_over_tight_ones() -> None:
    busy = [a_pod(i, group="x", node="n5", phase="Running") for i in range(6)]
    bound = [a_pod(1, node="n2", phase="Running")]
    state = a_state(NODES, [a_group(places=PLACES, mode="Score")], bound, busy)
    ranked, _ = best_of(state, a_pod())
    assert [name for name, _ in ranked[:2]] == ["n2", "n3"]


def test_worker_goes_to_the_parameter_server_and_server_away_from_servers() -> None:
    places = (("ps", "n0", "0-1"), ("worker", "n0", "0-7"))
    bound = [a_pod(0, task="ps", node="n4", phase="Running")]
    state = a_state(NODES, [a_group(places=places, mode="Score")], bound)
    assert best_of(state, a_pod())[0][0][0] == "n4"
    both = [*bound, a_pod(0, node="n4", phase="Running"), a_pod(1, node="n5", phase="Running")]
    state = a_state(NODES, [a_group(places=places, mode="Score")], both)
    assert best_of(state, a_pod(1, task="ps"))[0][0][0] == "n5"


def test_scores_are_whole_points_in_range_and_sixteen_at_most() -> None:
    nodes = [a_node(f"n{number}") for number in range(50)]
    state = a_state(nodes, [a_group(places=PLACES, mode="Score")])
    found = chosen(state, a_pod())
    assert isinstance(found, FeasibleNodes)
    among = found.among(named(found, [node["metadata"]["name"] for node in nodes]))
    ranked = scoring.points(among.names, np.linspace(0, 1, 50))
    assert len(ranked) == 16
    assert ranked[0] == ("n49", 10)
    assert all(type(score) is int and 0 <= score <= 10 for _, score in ranked)


def raises(question: ScoreQuestion) -> FloatArray:
    raise RuntimeError("no such tensor")


@pytest.mark.parametrize(
    ("answer", "fault"),
    [
        (raises, "RuntimeError: no such tensor"),
        (lambda q: np.full(len(q.rows), np.nan), "not all finite"),
        (lambda q: np.full(len(q.rows), np.inf), "not all finite"),
        (lambda q: np.full(len(q.rows), 1.5), "from 1.5 to 1.5"),
        (lambda q: np.full(len(q.rows), -0.1), "from -0.1"),
        (lambda q: np.zeros(len(q.rows) + 1), "shape (7,)"),
        (lambda q: np.zeros(len(q.rows), dtype=np.int64), "no float64 array"),
        (lambda q: [0.5] * len(q.rows), "no float64 array"),
        (lambda _: None, "no float64 array"),
    ],
)
def test_bad_answer_of_a_scorer_is_replaced_by_the_rules(
    answer: Callable[[ScoreQuestion], Any], fault: str
) -> None:
    busy = [a_pod(i, group="x", node="n3", phase="Running") for i in range(5)]
    state = a_state(NODES, [a_group(places=PLACES, mode="Score")], others=busy)
    replaced = best_of(state, a_pod(), Fixed(answer))
    assert replaced[0] == best_of(state, a_pod())[0]
    assert fault in replaced[1]


def test_good_answer_of_a_scorer_is_taken() -> None:
    state = a_state(NODES, [a_group(places=PLACES, mode="Score")])
    scorer = Fixed(lambda q: np.where(q.rows == 4, 1.0, 0.24))
    assert best_of(state, a_pod(), scorer) == (
        [("n4", 10), ("n0", 2), ("n1", 2), ("n2", 2), ("n3", 2), ("n5", 2)],
        "",
    )


def test_nothing_feasible_scores_nothing() -> None:
    state = a_state([a_node("n0", is_ready=False)], [a_group(places=PLACES, mode="Score")])
    assert best_of(state, a_pod()) == ([], "")


def test_kept_choice_follows_every_change_of_the_cluster() -> None:
    random = np.random.default_rng(17)
    nodes = [a_node(f"n{number}", gpus=3) for number in range(6)]
    groups = [a_group(name, places=PLACES, mode="Score") for name in ("job", "other")]
    state = a_state(nodes, groups)
    kept, pod = NodeChoice(state), msgspec.convert(a_pod(), wire.V1Pod)
    for step in range(300):
        name, node = f"p{random.integers(8)}", f"n{random.integers(6)}"
        match random.integers(6):
            case 0:
                member = a_pod(int(random.integers(8)), group=str(random.choice(["job", "other"])))
                bound = {**member, "spec": {**member["spec"], "nodeName": node}}
                state.objects.put_member(
                    ("team", member["metadata"]["name"]), msgspec.convert(bound, wire.V1Pod)
                )
            case 1:
                pod_name = f"job-worker-{random.integers(8)}"
                state.objects.delete_member(("team", pod_name))
            case 2:
                other = a_pod(0, group=None, node=node, phase="Running")
                state.objects.put_other_pod(("x", name), msgspec.convert(other, wire.V1Pod))
            case 3:
                state.objects.delete_other_pod(("x", name))
            case 4:
                state.objects.delete_group(("team", "other"))
            case 5:
                state.objects.put_group(
                    ("team", "other"), through_the_wire(groups[1], wire.CustomObject)
                )
        found = membership(pod, state)
        assert isinstance(found, Membership)
        ours, anew = kept.feasible(pod, found), NodeChoice(state).feasible(pod, found)
        assert isinstance(ours, FeasibleNodes)
        assert isinstance(anew, FeasibleNodes)
        assert ours.takes.tolist() == anew.takes.tolist(), step
        assert ours.question.capacity.free.tolist() == anew.question.capacity.free.tolist()
        assert (
            ours.question.capacity.tightness.tolist() == anew.question.capacity.tightness.tolist()
        )
        fresh = ClusterUsage(
            *(state.objects, state.views, state.running, state.demands, state.nodes),
            *(state.volumes, state.devices, state.quotas, state.changes),
        )
        assert (fresh.without(found.group) == state.usage.without(found.group)).all()


def test_lists_of_whole_nodes_are_read_anew_in_every_call() -> None:
    state = a_state(NODES, [a_group(places=PLACES, mode="Score")])
    choice = NodeChoice(state)
    for name in ALL:
        nodes = {"items": [{"metadata": {"name": name}}]}
        args = protocol.decode(a_body(a_pod(), None, nodes))
        assert choice.nodes_of(args).names == [name]


def test_best_nodes_are_those_that_sorting_all_would_give() -> None:
    random = np.random.default_rng(5)
    for count in (1, 15, 16, 17, 100, 1000):
        scores = random.integers(0, 12, count) / 11
        names = [f"n{number}" for number in range(count)]
        ranked = np.argsort(-scores, kind="stable")[: scoring.SCORED_NODES]
        expected = [(names[at], round(float(scores[at]) * 10)) for at in ranked]
        assert scoring.points(names, scores) == expected
