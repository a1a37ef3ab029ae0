"""Plans of PodGroups that are created again: what they keep of the plan before."""

import pytest

from bireme.core.settings import SchedulingSettings
from bireme.kube import names, plans, wire
from bireme.kube.adoptions import adoption_plan
from bireme.kube.cluster_state import ClusterState
from bireme.kube.plans import Member, PlanFacts
from testbed.objects.facts import CREATED, gated_pod, served, through_the_wire
from testbed.scenario.manifests import pod_group

KEY = ("default", "group")


class Group:
    """A cluster with one PodGroup of one pod, which runs in a lent place or in its own."""

    def __init__(self, *, is_lent: bool) -> None:
        self.state = ClusterState(SchedulingSettings())
        plan = PlanFacts(
            *(1, 0, "", "Pinned", CREATED),
            requests={"pod": (("pods", 1),)},
            roles={"pod": "worker"},
            members=(Member("pod", "n0", uid="a-uid"),),
            queue="default",
            is_opportunistic=is_lent,
        )
        self.put("first", {"plan": plans.to_manifest(plan)})
        self.run("a-uid")

    def put(self, uid: str, status: dict[str, object]) -> None:
        made = {**served(pod_group("group", 1), uid), "status": status}
        self.state.objects.put_group(KEY, through_the_wire(made, wire.CustomObject))

    def run(self, uid: str) -> None:
        labels = {names.QUEUE_LABEL: "default"}
        made = gated_pod("a", schedulingGates=[], nodeName="n0", labels=labels)
        made["metadata"]["uid"] = uid
        self.state.objects.put_member(("default", "a"), through_the_wire(made, wire.V1Pod))

    def adopted(self) -> PlanFacts:
        pods, group = self.state.objects.members_of(KEY), self.state.objects.groups[KEY]
        lent = self.state.objects.history.is_lent
        plan = adoption_plan(group, pods, epoch=2, now=CREATED + 500, is_lent=lent)
        assert plan is not None
        return plan


@pytest.mark.parametrize("is_lent", [True, False])
@pytest.mark.parametrize("is_deletion_seen", [True, False])
def test_a_group_that_is_applied_again_keeps_what_it_was_lent(
    is_lent: bool, is_deletion_seen: bool
) -> None:
    group = Group(is_lent=is_lent)
    if is_deletion_seen:
        group.state.objects.delete_group(KEY)
    group.put("second", {})
    assert group.adopted().is_opportunistic is is_lent
    group.state.objects.delete_member(("default", "a"))
    group.run("b-uid")
    assert not group.adopted().is_opportunistic, "that one was not lent its place"
