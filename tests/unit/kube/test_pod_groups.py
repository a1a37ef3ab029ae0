"""PodGroups to facts, and the gangs of pods that other controllers made."""

from typing import Any

from bireme.core.gangs import Gang, Role
from bireme.core.reasons import Reason
from bireme.kube import names, plans, pod_groups, pods, wire
from bireme.kube.plans import Member, PlanFacts
from bireme.kube.pod_groups import GroupFacts, waiting_gang
from kubeobjects.facts import CREATED, gated_pod, served, through_the_wire
from scenario.manifests import Manifest, pod_group

PLAN = PlanFacts(
    1,
    0,
    "",
    "Pinned",
    CREATED,
    {"pod": (("pods", 1),)},
    {"pod": "worker"},
    (Member("pod", "n0", uid="a-uid"),),
)


def a_group(min_member: int = 2, status: dict[str, Any] | None = None, **spec: Any) -> GroupFacts:
    manifest = served(pod_group("group", min_member, **spec), "group-uid")
    return pod_groups.from_manifest(
        through_the_wire({**manifest, "status": status or {}}, wire.Custom)
    )


def waiting(group: GroupFacts, *manifests: Manifest, planned: int = 0) -> Gang | None:
    """The gang of these gated pods."""
    members = []
    for manifest in manifests:
        pod = through_the_wire(manifest, wire.Pod)
        facts = pods.from_manifest(pod)
        members.append((facts, pod_groups.member_task(pod, facts)))
    return waiting_gang(group, members, planned, 7, None)


def found(group: GroupFacts, *manifests: Manifest, planned: int = 0) -> Gang:
    gang = waiting(group, *manifests, planned=planned)
    assert gang is not None
    return gang


def role(name: str, task: str = "", **spec: Any) -> Manifest:
    labels = {names.ROLE_LABEL: name, names.TASK_LABEL: task} if name else {}
    return gated_pod(f"{task or name}-{len(str(spec))}", labels=labels, **spec)


# --- reading ----------------------------------------------------------------------------------


def test_a_group_of_a_job_knows_its_job_and_one_of_a_user_has_none() -> None:
    owner = {"kind": "TrainingJob", "name": "job", "uid": "job-uid"}
    replica_set = {"kind": "ReplicaSet", "name": "job", "uid": "other"}
    for owners, expected in (([replica_set, owner], "job-uid"), ([replica_set], ""), ([], "")):
        manifest = served(pod_group("job", 1), "g", ownerReferences=owners)
        facts = pod_groups.from_manifest(through_the_wire(manifest, wire.Custom))
        assert facts.job_uid == expected


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


def test_an_interrupted_group_goes_before_its_equals() -> None:
    assert found(a_group(1, status={"phase": "Interrupted"}), gated_pod("a")).interrupted
