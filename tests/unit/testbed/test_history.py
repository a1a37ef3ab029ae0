"""Every promise the history checker knows is broken here once, and must be caught by name."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from testbed.history.amounts import amount, request_of, shown
from testbed.history.builder import HistoryBuilder, meta, plan, pod
from testbed.history.observed import ObservedCluster
from testbed.history.observer import (
    BUDGET_PATIENCE_SECONDS,
    INVARIANTS,
    check,
    miscounted,
    restless,
)
from testbed.history.records import Key, Manifest, in_order, read, to_line


@pytest.fixture
def history() -> HistoryBuilder:
    history = HistoryBuilder()
    history.node("n0", rack="r0")
    history.node("n1", rack="r1")
    return history


def test_gang_that_runs_and_ends_breaks_no_promise(history: HistoryBuilder) -> None:
    history.job("Pending")
    history.gang("n0", "n1")
    history.wait(60)
    history.pod("0", "n0", "Succeeded")
    history.wait(60)
    history.pod("1", "n1", "Succeeded")
    history.job("Succeeded")
    history.plan(None)
    history.wait(60)
    assert check(history.records, settled=True) == []


def overcommit(history: HistoryBuilder) -> None:
    history.gang("n0", "n0")
    history.pod("2", "n0", "Running", gpus=7, gang="other", plan="")


def overcommit_of_pods_that_end_slowly(history: HistoryBuilder) -> None:
    history.gang("n0", "n0")
    history.pod("0", "n0", "Running", gpus=8, leaving=True)
    history.pod("2", "n0", "Running", gang="other", plan="")


def unknown_resource(history: HistoryBuilder) -> None:
    manifest = pod("0", "n0", "Running", gang="")
    manifest["spec"]["containers"][0]["resources"]["limits"] = {"example.com/fpga": 1}
    history.add("Pod", manifest)


def queue_limit(history: HistoryBuilder) -> None:
    history.queue("q", gpus=2)
    history.gang("n0", "n0")
    history.plan({"0": "n1"}, name="k")
    history.pod("0", "n1", gang="k")


def partial_gang(history: HistoryBuilder) -> None:
    history.plan({"0": "n0", "1": "n1"})
    history.pod("0", "n0")
    history.pod("1")
    history.wait(11)
    history.pod("1", "n1")


def partial_gang_after_a_loss(history: HistoryBuilder) -> None:
    history.gang("n0", "n1")
    history.pod("1", "n1", "Failed")
    history.wait(11)


def half_stopped(history: HistoryBuilder, kept_seconds: float) -> None:
    """One of two replicas of a stopped gang is kept for so long, and then goes."""
    history.gang("n0", "n1")
    history.job("Restarting", attempt=1)
    history.pod("1", "n1", "Running", change="DELETED")
    history.wait(kept_seconds)
    history.pod("0", "n0", "Running", leaving=True)


def half_stopped_for_ever(history: HistoryBuilder) -> None:
    half_stopped(history, BUDGET_PATIENCE_SECONDS + 11)


def twin(history: HistoryBuilder) -> None:
    history.gang("n0", "n1")
    history.pod("1", "n1", "Running", uid="twin", name="j-worker-1-b")


def replica_made_again(history: HistoryBuilder) -> None:
    history.gang("n0", "n1")
    history.pod("1", "n1", "Running", change="DELETED")
    history.pod("1", "n1", "Running", uid="again", change="ADDED")


def two_plans(history: HistoryBuilder) -> None:
    history.gang("n0", "n1")
    history.plan({"0": "n0", "1": "n1", "2": "n1"}, attempt=1)
    history.pod("2", "n1", "Running", plan="1.1")


def wrong_node(history: HistoryBuilder) -> None:
    history.plan({"0": "n0", "1": "n0"})
    history.pod("0", "n1")


def no_plan(history: HistoryBuilder) -> None:
    history.gang("n0", "n0")
    history.plan(None)
    history.pod("2", "n0")


def servers_elsewhere(history: HistoryBuilder) -> None:
    history.plan({"0": "n1"})
    history.add("Pod", pod("0", "n0", "Running", role="ps", gang="x"))
    history.pod("0", "n1", "Running", gang="x")
    wish = {"mode": "Required", "topologyKey": "rack"}
    history.job("Running", name="x", roleAffinity=wish)


def server_left_over(history: HistoryBuilder) -> None:
    history.gang("n0", "n1")
    history.job("Succeeded")
    history.wait(11)


def deposed_leader(history: HistoryBuilder) -> None:
    history.plan({"0": "n0"}, epoch=2)
    history.plan({"0": "n0"}, epoch=1, name="k")


def comes_back(history: HistoryBuilder) -> None:
    history.job("Succeeded")
    history.job("Pending")


def counts_down(history: HistoryBuilder) -> None:
    history.job("Pending", attempt=2)
    history.job("Pending", attempt=1)


def vanishes(history: HistoryBuilder) -> None:
    history.job("Running")
    last = history.records[-1]
    history.add("TrainingJob", last.manifest, "DELETED")


def runs_without_replicas(history: HistoryBuilder) -> None:
    history.job("Running")
    history.wait(11)


def waiting(replicas: int = 2, gpus: int = 1, phase: str = "Pending", **fields: Any) -> Manifest:
    """The first job in line, which waits for room."""
    container = {"resources": {"limits": {"nvidia.com/gpu": gpus}}}
    template = {"spec": {"containers": [container], **fields}}
    status: Manifest = {"phase": phase, "reason": "WaitingForCapacity", "message": "full"}
    status["queuePosition"] = 1
    workers = {"name": "worker", "replicas": replicas, "template": template}
    return meta("waits") | {"spec": {"tasks": [workers]}, "status": status}


def keeps_its_places(history: HistoryBuilder) -> None:
    history.gang("n0", "n1")
    history.plan(None)
    history.job("Pending")


def keeps_its_plan(history: HistoryBuilder) -> None:
    history.plan({"0": "n0", "1": "n1"})


def waits_for_what_is_there(history: HistoryBuilder) -> None:
    history.pod("2", "n0", "Running", gpus=7, gang="", plan="")
    history.add("TrainingJob", waiting(9))


def in_line(
    history: HistoryBuilder, name: str, *, position: int = 1, second: int = 0, **spec: Any
) -> None:
    """A job of two workers, made in ``second``, that waits for room, or another ``spec``."""
    job = waiting(17)
    job["status"]["queuePosition"] = position
    about = meta(name, creationTimestamp=f"2026-11-01T08:00:{second:02}Z")
    history.add("TrainingJob", {**job, **about, "spec": {**job["spec"], **spec}})


def start(history: HistoryBuilder, name: str) -> None:
    """The same job with a plan."""
    last = next(r.manifest for r in reversed(history.records) if r.key == ("ns", name))
    status = {"phase": "Starting", "attempt": 0, "plan": plan({"0": "n0"})}
    history.add("TrainingJob", {**last, "status": status})


def younger_starts(history: HistoryBuilder) -> None:
    in_line(history, "older")
    in_line(history, "younger", position=2, second=1)
    start(history, "younger")


def younger_first(history: HistoryBuilder) -> None:
    younger_starts(history)
    history.wait(6)


def gate_is_kept(history: HistoryBuilder) -> None:
    places = [{"task": "pod", "pods": ["u1"], "node": "n0"}]
    status = {"phase": "Inqueue", "plan": {**plan({}), "placements": places}}
    history.add("PodGroup", meta("j") | {"spec": {"minMember": 1}, "status": status})
    manifest = pod("", "", "Pending", uid="u1", plan="")
    manifest["spec"]["schedulingGates"] = [{"name": "bireme.dev/plan"}]
    history.add("Pod", manifest)
    history.wait(11)


def runs_without_a_plan(history: HistoryBuilder) -> None:
    history.add("PodGroup", meta("j") | {"spec": {"minMember": 1}})
    manifest = pod("", "n0", "Running", uid="u1", plan="")
    manifest["metadata"]["labels"]["bireme.dev/queue"] = "default"
    history.add("Pod", manifest)
    history.wait(11)


def ended_with_a_plan(history: HistoryBuilder) -> None:
    history.gang("n0", "n1")
    history.pod("0", "n0", "Succeeded")
    history.pod("1", "n1", "Succeeded")
    history.job("Succeeded")


def names_a_job_of_others(history: HistoryBuilder) -> None:
    history.add("TrainingJob", waiting() | {"metadata": {"name": "rival", "namespace": "team-b"}})
    told = waiting()
    told["status"]["message"] = "would take places kept for team-b/rival"
    history.add("TrainingJob", told)


def names_a_pod_of_others_in_an_event(history: HistoryBuilder) -> None:
    history.pod("0", "n0", "Running")
    event = {"involvedObject": {"kind": "Queue", "name": "q"}, "message": "j-worker-0 is too large"}
    source = {"source": {"component": "bireme-operator"}}
    history.add("Event", meta("q.1") | event | source)


def names_a_namespace_on_a_policy(history: HistoryBuilder) -> None:
    group = meta("g", namespace="team-b") | {"spec": {"minMember": 1}}
    history.add("PodGroup", group)
    degraded = {"type": "Degraded", "message": "the placer failed for a gang of team-b"}
    status = {"status": {"conditions": [degraded]}}
    history.add("SchedulingPolicy", meta("p", namespace="") | status)


SEEDED: list[tuple[Callable[[HistoryBuilder], None], str]] = [
    (overcommit, "node-overcommitted"),
    (overcommit_of_pods_that_end_slowly, "node-overcommitted"),
    (unknown_resource, "node-overcommitted"),
    (queue_limit, "queue-limit-exceeded"),
    (partial_gang, "gang-partial"),
    (partial_gang_after_a_loss, "gang-partial"),
    (half_stopped_for_ever, "half-stopped"),
    (twin, "replica-twice"),
    (replica_made_again, "replica-twice"),
    (two_plans, "plans-mixed"),
    (wrong_node, "off-plan"),
    (no_plan, "off-plan"),
    (servers_elsewhere, "role-affinity-broken"),
    (server_left_over, "replica-left-over"),
    (younger_first, "overtaken"),
    (gate_is_kept, "gate-left-over"),
    (runs_without_a_plan, "gang-unadopted"),
    (deposed_leader, "epoch-went-back"),
    (comes_back, "job-went-back"),
    (counts_down, "job-went-back"),
    (vanishes, "job-lost"),
    (runs_without_replicas, "job-lost"),
    (keeps_its_places, "places-kept"),
    (keeps_its_plan, "places-kept"),
    (ended_with_a_plan, "plan-left-over"),
    (waits_for_what_is_there, "waits-in-vain"),
    (names_a_job_of_others, "names-leaked"),
    (names_a_pod_of_others_in_an_event, "names-leaked"),
    (names_a_namespace_on_a_policy, "names-leaked"),
]


@pytest.mark.parametrize(("tell", "invariant"), SEEDED, ids=[t.__name__ for t, _ in SEEDED])
def test_seeded_violation_is_caught(
    history: HistoryBuilder, tell: Callable[[HistoryBuilder], None], invariant: str
) -> None:
    tell(history)
    assert invariant in history.broken(settled=True)


def test_every_invariant_has_a_seeded_violation() -> None:
    counted = {"usage-left-over"}  # as it is at the end, not revision by revision
    assert {invariant for _, invariant in SEEDED} == set(INVARIANTS) - counted


def nobody_was_before(history: HistoryBuilder) -> None:
    in_line(history, "first")
    start(history, "first")
    in_line(history, "second")


def both_in_one_cycle(history: HistoryBuilder) -> None:
    in_line(history, "older")
    in_line(history, "younger", second=1)
    start(history, "younger")
    start(history, "older")


def asks_for_something_else(history: HistoryBuilder) -> None:
    in_line(history, "older")
    in_line(history, "younger", second=1, estimatedDuration="5m")
    start(history, "younger")


def has_run_before(history: HistoryBuilder) -> None:
    in_line(history, "older")
    older = history.records[-1].manifest
    history.add("TrainingJob", older | {"status": older["status"] | {"preemptions": 1}})
    in_line(history, "younger", second=1)
    start(history, "younger")


def is_edited(history: HistoryBuilder) -> None:
    in_line(history, "older")
    older = history.records[-1].manifest
    edited = older["metadata"] | {"generation": 2}
    history.add("TrainingJob", older | {"metadata": edited})
    in_line(history, "younger", second=1)
    start(history, "younger")


def came_in_one_second(history: HistoryBuilder) -> None:
    in_line(history, "older")
    in_line(history, "younger", position=2)
    start(history, "younger")


def is_deleted_then(history: HistoryBuilder) -> None:
    younger_starts(history)
    older = next(r.manifest for r in history.records if r.key == ("ns", "older"))
    history.add("TrainingJob", older, "DELETED")


FAIR: list[Callable[[HistoryBuilder], None]] = [
    nobody_was_before,
    both_in_one_cycle,
    came_in_one_second,
    asks_for_something_else,
    has_run_before,
    is_edited,
    is_deleted_then,
]


@pytest.mark.parametrize("tell", FAIR)
def test_who_came_later_may_start_first_where_that_is_not_all(
    history: HistoryBuilder, tell: Callable[[HistoryBuilder], None]
) -> None:
    tell(history)
    history.wait(60)
    assert "overtaken" not in history.broken()


def test_who_was_overtaken_is_named_once_with_who_did(history: HistoryBuilder) -> None:
    younger_first(history)
    history.wait(60)
    (found,) = [v for v in check(history.records) if v.invariant == "overtaken"]
    assert found.subject == "ns/older"
    assert "ns/younger, which is alike and came later" in found.message


def counted(history: HistoryBuilder) -> list[str]:
    """What queues say at the end that is not so."""
    world = ObservedCluster()
    for record in history.records:
        world.apply(record)
    return [f"{subject}: {message}" for _, subject, message in miscounted(world)]


def report(
    history: HistoryBuilder, name: str, admitted: int, parent: str = "", **used: str
) -> None:
    """A queue that says how many gangs hold places, and what is in use."""
    status = {"admitted": admitted, "usage": used}
    spec = {"parent": parent} if parent else {}
    history.add("Queue", meta(name, namespace="") | {"spec": spec, "status": status})


def test_queues_count_who_holds_places_and_nobody_else(history: HistoryBuilder) -> None:
    report(history, "q", 1, parent="all", cpu="2")
    report(history, "all", 0, cpu="2")
    assert counted(history) == [
        "queue q: 1 gangs admitted, 0 have a plan",
        "queue all: {'cpu': '2'} in use by nobody",
    ]
    history.gang("n0", "n1")
    assert counted(history) == []
    report(history, "q", 0, parent="all")
    assert counted(history) == ["queue q: 0 gangs admitted, 1 have a plan"]


def test_gang_without_a_queue_counts_where_the_label_of_its_namespace_put_it(
    history: HistoryBuilder,
) -> None:
    history.job("Pending", queue=None)
    history.plan({"0": "n0"})
    job = history.records[-1].manifest
    history.add("TrainingJob", job | {"status": job["status"] | {"queue": "club"}})
    report(history, "default", 0)
    report(history, "club", 1)
    assert counted(history) == []


def test_what_a_queue_says_is_in_use_must_be(history: HistoryBuilder) -> None:
    history.gang("n0", "n1")
    history.plan(None)
    report(history, "q", 0, cpu="2")
    assert counted(history) == [], "its pods are there"
    for index in ("0", "1"):
        history.pod(index, change="DELETED")
    assert counted(history) == ["queue q: {'cpu': '2'} in use by nobody"]


def test_a_text_may_name_what_is_of_its_own_namespace(history: HistoryBuilder) -> None:
    history.add("TrainingJob", waiting() | {"metadata": {"name": "waits", "namespace": "team-b"}})
    history.pod("0")
    told, of_others = waiting(), {"name": "waits-worker-0", "namespace": "team-b", "uid": "u"}
    # The last one was refused, and one of its name is of others.
    history.add("Pod", pod("0", "", "Pending", gang="waits") | {"metadata": of_others})
    told["status"]["message"] = "kept for ns/waits; waits for j-worker-0 of ns, waits-worker-0"
    history.add("TrainingJob", told)
    assert history.broken() == set()


def test_violation_says_when_where_and_how_much(history: HistoryBuilder) -> None:
    overcommit(history)
    (found,) = [v for v in check(history.records) if v.invariant == "node-overcommitted"]
    assert "node n0: 9 used, 8 there of nvidia.com/gpu with pod other-worker-2" in str(found)
    assert found.revision == len(history.records)
    assert f"{found.seconds:.2f} s" in str(found)


def test_a_worker_on_the_node_of_its_server_needs_no_domain(history: HistoryBuilder) -> None:
    wish = {"mode": "Required", "topologyKey": "block"}  # no node has that label
    history.plan({"0": "n0"}, name="x")
    history.add("Pod", pod("0", "n0", "Running", role="ps", gang="x"))
    history.pod("1", "n0", "Running", gang="x")
    history.job("Running", name="x", roleAffinity=wish)
    assert "role-affinity-broken" not in history.broken()


def test_partial_gang_within_the_grace_time_is_no_violation(history: HistoryBuilder) -> None:
    partial_gang(history)
    assert history.broken(grace_seconds=12) == set()


def test_partial_gang_is_reported_once(history: HistoryBuilder) -> None:
    history.plan({"0": "n0", "1": "n1"})
    history.pod("0", "n0")
    for _ in range(4):
        history.wait(20)
    assert [v.invariant for v in check(history.records)] == ["gang-partial"]


def test_job_deleted_by_its_user_is_not_lost(history: HistoryBuilder) -> None:
    vanishes(history)
    assert history.broken(removed={("ns", "j")}) == set()


@pytest.mark.parametrize("phase", ["Starting", "Running", "Restarting"])
def test_job_left_halfway_at_the_end_is_lost(history: HistoryBuilder, phase: str) -> None:
    history.job(phase)
    assert history.broken() == set()
    assert history.broken(settled=True) == {"job-lost"}


def test_preempted_job_that_waits_for_its_turn_is_not_lost(history: HistoryBuilder) -> None:
    job = waiting(replicas=17, phase="Restarting")
    position = job["status"].pop("queuePosition")
    history.add("TrainingJob", job)
    assert history.broken(settled=True) == {"job-lost"}, "it has no place in the queue"
    history.add("TrainingJob", job | {"status": job["status"] | {"queuePosition": position}})
    assert history.broken(settled=True) == set()


def test_job_that_waits_must_say_why(history: HistoryBuilder) -> None:
    history.add("TrainingJob", meta("mute") | {"spec": {}})
    assert history.broken(settled=True) == {"job-lost"}
    history.add("TrainingJob", meta("mute") | {"spec": {}}, "DELETED")
    history.job("Pending")
    assert history.broken(settled=True, removed={("ns", "mute")}) == set()


@pytest.mark.parametrize(
    "job",
    [
        waiting(10),
        waiting(2, gpus=8),
        waiting(nodeSelector={"rack": "r2"}),
        waiting() | {"status": waiting()["status"] | {"queuePosition": 2}},
        waiting() | {"status": waiting()["status"] | {"reason": "OverQueueLimit"}},
    ],
    ids=["one too many", "too large", "choosy", "second in line", "over its limit"],
)
def test_job_may_wait_for_what_is_not_there_for_it(history: HistoryBuilder, job: Manifest) -> None:
    history.pod("2", "n0", "Running", gpus=7, gang="", plan="")
    history.add("TrainingJob", job)
    assert history.broken(settled=True) == set()


def rest(history: HistoryBuilder) -> list[tuple[str, str | Key, str]]:
    """What has not come to rest at the end."""
    world = ObservedCluster()
    for record in history.records:
        world.apply(record)
    return list(restless(world))


def test_a_gang_is_at_rest_while_it_runs_whole(history: HistoryBuilder) -> None:
    history.gang("n0", "n1")
    assert rest(history) == []
    history.pod("1", "n1", "Failed")
    assert rest(history) == [
        ("gang-partial", ("ns", "j"), "at the end only 1 of 2 members on nodes")
    ]
    history.pod("0", "n0", "Failed")
    history.job("Starting")
    (found,) = rest(history)
    assert found == ("job-lost", ("ns", "j"), "at the end Starting, reason R, message 'because'")


def test_replica_may_come_back_with_a_new_plan(history: HistoryBuilder) -> None:
    history.gang("n0", "n1")
    history.pod("0", "n0", "Running", change="DELETED")
    history.pod("1", "n1", "Running", change="DELETED")
    history.plan(None)
    history.plan({"0": "n0", "1": "n1"}, attempt=1)
    history.pod("0", "n0", "Running", uid="second-0", plan="1.1")
    history.pod("1", "n1", "Running", uid="second-1", plan="1.1")
    assert history.broken() == set()


def test_member_on_its_way_follows_the_plan_that_its_deleted_gang_had(
    history: HistoryBuilder,
) -> None:
    history.plan({"0": "n0", "1": "n1"})
    history.add("TrainingJob", history.records[-1].manifest, "DELETED")
    history.pod("0", "n0")
    removed = {("ns", "j")}
    assert history.broken(removed=removed) == set()
    history.wait(10)
    history.pod("1", "n1")
    assert history.broken(removed=removed) == {"off-plan"}, "too late to have been on its way"


def test_member_whose_labels_somebody_took_is_known_by_its_name(history: HistoryBuilder) -> None:
    history.plan({"0": "n0", "1": "n1"})
    history.pod("", "n0", uid="u0", name="j-worker-0")
    assert history.broken() == set()
    history.pod("", "n0", uid="u1", name="j-worker-1")
    assert history.broken() == {"off-plan"}


def test_pods_of_other_controllers_are_found_in_the_plan_by_uid(history: HistoryBuilder) -> None:
    places = [{"task": "pod", "pods": ["u1"], "node": "n0"}]
    status = {"phase": "Inqueue", "plan": {**plan({}), "placements": places}}
    spec = {"minMember": 1, "queue": "q"}
    history.add("PodGroup", meta("j") | {"spec": spec, "status": status})
    history.pod("", "n0", uid="u1", plan="")
    assert history.broken() == set()
    history.pod("", "n1", uid="u2", name="stranger", plan="")
    assert history.broken() == {"off-plan"}


def test_records_are_judged_in_the_order_of_revisions(history: HistoryBuilder) -> None:
    history.gang("n0", "n1")
    assert check(reversed(history.records)) == check(history.records) == []
    seconds = [record.seconds for record in in_order(reversed(history.records))]
    assert seconds == sorted(seconds)


def test_file_gives_back_what_was_recorded_but_a_line_cut_short(
    history: HistoryBuilder, tmp_path: Path
) -> None:
    history.gang("n0", "n1")
    path = tmp_path / "history.jsonl"
    path.write_text("".join(map(to_line, history.records)) + '{"seconds": 1')
    assert read(path) == history.records


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
