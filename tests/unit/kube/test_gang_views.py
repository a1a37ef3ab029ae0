"""A plan beside the pods that exist; only trusted pods count."""

from dataclasses import replace
from typing import Any

from bireme.kube import allocations, names, pods, quantities, wire
from bireme.kube.allocations import GangView
from bireme.kube.plans import Member, PlanFacts
from bireme.kube.pods import PodFacts
from testbed.objects.facts import (
    CREATED,
    a_job,
    a_plan,
    a_pod,
    a_view,
    gated_pod,
    running,
    through_the_wire,
)
from testbed.scenario.manifests import task

JOB = a_job(task("ps"), task("worker", 3))
PLAN = a_plan(JOB, ("n0", "n1"))


def seen(*pods_there: PodFacts) -> GangView:
    return a_view(JOB, PLAN, pods_there)


def test_a_whole_gang_is_bound_and_ready() -> None:
    view = seen(*running(JOB, PLAN))
    assert (view.unbound, view.is_ready, view.missing, view.leftovers) == ((), True, (), ())
    assert list(view.usage()) == []
    assert view.demand == PLAN.demand


def test_an_empty_gang_is_all_missing_and_all_of_it_counts_as_used() -> None:
    view = seen()
    assert view.missing == view.unbound == PLAN.members
    assert list(view.usage()) == [(m.node, PLAN.requests[m.task]) for m in PLAN.members]


def test_a_bound_pod_takes_its_room_itself_wherever_it_is() -> None:
    elsewhere = a_pod(JOB, PLAN, PLAN.members[1], node="n9")
    waiting = a_pod(JOB, PLAN, PLAN.members[2], "Pending", node="")
    view = seen(elsewhere, waiting)
    assert [node for node, _ in view.usage()] == ["n0", "n0", "n1"]
    assert view.unbound == (PLAN.members[0], PLAN.members[2], PLAN.members[3])
    assert view.missing == (PLAN.members[0], PLAN.members[3])


def test_a_pod_without_a_pin_takes_the_room_that_was_kept_for_another_of_its_task() -> None:
    """Else a node would seem to hold its pod and the one that was planned there."""
    plan = a_plan(JOB, ("n0", "n1", "n2", "n3"), mode="Score")  # worker 1 is planned on n2
    strayed = a_pod(JOB, plan, plan.members[1], node="n2")
    view = a_view(JOB, plan, [strayed])
    assert view.nodes == ("n0", "n2", "n1", "n3")
    assert [node for node, _ in view.usage()] == ["n0", "n1", "n3"]
    assert view.places["worker"] == {"n1": 1, "n2": 1, "n3": 1}
    assert [member.node for member in view.plan_in_place.members] == ["n0", "n2", "n1", "n3"]
    elsewhere = a_pod(JOB, plan, plan.members[1], node="n9")
    assert a_view(JOB, plan, [elsewhere]).nodes == ("n0", "n9", "n2", "n3")


def test_members_that_succeeded_ask_for_nothing_more() -> None:
    view = seen(*running(JOB, PLAN, worker_0="Succeeded"))
    assert view.demand["pods"] == 3
    assert list(view.usage()) == []
    assert view.is_ready


def test_members_that_failed_keep_their_room_until_the_plan_is_given_back() -> None:
    view = seen(*running(JOB, PLAN, worker_0="Failed"))
    assert view.demand["pods"] == 4
    assert len(list(view.usage())) == 1
    assert not view.unbound
    assert not view.is_ready


def test_replicas_are_counted_by_task() -> None:
    there = running(JOB, PLAN, worker_0="Failed", worker_1="Succeeded")
    view = seen(*there[:3])
    assert view.count("worker") == {
        "planned": 3,
        "bound": 2,
        "ready": 0,
        "succeeded": 1,
        "failed": 1,
    }
    assert view.count("ps")["ready"] == 1
    assert view.count("unknown")["planned"] == 0


def test_a_pod_the_job_does_not_own_is_neither_member_nor_leftover() -> None:
    impostor = replace(a_pod(JOB, PLAN, PLAN.members[0]), owner_uids=frozenset({"other-uid"}))
    view = seen(impostor)
    assert PLAN.members[0] in view.missing
    assert view.leftovers == ()


def test_a_pod_of_another_plan_is_a_leftover_under_the_same_name() -> None:
    for other in (a_plan(JOB, epoch=2), a_plan(JOB, attempt=1)):
        old = a_pod(JOB, other, PLAN.members[0])
        view = seen(old)
        assert PLAN.members[0] in view.missing
        assert view.leftovers == (old,)


def test_an_own_pod_that_the_plan_does_not_name_is_a_leftover() -> None:
    small = replace(PLAN, members=PLAN.members[:2])
    extra = a_pod(JOB, PLAN, PLAN.members[3])
    view = allocations.view_of(JOB.key, JOB.uid, small, [extra])
    assert view.leftovers == (extra,)


def test_a_pod_whose_plan_label_was_changed_is_a_leftover() -> None:
    pod = a_pod(JOB, PLAN, PLAN.members[0])
    forged = replace(pod, labels={**pod.labels, names.PLAN_LABEL: "9.9"})
    assert seen(forged).leftovers == (forged,)


# --- pods of other controllers ----------------------------------------------------------------


def other_pod(name: str, node: str = "", **status: Any) -> PodFacts:
    made = gated_pod(name, schedulingGates=[], nodeName=node)
    made["status"] = {"phase": "Running", **status}
    return pods.from_manifest(through_the_wire(made, wire.V1Pod))


FOREIGN = PlanFacts(
    1,
    0,
    "",
    "Pinned",
    CREATED,
    {"pod": (("cpu", 1000), ("pods", 1))},
    {},
    (Member("pod", "n0", uid="a-uid"), Member("pod", "n1", uid="b-uid")),
)


def test_members_of_others_are_known_by_uid_alone() -> None:
    recreated = replace(other_pod("a", "n0"), uid="new-uid")
    renamed = replace(other_pod("zzz", "n1"), uid="b-uid")
    view = allocations.view_of(("default", "group"), "", FOREIGN, [recreated, renamed])
    assert [(m.uid, p) for m, p in view.members] == [("b-uid", renamed)]
    assert view.leftovers == ()


def test_a_member_whose_pod_is_gone_holds_no_room_any_more() -> None:
    view = allocations.view_of(("default", "group"), "", FOREIGN, [other_pod("a")])
    assert list(view.usage()) == [("n0", FOREIGN.requests["pod"])]
    assert view.demand == {"cpu": 1000, "pods": 1}


def test_the_view_follows_whose_gang_it_is() -> None:
    own = allocations.view_of(JOB.key, JOB.uid, PLAN, [])
    assert len(own.members) == 4
    assert allocations.view_of(JOB.key, "", FOREIGN, []).members == ()


def test_names_of_pods_stay_the_same_over_restarts() -> None:
    assert names.pod_name("job", "worker", 12) == "job-worker-12"
    assert quantities.parse_timestamp(quantities.format_timestamp(CREATED)) == CREATED


def test_a_replica_recorded_as_ended_is_no_loss_when_its_pod_is_gone() -> None:
    first, *others = running(JOB, PLAN)
    recorded = replace(PLAN, ended=frozenset({("ps", 0)}))
    view = a_view(JOB, recorded, others)
    assert (view.missing, view.unbound, view.leftovers) == ((), (), ())
    assert view.is_ready
    assert view.count("ps")["succeeded"] == 1
    assert view.demand["pods"] == 3, "it holds nothing"
    assert "ps" not in view.places
    assert first.uid not in view.uids
    assert len(view.uids) == 3
    assert view.ended == {("ps", 0)}


def test_a_replica_that_was_seen_to_end_is_no_loss_before_its_record_is_written() -> None:
    pods_there = running(JOB, PLAN)
    name = names.pod_name(JOB.key[1], "ps", 0)
    gone = allocations.view_of(JOB.key, JOB.uid, PLAN, pods_there[1:], succeeded={name})
    assert gone.missing == ()
    assert gone.ended == {("ps", 0)}, "what is to be recorded"
    going = replace(pods_there[0], phase="Succeeded", is_leaving=True)
    kept = allocations.view_of(JOB.key, JOB.uid, PLAN, [going, *pods_there[1:]], succeeded={name})
    assert kept.ended == {("ps", 0)}
    assert kept.is_ready
    deleted = allocations.view_of(JOB.key, JOB.uid, PLAN, [going, *pods_there[1:]])
    assert deleted.ended == frozenset(), "one that was deleted first did not end by itself"
