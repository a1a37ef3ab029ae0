"""Every promise the history checker knows is broken here once, and must be caught by name."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.history.amounts import amount, request_of, shown
from tests.support.history.observer import INVARIANTS, check
from tests.support.history.records import Manifest, in_order, read, to_line
from tests.unit.tools.history_builder import Story, meta, pod


@pytest.fixture
def story() -> Story:
    story = Story()
    story.node("n0", rack="r0")
    story.node("n1", rack="r1")
    return story


def test_gang_that_runs_and_ends_breaks_no_promise(story: Story) -> None:
    story.job("Pending")
    story.gang("n0", "n1")
    story.wait(60)
    story.pod("0", "n0", "Succeeded")
    story.wait(60)
    story.pod("1", "n1", "Succeeded")
    story.job("Succeeded")
    story.plan(None)
    story.wait(60)
    assert check(story.records, settled=True) == []


def overcommit(story: Story) -> None:
    story.gang("n0", "n0")
    story.pod("2", "n0", "Running", gpus=7, gang="other", plan="")


def overcommit_of_pods_that_end_slowly(story: Story) -> None:
    story.gang("n0", "n0")
    story.pod("0", "n0", "Running", gpus=8, leaving=True)
    story.pod("2", "n0", "Running", gang="other", plan="")


def unknown_resource(story: Story) -> None:
    manifest = pod("0", "n0", "Running", gang="")
    manifest["spec"]["containers"][0]["resources"]["limits"] = {"example.com/fpga": 1}
    story.tell("Pod", manifest)


def queue_limit(story: Story) -> None:
    story.queue("q", gpus=2)
    story.gang("n0", "n0")
    story.plan({"0": "n1"}, name="k")
    story.pod("0", "n1", gang="k")


def partial_gang(story: Story) -> None:
    story.plan({"0": "n0", "1": "n1"})
    story.pod("0", "n0")
    story.pod("1")
    story.wait(11)
    story.pod("1", "n1")


def partial_gang_after_a_loss(story: Story) -> None:
    story.gang("n0", "n1")
    story.pod("1", "n1", "Failed")
    story.wait(11)


def twin(story: Story) -> None:
    story.gang("n0", "n1")
    story.pod("1", "n1", "Running", uid="twin", name="j-worker-1-b")


def replica_made_again(story: Story) -> None:
    story.gang("n0", "n1")
    story.pod("1", "n1", "Running", change="DELETED")
    story.pod("1", "n1", "Running", uid="again", change="ADDED")


def two_plans(story: Story) -> None:
    story.gang("n0", "n1")
    story.plan({"0": "n0", "1": "n1", "2": "n1"}, attempt=1)
    story.pod("2", "n1", "Running", plan="1.1")


def wrong_node(story: Story) -> None:
    story.plan({"0": "n0", "1": "n0"})
    story.pod("0", "n1")


def no_plan(story: Story) -> None:
    story.gang("n0", "n0")
    story.plan(None)
    story.pod("2", "n0")


def servers_elsewhere(story: Story) -> None:
    story.plan({"0": "n1"})
    story.tell("Pod", pod("0", "n0", "Running", role="ps", gang="x"))
    story.pod("0", "n1", "Running", gang="x")
    wish = {"mode": "Required", "topologyKey": "rack"}
    story.job("Running", name="x", roleAffinity=wish)


def server_left_over(story: Story) -> None:
    story.gang("n0", "n1")
    story.job("Succeeded")
    story.wait(11)


def deposed_leader(story: Story) -> None:
    story.plan({"0": "n0"}, epoch=2)
    story.plan({"0": "n0"}, epoch=1, name="k")


def comes_back(story: Story) -> None:
    story.job("Succeeded")
    story.job("Pending")


def counts_down(story: Story) -> None:
    story.job("Pending", attempt=2)
    story.job("Pending", attempt=1)


def vanishes(story: Story) -> None:
    story.job("Running")
    last = story.records[-1]
    story.tell("TrainingJob", last.manifest, "DELETED")


def runs_without_replicas(story: Story) -> None:
    story.job("Running")
    story.wait(11)


SEEDED: list[tuple[Callable[[Story], None], str]] = [
    (overcommit, "node-overcommitted"),
    (overcommit_of_pods_that_end_slowly, "node-overcommitted"),
    (unknown_resource, "node-overcommitted"),
    (queue_limit, "queue-limit-exceeded"),
    (partial_gang, "gang-partial"),
    (partial_gang_after_a_loss, "gang-partial"),
    (twin, "replica-twice"),
    (replica_made_again, "replica-twice"),
    (two_plans, "plans-mixed"),
    (wrong_node, "off-plan"),
    (no_plan, "off-plan"),
    (servers_elsewhere, "role-affinity-broken"),
    (server_left_over, "replica-left-over"),
    (deposed_leader, "epoch-went-back"),
    (comes_back, "job-went-back"),
    (counts_down, "job-went-back"),
    (vanishes, "job-lost"),
    (runs_without_replicas, "job-lost"),
]


@pytest.mark.parametrize(("tell", "invariant"), SEEDED, ids=[t.__name__ for t, _ in SEEDED])
def test_seeded_violation_is_caught(
    story: Story, tell: Callable[[Story], None], invariant: str
) -> None:
    tell(story)
    assert invariant in story.broken()


def test_every_invariant_has_a_seeded_violation() -> None:
    assert {invariant for _, invariant in SEEDED} == set(INVARIANTS)


def test_violation_says_when_where_and_how_much(story: Story) -> None:
    overcommit(story)
    (found,) = [v for v in check(story.records) if v.invariant == "node-overcommitted"]
    assert "node n0: 9 used, 8 there of nvidia.com/gpu with pod other-worker-2" in str(found)
    assert found.revision == len(story.records)
    assert f"{found.seconds:.2f} s" in str(found)


def test_partial_gang_within_the_grace_time_is_no_violation(story: Story) -> None:
    partial_gang(story)
    assert story.broken(grace_seconds=12) == set()


def test_partial_gang_is_told_once(story: Story) -> None:
    story.plan({"0": "n0", "1": "n1"})
    story.pod("0", "n0")
    for _ in range(4):
        story.wait(20)
    assert [v.invariant for v in check(story.records)] == ["gang-partial"]


def test_job_deleted_by_its_user_is_not_lost(story: Story) -> None:
    vanishes(story)
    assert story.broken(removed={("ns", "j")}) == set()


@pytest.mark.parametrize("phase", ["Starting", "Running", "Restarting"])
def test_job_left_halfway_at_the_end_is_lost(story: Story, phase: str) -> None:
    story.job(phase)
    assert story.broken() == set()
    assert story.broken(settled=True) == {"job-lost"}


def test_preempted_job_that_waits_for_its_turn_is_not_lost(story: Story) -> None:
    status = {"phase": "Restarting", "reason": "WaitingForCapacity", "message": "full"}
    story.tell("TrainingJob", meta("j") | {"spec": {}, "status": status})
    assert story.broken(settled=True) == {"job-lost"}, "it has no place in the queue"
    story.tell("TrainingJob", meta("j") | {"spec": {}, "status": {**status, "queuePosition": 1}})
    assert story.broken(settled=True) == set()


def test_job_that_waits_must_say_why(story: Story) -> None:
    story.tell("TrainingJob", meta("mute") | {"spec": {}})
    assert story.broken(settled=True) == {"job-lost"}
    story.tell("TrainingJob", meta("mute") | {"spec": {}}, "DELETED")
    story.job("Pending")
    assert story.broken(settled=True, removed={("ns", "mute")}) == set()


def test_replica_may_come_back_with_a_new_plan(story: Story) -> None:
    story.gang("n0", "n1")
    story.pod("0", "n0", "Running", change="DELETED")
    story.pod("1", "n1", "Running", change="DELETED")
    story.plan(None)
    story.plan({"0": "n0", "1": "n1"}, attempt=1)
    story.pod("0", "n0", "Running", uid="second-0", plan="1.1")
    story.pod("1", "n1", "Running", uid="second-1", plan="1.1")
    assert story.broken() == set()


def test_member_on_its_way_follows_the_plan_that_its_deleted_gang_had(story: Story) -> None:
    story.plan({"0": "n0", "1": "n1"})
    story.tell("PodGroup", story.records[-1].manifest, "DELETED")
    story.pod("0", "n0")
    assert story.broken() == set()
    story.wait(10)
    story.pod("1", "n1")
    assert story.broken() == {"off-plan"}, "too late to have been on its way"


def test_pods_of_other_controllers_are_found_in_the_plan_by_uid(story: Story) -> None:
    story.plan({})
    group = story.records[-1].manifest
    group["status"]["plan"]["placements"] = [{"task": "pod", "pods": ["u1"], "node": "n0"}]
    story.tell("PodGroup", group)
    story.pod("", "n0", uid="u1", plan="")
    assert story.broken() == set()
    story.pod("", "n1", uid="u2", name="stranger", plan="")
    assert story.broken() == {"off-plan"}


def test_records_are_judged_in_the_order_of_revisions(story: Story) -> None:
    story.gang("n0", "n1")
    assert check(reversed(story.records)) == check(story.records) == []
    seconds = [record.seconds for record in in_order(reversed(story.records))]
    assert seconds == sorted(seconds)


def test_file_gives_back_what_was_recorded_but_a_line_cut_short(
    story: Story, tmp_path: Path
) -> None:
    story.gang("n0", "n1")
    path = tmp_path / "tests.support.history.jsonl"
    path.write_text("".join(map(to_line, story.records)) + '{"seconds": 1')
    assert read(path) == story.records


@pytest.mark.parametrize(
    ("quantity", "value"),
    [("4", 4), ("500m", 0.5), ("1Ki", 1024), ("2k", 2000), ("1.5Gi", 1.5 * 2**30), ("1e3", 1000)],
)
def test_quantities_are_read_as_kubernetes_reads_them(quantity: str, value: float) -> None:
    assert amount(quantity) == value


def test_quantity_that_is_none_is_refused_with_its_text() -> None:
    with pytest.raises(ValueError, match="'8 GB'"):
        amount("8 GB")


def test_request_counts_sidecars_init_containers_and_overhead() -> None:
    def container(cpu: str, **fields: str) -> Manifest:
        return {"resources": {"requests": {"cpu": cpu}}, **fields}

    spec = {
        "initContainers": [container("1", restartPolicy="Always"), container("4")],
        "containers": [container("2")],
        "overhead": {"cpu": "500m"},
    }
    asked = request_of(spec)
    assert {name: shown(value) for name, value in asked.items()} == {"cpu": "5.5", "pods": "1"}
