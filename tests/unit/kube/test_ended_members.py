"""Members of PodGroups that have ended well: what is remembered of them, and for how long."""

from typing import Any

from bireme.core.resources import Request
from bireme.core.settings import SchedulingSettings
from bireme.kube import names, plans, wire
from bireme.kube.api.base import MAX_TASKS
from bireme.kube.api.pod_group import MAX_UID
from bireme.kube.cluster_state import ClusterState
from bireme.kube.plans import Member, PlanFacts
from bireme.kube.pod_groups import manifest_of_ends
from testbed.objects.facts import CREATED, gated_pod, served, through_the_wire
from testbed.scenario.manifests import pod_group

KEY = ("default", "group")
LEAST = 3
REQUESTS: dict[str, Request] = {"pod": (("pods", 1),)}
MEMBERS = (Member("pod", "n0", uid="x"),)
PLAN = PlanFacts(1, 0, "", "Pinned", CREATED, REQUESTS, {"pod": "worker"}, MEMBERS, queue="default")


class Group:
    """A cluster with one PodGroup whose pods come and go."""

    def __init__(self) -> None:
        self.state = ClusterState(SchedulingSettings())
        self.put("Running", plan=plans.to_manifest(PLAN))

    def put(self, phase: str, **status: Any) -> None:
        manifest = served(pod_group("group", LEAST), "group-uid")
        body = {**manifest, "status": {"phase": phase, **status}}
        self.state.objects.put_group(KEY, through_the_wire(body, wire.CustomObject))

    def end(self, name: str, owner: str, scheduler: str = names.SCHEDULER_NAME) -> None:
        """Have a pod succeed and go."""
        made = gated_pod(name, schedulingGates=[], nodeName="n0", schedulerName=scheduler)
        made["status"] = {"phase": "Succeeded"}
        made["metadata"]["ownerReferences"] = [{"kind": "Job", "name": "job", "uid": owner}]
        self.state.objects.put_member(("default", name), through_the_wire(made, wire.V1Pod))
        self.state.objects.delete_member(("default", name))

    @property
    def ended(self) -> dict[str, str]:
        return self.state.objects.history.ended_pods(self.state.objects.groups[KEY])


def test_a_group_that_lives_for_years_remembers_no_more_ends_than_count() -> None:
    group = Group()
    owners = [f"job-{number}" for number in range(MAX_TASKS + 4)]
    for owner in owners:
        for number in range(2 * LEAST):
            group.end(f"{owner}-{number}", owner)
    group.end("stranger", "other", scheduler="default-scheduler")
    assert len(group.ended) == MAX_TASKS * LEAST
    assert set(group.ended.values()) == set(owners[4:])
    assert manifest_of_ends(group.ended, LEAST) == [
        {"owner": owner, "pods": [f"{owner}-{number}-uid" for number in range(LEAST)]}
        for owner in owners[4:]
    ]


def test_a_group_that_lives_for_years_remembers_the_counts_of_the_last_jobs() -> None:
    group = Group()
    for number in range(100):
        group.state.objects.put_job_counts(KEY, {f"job-{number}": 1})
    gated = gated_pod("new")
    gated["metadata"]["ownerReferences"] = [{"kind": "Job", "name": "job", "uid": "job-0"}]
    objects, waiting = group.state.objects, group.state.waiting
    objects.put_member(("default", "new"), through_the_wire(gated, wire.V1Pod))
    newcomers = objects.members_of(KEY)
    assert waiting.placement_of(objects.groups[KEY], newcomers).count == 0
    group.state.objects.put_job_counts(KEY, {"job-0": 2})
    assert waiting.placement_of(objects.groups[KEY], newcomers).count == 2


def test_ends_of_one_run_do_not_count_for_the_next_of_the_same_owner() -> None:
    group = Group()
    group.end("a", "controller")
    assert group.ended == {"a-uid": "controller"}
    record = manifest_of_ends(group.ended, LEAST)
    group.put("Completed", endedPods=record)
    assert group.ended == {"a-uid": "controller"}, "one that failed may be replaced"
    group.put("Completed")
    assert group.ended == {}
    group.end("late", "controller")
    group.put("Pending")
    group.put("Running", plan=plans.to_manifest(PLAN))
    assert group.ended == {}


def test_an_owner_whose_uid_no_status_can_hold_is_not_recorded() -> None:
    ended = {"a-uid": "x" * (MAX_UID + 1), "b-uid": "x" * MAX_UID}
    assert manifest_of_ends(ended, LEAST) == [{"owner": "x" * MAX_UID, "pods": ["b-uid"]}]
