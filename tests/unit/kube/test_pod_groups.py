"""PodGroups to facts, and the gangs of pods that other controllers made."""

from dataclasses import replace
from typing import Any

from bireme.core.gangs import Gang, Role
from bireme.core.gpus import GPU
from bireme.core.reasons import Reason
from bireme.kube import names, plans, pod_groups, pods, quantities, wire
from bireme.kube.plans import Member, PlanFacts
from bireme.kube.pod_groups import GroupFacts, Placed, waiting_gang
from testbed.objects.facts import CREATED, gated_pod, served, through_the_wire
from testbed.scenario.manifests import Manifest, pod_group

PLAN = PlanFacts(
    1,
    0,
    "",
    "Pinned",
    CREATED,
    {"pod": (("pods", 1),)},
    {"pod": "worker"},
    (Member("pod", "n0", uid="a-uid"),),
    queue="default",
)


def a_group(min_member: int = 2, status: dict[str, Any] | None = None, **spec: Any) -> GroupFacts:
    manifest = served(pod_group("group", min_member, **spec), "group-uid")
    return pod_groups.from_manifest(
        through_the_wire({**manifest, "status": status or {}}, wire.CustomObject)
    )


def waiting(group: GroupFacts, *manifests: Manifest, planned: int = 0) -> Gang | None:
    """The gang of these gated pods."""
    members = []
    for manifest in manifests:
        pod = through_the_wire(manifest, wire.V1Pod)
        facts = pods.from_manifest(pod)
        members.append((facts, pod_groups.member_task(pod, facts)))
    return waiting_gang(group, members, Placed(planned, {}), 7, None)


def found(group: GroupFacts, *manifests: Manifest, planned: int = 0) -> Gang:
    gang = waiting(group, *manifests, planned=planned)
    assert gang is not None
    return gang


def role(name: str, task: str = "", **spec: Any) -> Manifest:
    labels = {names.ROLE_LABEL: name, names.TASK_LABEL: task} if name else {}
    return gated_pod(f"{task or name}-{len(str(spec))}", labels=labels, **spec)


# --- reading ----------------------------------------------------------------------------------


def test_a_plan_that_was_written_is_read() -> None:
    assert a_group(status={"plan": plans.to_manifest(PLAN)}).plan == PLAN


def test_a_plan_nobody_can_read_is_no_plan() -> None:
    bad_mode = {**plans.to_manifest(PLAN), "mode": "?"}
    unreadable: tuple[Any, ...] = ({}, {"epoch": "x"}, [], "plan", bad_mode)
    for rubbish in unreadable:
        assert a_group(status={"plan": rubbish}).plan is None


def test_a_spec_nobody_can_read_is_a_fault_of_the_gang() -> None:
    group = a_group(min_member=0)
    assert group.fault is not None
    assert group.fault[0] is Reason.SPEC_INVALID
    assert found(group, gated_pod("a")).fault == group.fault


# --- waiting ----------------------------------------------------------------------------------


def test_equal_gated_pods_are_one_task_with_members_by_uid_in_name_order() -> None:
    gang = found(a_group(), gated_pod("b"), gated_pod("a"))
    (task,) = gang.tasks
    assert (task.name, task.replicas, task.role) == ("pod", 2, Role.WORKER)
    assert task.members == ("a-uid", "b-uid")
    assert (gang.kind, gang.min_available, gang.priority) == ("PodGroup", 2, 7)
    assert (gang.uid, gang.arrived) == ("group-uid", CREATED)


def test_a_gang_whose_start_failed_is_as_old_as_before_and_its_pause_is_no_wait() -> None:
    retry = quantities.format_timestamp(CREATED + 60)
    failed = {"startFailures": 1, "observedGeneration": 1, "retryTime": retry, "waitSeconds": 500}
    assert found(a_group(status=failed), gated_pod("a")).arrived == CREATED + 60 - 500
    # The age is that of this spec, and of the start of the whole gang.
    edited = a_group(status={**failed, "observedGeneration": 0})
    assert found(edited, gated_pod("a")).arrived == CREATED
    joined = a_group(status={**failed, "plan": plans.to_manifest(PLAN)})
    assert found(joined, gated_pod("b")).arrived == CREATED


def test_a_gang_has_waited_since_the_last_pod_that_it_needs_was_made() -> None:
    def made(name: str, after_seconds: float) -> Manifest:
        pod = gated_pod(name)
        pod["metadata"]["creationTimestamp"] = quantities.format_timestamp(CREATED + after_seconds)
        return pod

    later = (made("a", 500), made("b", 3600), made("c", 7200))
    assert found(a_group(), *later).arrived == CREATED + 3600
    assert found(a_group(), later[0]).arrived == CREATED + 500
    assert found(a_group(), *later, planned=2).arrived == CREATED + 500
    assert found(a_group(), made("a", -60), made("b", -60)).arrived == CREATED


def test_pods_of_different_roles_and_shapes_are_different_tasks() -> None:
    gang = found(
        a_group(1),
        role("ps", "server"),
        role("worker", "trainer"),
        role("worker", "trainer", nodeSelector={"disk": "ssd"}),
    )
    shapes = {(t.name, t.role, t.priority) for t in gang.tasks}
    assert shapes == {
        ("server", Role.PS, 90),
        ("trainer", Role.WORKER, 50),
        ("trainer-2", Role.WORKER, 50),
    }


def test_an_unknown_role_is_a_worker() -> None:
    (task,) = found(a_group(1), role("launcher")).tasks
    assert (task.role, task.name) == (Role.WORKER, "launcher")


def test_a_group_waits_for_its_pods_and_says_how_many_there_are() -> None:
    gang = found(a_group(3), gated_pod("a"))
    assert gang.fault is not None
    reason, message = gang.fault
    assert reason is Reason.WAITING_FOR_PODS
    assert message.startswith("1 of minMember 3 pods exist")
    none_yet = found(a_group(3))
    assert none_yet.fault is not None
    assert none_yet.fault[1].startswith("0 of minMember 3")


def test_what_a_group_will_ask_is_foretold_until_its_pods_tell() -> None:
    group = a_group(2, minResources={"cpu": "1500m", GPU: 16})
    assert found(group, gated_pod("a")).foretold == (("cpu", 1500), (GPU, 16))
    assert found(group, gated_pod("a"), gated_pod("b")).foretold == ()
    assert found(a_group(2), gated_pod("a")).foretold == ()


def test_more_pods_than_min_member_may_all_start() -> None:
    gang = found(a_group(2), *(gated_pod(name) for name in "abcd"))
    assert (gang.replicas, gang.at_minimum.replicas) == (4, 2)


def test_members_that_run_already_count_towards_min_member() -> None:
    gang = found(a_group(3), gated_pod("c"), planned=2)
    assert (gang.fault, gang.min_available, gang.replicas) == (None, 1, 1)
    short = found(a_group(5), gated_pod("c"), planned=2)
    assert short.fault is not None
    assert short.fault[1].startswith("3 of minMember 5")


def test_a_group_that_runs_whole_waits_for_nothing() -> None:
    assert waiting(a_group(2), planned=2) is None
    assert waiting(a_group(5), planned=2) is None


def test_a_completed_group_waits_only_when_new_pods_come() -> None:
    completed = a_group(1, status={"phase": "Completed"})
    assert waiting(completed) is None
    assert found(completed, gated_pod("a")).replicas == 1


def test_the_fewest_of_a_task_hold_until_the_group_has_started() -> None:
    group = a_group(3, minTaskMember={"server": 1, "trainer": 2})
    there = [role("ps", "server"), *(role("worker", "trainer", x=i) for i in (1, 22, 333))]
    minima = {t.name: t.minimum for t in found(group, *there).tasks}
    assert minima == {"server": 1, "trainer": 2}
    started = {t.name: t.minimum for t in found(group, *there, planned=3).tasks}
    assert started == {"server": 1, "trainer": 1}


def test_a_group_waits_for_each_task_of_min_task_member_whatever_its_shapes() -> None:
    group = a_group(3, minTaskMember={"ps": 1, "worker": 2})
    workers = [role("worker", "worker", x=i) for i in (1, 22, 333)]
    none = found(group, *workers)
    assert none.fault is not None
    assert none.fault[0] is Reason.WAITING_FOR_PODS
    assert none.fault[1] == "0 of minTaskMember 1 pods exist with label bireme.dev/task: ps"
    two_shapes = [role("worker", "worker"), role("worker", "worker", nodeSelector={"disk": "ssd"})]
    assert (gang := found(group, role("ps", "ps"), *two_shapes)).fault is None
    assert gang.at_minimum.replicas == 3, "both shapes are needed for two workers"


def test_what_a_plan_cannot_hold_is_reported_and_the_largest_it_holds_is_made() -> None:
    kinds = [gated_pod(f"p{n}", labels={names.TASK_LABEL: f"t{n}"}) for n in range(33)]
    assert found(a_group(1), *kinds[:32]).fault is None
    fault = found(a_group(1), *kinds).fault
    assert fault is not None
    assert (fault[0], "33 combinations" in fault[1]) == (Reason.SPEC_INVALID, True)
    joined = a_group(1, status={"plan": plans.to_manifest(PLAN)})
    assert found(joined, *kinds[:31], planned=1).fault is None
    assert found(joined, *kinds[:32], planned=1).fault is not None


def test_a_second_shape_gets_a_name_that_a_label_can_be_and_nobody_has() -> None:
    long = "t" * 63
    labels = ({names.TASK_LABEL: long}, {names.TASK_LABEL: "t"}, {names.TASK_LABEL: "t-2"})
    kinds = [
        gated_pod(f"{selector}-{len(label[names.TASK_LABEL])}", labels=label, nodeSelector=chosen)
        for selector, chosen in (("a", {}), ("b", {"disk": "ssd"}))
        for label in labels
    ]
    found_names = {t.name for t in found(a_group(6), *kinds).tasks}
    assert len(found_names) == 6
    assert {len(name) for name in found_names} <= {1, 3, 5, 63}


def test_pods_that_join_take_no_name_that_the_plan_gives_to_another_shape() -> None:
    group = a_group(1, status={"plan": plans.to_manifest(PLAN)})
    asks_a_cpu = found(group, gated_pod("b"), planned=1)
    assert [t.name for t in asks_a_cpu.tasks] == ["pod-2"]
    asks_nothing = found(group, gated_pod("b", containers=[{"name": "c"}]), planned=1)
    assert [t.name for t in asks_nothing.tasks] == ["pod"]


def test_a_group_that_lost_members_goes_first_for_no_more_than_they_had() -> None:
    plan = replace(PLAN, requests={"pod": (("cpu", 1000), ("pods", 1))})
    members = (Member("pod", "n0", uid="a-uid"), Member("pod", "n1", uid="gone"))
    group = a_group(2, status={"plan": plans.to_manifest(replace(plan, members=members))})

    def joins(*newcomers: Manifest) -> Gang:
        pairs = []
        for manifest in newcomers:
            pod = through_the_wire(manifest, wire.V1Pod)
            pairs.append((facts := pods.from_manifest(pod), pod_groups.member_task(pod, facts)))
        runs = gated_pod("a", schedulingGates=[], nodeName="n0")
        there = [pods.from_manifest(through_the_wire(runs, wire.V1Pod)), *(pod for pod, _ in pairs)]
        placed = Placed.of(group.plan, there, [pod for pod, _ in pairs], {}, {})
        gang = waiting_gang(group, pairs, placed, 0, None)
        assert gang is not None
        return gang

    assert (joins(gated_pod("b")).displaced, joins(gated_pod("b")).replicas) == (True, 1)
    assert joins(gated_pod("b"), gated_pod("c")).replicas == 1, "others join when it is whole"
    more = [{"name": "c", "resources": {"requests": {"cpu": "2"}}}]
    assert not joins(gated_pod("b", containers=more)).displaced


def test_an_interrupted_group_goes_before_its_equals() -> None:
    assert found(a_group(1, status={"phase": "Interrupted"}), gated_pod("a")).interrupted


# --- waiting that counts ----------------------------------------------------------------------


def stamp(after_seconds: float) -> str:
    return quantities.format_timestamp(CREATED + after_seconds)


def waited(status: dict[str, Any], *pods: Manifest, now: float = 9000.0) -> float:
    """How long the gang of these pods, two unless others are given, has waited at ``now``."""
    made = pods or (gated_pod("a"), gated_pod("b"))
    return found(a_group(status=status), *made).wait_seconds(CREATED + now)


def later(name: str, after_seconds: float) -> Manifest:
    pod = gated_pod(name)
    pod["metadata"]["creationTimestamp"] = stamp(after_seconds)
    return pod


def test_a_group_that_is_parked_does_not_wait() -> None:
    assert waited({"parkedTime": stamp(100)}) == 100
    joined = {"queuedTime": stamp(8000), "waitSeconds": 100}
    assert waited(joined) == 1100
    assert waited({**joined, "parkedTime": stamp(8500)}) == 600


def test_pods_that_were_made_since_have_not_waited_with_those_before() -> None:
    both = later("a", 8600), later("b", 8700)
    assert waited({"queuedTime": stamp(8000), "waitSeconds": 100}, *both) == 300
    assert waited({"parkedTime": stamp(8000)}, *both) == 0


def test_a_group_whose_waiting_pods_ask_for_more_waits_anew() -> None:
    """More of them, or one whose requests were raised where it waits."""
    container = {"name": "c", "resources": {"requests": {"cpu": "2"}}}
    asks_two = [gated_pod(name, containers=[container]) for name in "ab"]
    known = {"request": {"cpu": "4", "pods": "2"}}
    assert waited(known, *asks_two) == 9000
    assert waited(known, asks_two[0]) == 9000
    assert waited({"request": {"cpu": "3", "pods": "2"}}, *asks_two) == 0
    assert waited({"request": {"cpu": "4", "pods": "1"}}, *asks_two) == 0
