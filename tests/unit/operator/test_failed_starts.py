"""Starts that fail although the job is sound: what ends them, and when they are tried again."""

from dataclasses import replace
from typing import Any

import pytest

from bireme.core.decision import Hold
from bireme.core.reasons import Reason
from bireme.core.settings import SchedulingSettings
from bireme.kube import pods as pods_of
from bireme.kube import quantities, wire
from bireme.kube.cluster_state import ClusterState
from bireme.kube.plans import PlanFacts, PlannedGang
from bireme.kube.pods import PodFacts
from bireme.kube.training_jobs import JobFacts
from bireme.testing import a_node
from bireme_operator import status
from bireme_operator.lifecycle import Transition, retry_time, transition
from bireme_operator.start_failures import StartFailures
from testbed.objects.facts import (
    CREATED,
    a_job,
    a_plan,
    a_pod,
    node_manifest,
    running,
    served,
    through_the_wire,
)
from testbed.scenario.manifests import POD_GROUP_LABEL, pod, training_job
from tests.unit.operator.lifecycle_cases import Pods, gang, moved, situation

PORT = "0/2 nodes are available: 1 node(s) didn't have free ports for the requested pod ports."
VOLUME = "0/2 nodes are available: pod has unbound immediate PersistentVolumeClaims."
STALE = "0/2 nodes are available: 1 StalePlan: the pod was made from plan 1.1, the gang has 1.0."


def stamp(after: float = 0.0) -> str:
    return quantities.format_timestamp(CREATED + after)


def refused(words: str, reason: str = "Unschedulable", index: int = 1, **status: str) -> Pods:
    """All replicas run but one, of which kube-scheduler said ``words`` after two seconds."""

    def pods(job: JobFacts, plan: PlanFacts) -> list[PodFacts]:
        made = running(job, plan)
        condition = {"type": "PodScheduled", "status": "False", "reason": reason}
        condition |= {"message": words, "lastTransitionTime": stamp(2)}
        said = {"conditions": [condition], **status}
        made[index] = a_pod(job, plan, plan.members[index], "Pending", node="", status=said)
        return made

    return pods


# --- kube-scheduler's verdict -----------------------------------------------------------------


def test_a_verdict_counts_when_it_is_five_seconds_old_and_the_gang_pauses() -> None:
    job, view = gang("Starting", pods=refused(PORT))
    assert transition(job, view, situation(after=6.0)) is None
    move = transition(job, view, situation(after=7.0))
    assert move is not None
    assert (move.phase, move.reason) == ("Restarting", Reason.UNSCHEDULABLE)
    assert (move.interruptions, move.start_failures, move.restarts) == (1, 1, 0)
    assert move.message == (
        f"kube-scheduler cannot bind replica 1 of worker on node n1: {PORT}; the next try is at "
        f"{stamp(67)}"
    )


def test_a_verdict_is_overtaken_once_kube_scheduler_has_a_node_and_prepares_it() -> None:
    """As while a volume is made: the condition of the first try stays on the pod."""
    late = 'waiting for ephemeral volume controller to create the persistentvolumeclaim "data"'
    job, view = gang("Starting", pods=refused(late, nominatedNodeName="n1"))
    assert transition(job, view, situation(after=29.0)) is None
    job, view = gang("Starting", pods=refused(late))
    assert moved(job, view, situation(after=29.0)) == ("Restarting", Reason.UNSCHEDULABLE)


def test_a_verdict_older_than_the_plan_counts_from_the_plan_on() -> None:
    """The condition of a pod that was gated is as old as the pod."""
    job, view = gang("Starting", pods=refused(PORT))
    later = replace(view, plan=replace(view.plan, planned=CREATED + 100))
    assert transition(job, later, situation(after=104.0)) is None
    assert moved(job, later, situation(after=105.0)) == ("Restarting", Reason.UNSCHEDULABLE)


@pytest.mark.parametrize(("words", "emptying"), [(PORT, "n1"), (VOLUME, None)])
def test_what_explains_a_verdict_is_waited_for_ten_minutes(
    words: str, emptying: str | None
) -> None:
    job, view = gang("Starting", pods=refused(words))
    assert transition(job, view, situation(after=601.0, emptying=emptying)) is None
    late = situation(after=602.0, emptying=emptying)
    assert moved(job, view, late) == ("Restarting", Reason.UNSCHEDULABLE)


def test_pods_that_leave_another_node_explain_nothing() -> None:
    job, view = gang("Starting", pods=refused(PORT))
    late = situation(after=10.0, emptying="n0")
    assert moved(job, view, late) == ("Restarting", Reason.UNSCHEDULABLE)


@pytest.mark.parametrize(
    ("words", "reason"), [(PORT, "SchedulerError"), (PORT, "SchedulingGated"), (STALE, None)]
)
def test_errors_and_refusals_that_heal_are_silence(words: str, reason: str | None) -> None:
    job, view = gang("Starting", pods=refused(words, reason or "Unschedulable"))
    assert transition(job, view, situation(after=60.0)) is None
    move = transition(job, view, situation(after=61.0))
    assert move is not None
    assert (move.reason, move.start_failures) == (Reason.GANG_NOT_BOUND_IN_TIME, 0)


def test_silence_about_one_gang_while_others_are_served_is_its_own_failed_start() -> None:
    job, view = gang("Starting", pods=refused(PORT, "SchedulingGated"))
    assert transition(job, view, situation(after=60.0, serves_others=True)) is None
    move = transition(job, view, situation(after=61.0, serves_others=True))
    assert move is not None
    assert (move.reason, move.start_failures) == (Reason.GANG_NOT_BOUND_IN_TIME, 1)
    assert move.silent_plan == CREATED


def test_the_scheduler_is_not_judged_by_pods_that_do_not_exist() -> None:
    job, view = gang("Starting", pods=lambda job, plan: running(job, plan)[:1])
    move = transition(job, view, situation(after=61.0, serves_others=True))
    assert move is not None
    assert (move.start_failures, move.silent_plan) == (0, None)
    assert "1 of them do not exist" in move.message


def test_silence_about_a_pod_with_volumes_lasts_as_long_as_they_may_take() -> None:
    def provisioned(job: JobFacts, plan: PlanFacts) -> list[PodFacts]:
        made = refused(STALE)(job, plan)
        waits = made[1].obstacles
        assert waits is None, "nothing is known of it yet"
        claim = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}
        manifest = served({"metadata": {"name": made[1].key[1]}}, made[1].uid)
        manifest["spec"] = {"volumes": [claim]}
        facts = through_the_wire(manifest, wire.V1Pod)
        made[1] = replace(made[1], obstacles=pods_of.from_manifest(facts).obstacles)
        return made

    job, view = gang("Starting", pods=provisioned)
    assert transition(job, view, situation(after=600.0)) is None
    assert moved(job, view, situation(after=601.0)) == ("Restarting", Reason.GANG_NOT_BOUND_IN_TIME)


def test_an_edit_of_the_tasks_wins_over_the_verdict_on_the_old_ones() -> None:
    job, view = gang("Starting", pods=refused(PORT))
    edited = replace(view, plan=replace(view.plan, spec_hash="other"))
    assert moved(job, edited, situation(after=100.0)) == ("Restarting", Reason.TASKS_EDITED)


# --- pauses -----------------------------------------------------------------------------------


def test_pauses_double_up_to_half_an_hour() -> None:
    minutes = [retry_time(failures, 0.0) / 60 for failures in (1, 2, 3, 4, 5, 6, 7, 10**9)]
    assert minutes == [1, 2, 4, 8, 16, 30, 30, 30]


@pytest.mark.parametrize(
    ("left", "failures", "pauses"),
    [
        (59, 1, True),
        (0, 1, False),
        (100, 1, True),
        # The clock of the leader that wrote it was ahead by a quarter of an hour.
        (960, 1, False),
        (960, 5, True),
        (959, 0, False),
    ],
)
def test_a_pause_lasts_no_longer_than_its_failures_say(
    left: float, failures: int, pauses: bool
) -> None:
    body = {"startFailures": failures, "retryTime": stamp(left), "observedGeneration": 1}
    assert a_job(status=body).is_pausing(CREATED) is pauses


def failed_start(**before: Any) -> dict[str, Any]:
    """The status of a job whose start failed 100 s after its creation, after it waited 20 s."""
    body = {"phase": "Starting", "observedGeneration": 1, "waitSeconds": 20, **before}
    move = Transition("Restarting", Reason.UNSCHEDULABLE, PORT, interruptions=1, start_failures=1)
    return status.after_transition(body, a_job(status=body), move, CREATED + 100)


def test_a_failed_start_is_counted_and_says_when_it_is_tried_again() -> None:
    first = failed_start()
    assert (first["startFailures"], first["retryTime"]) == (1, stamp(160))
    again = failed_start(startFailures=3)
    assert (again["startFailures"], again["retryTime"]) == (4, stamp(100 + 8 * 60))


def test_a_failed_start_does_not_go_before_its_equals_and_its_pause_is_no_wait() -> None:
    waits = a_job(status=failed_start()).gang(0)
    assert not waits.interrupted
    assert waits.arrived == CREATED + 160 - 20, "as old as before, when the pause is over"


def test_a_pause_ends_with_its_time_or_an_edit_and_the_count_with_the_edit() -> None:
    job = a_job(status=failed_start(startFailures=2))
    assert job.is_pausing(CREATED + 339.0)
    assert not job.is_pausing(CREATED + 340.0)
    edited = a_job(status=failed_start(startFailures=2), metadata={"generation": 2})
    assert (edited.is_pausing(CREATED + 101.0), edited.start_failures) == (False, 0)


def waits(job: JobFacts, after: float) -> dict[str, Any]:
    hold = Hold(job.gang(0), Reason.WAITING_FOR_CAPACITY, "no room")
    return status.waiting_status(job, hold, CREATED + after)


def test_a_job_queues_from_the_end_of_its_pause_on() -> None:
    job = a_job(status=failed_start())
    assert waits(job, 159)["retryTime"] == stamp(160)
    over = waits(job, 1000)
    assert "retryTime" not in over
    assert (over["queuedTime"], over["startFailures"]) == (stamp(160), 1)
    assert a_job(status=over).gang(0).arrived == job.gang(0).arrived
    edited = waits(a_job(status=failed_start(), metadata={"generation": 2}), 110)
    assert (edited["queuedTime"], edited.get("startFailures")) == (stamp(110), None)


def test_a_job_that_runs_has_no_failed_starts() -> None:
    body = {**failed_start(), "rejectedBy": ["n1"]}
    runs = Transition("Running", Reason.GANG_RUNNING, "all run")
    body = status.after_transition(body, a_job(status=body), runs, CREATED + 200)
    assert {"startFailures", "retryTime", "rejectedBy"}.isdisjoint(body)


class World:
    """A cluster of one node, and a job whose start failed on it."""

    def __init__(self, start_failures: int = 1) -> None:
        self.state = ClusterState(SchedulingSettings())
        self.failures = StartFailures(self.state)
        self.start_failures = start_failures
        self.put_node(8)
        self.put_job(1)

    def put_node(self, gpus: int) -> None:
        made = node_manifest(a_node("n1", gpus))
        self.state.nodes.put(("", "n1"), through_the_wire(made, wire.V1Node))

    def put_job(self, generation: int) -> None:
        made = served(training_job("job"), "job-uid", generation=generation)
        body = {**made, "status": {**failed_start(), "startFailures": self.start_failures}}
        self.state.objects.put_job(("default", "job"), through_the_wire(body, wire.CustomObject))

    @property
    def job(self) -> JobFacts:
        return self.state.objects.jobs["default", "job"]

    def put_pod(self, name: str, node: str = "n1", **labels: str) -> None:
        """Put a pod of no gang on a node, or with the label of a gang one of that gang."""
        made = served(pod(name, nodeName=node), f"{name}-uid")
        made["metadata"]["labels"] = labels
        made["status"] = {"phase": "Running"}
        put = self.state.objects.put_member if labels else self.state.objects.put_other_pod
        put(("default", name), through_the_wire(made, wire.V1Pod))

    def fail(self) -> None:
        move = Transition("Restarting", Reason.UNSCHEDULABLE, "", start_failures=1, node="n1")
        self.failures.observe(self.job, move, CREATED)

    def may_preempt(self, after: float = 0.0) -> bool:
        return self.failures.may_preempt(self.job.gang(0), CREATED + after)

    def be_silent(self, planned: float, ended: float, failures: int = 0) -> None:
        """End a start of whose pods kube-scheduler said nothing, and others' before it or not."""
        reason, silent = Reason.GANG_NOT_BOUND_IN_TIME, CREATED + planned
        move = Transition("Restarting", reason, "", start_failures=failures, silent_plan=silent)
        self.failures.observe(self.job, move, CREATED + ended)

    def serve(self, planned: float) -> None:
        """Have kube-scheduler bind a pod of another gang, planned then."""
        plan = a_plan(self.job, ("n1",), planned=CREATED + planned)
        self.state.objects.put_job_plan(("default", "other"), PlannedGang("other-uid", True, plan))
        for node in ("", "n1"):
            self.put_member(node)

    def put_member(self, node: str) -> None:
        made = served(pod("m", nodeName=node, schedulerName="bireme"), "m-uid")
        made["metadata"]["labels"] = {POD_GROUP_LABEL: "other"}
        self.state.objects.put_member(("default", "m"), through_the_wire(made, wire.V1Pod))

    def held(self, after: float) -> str:
        hold = Hold(self.job.gang(0), Reason.WAITING_FOR_CAPACITY, "no room")
        return self.failures.explain(hold, CREATED + after).message


def test_a_new_leader_keeps_the_pause_and_its_words() -> None:
    world = World()
    said = {"job-uid": (Reason.UNSCHEDULABLE, PORT)}
    assert world.failures.pauses(CREATED + 159) == said
    assert world.failures.pauses(CREATED + 160) == {}


def test_nobody_is_stopped_for_it_until_its_node_or_its_spec_has_changed() -> None:
    world = World()
    assert not world.may_preempt(), "a new leader does not know what was in the way"
    world.fail()
    assert not world.may_preempt()
    world.put_node(4)
    assert world.may_preempt()
    edited = World()
    edited.fail()
    edited.put_job(generation=2)
    assert edited.may_preempt()


def test_others_may_be_stopped_for_it_again_once_a_pod_that_was_on_its_node_is_gone() -> None:
    world = World()
    world.put_pod("other")
    world.put_pod("member", **{POD_GROUP_LABEL: "gang"})
    world.put_pod("elsewhere", "n2")
    world.put_pod("own", **{POD_GROUP_LABEL: "job"})
    world.fail()
    world.state.objects.delete_member(("default", "own"))
    world.state.objects.delete_other_pod(("default", "elsewhere"))
    world.put_pod("newer")
    assert not world.may_preempt(), "what was in the way still is"
    world.state.objects.delete_other_pod(("default", "other"))
    assert world.may_preempt()
    world.fail()
    assert not world.may_preempt(), "it was not the one"
    world.state.objects.delete_member(("default", "member"))
    assert world.may_preempt()


@pytest.mark.parametrize("starts", [1, 2])
def test_silence_about_everybody_keeps_a_gang_from_stopping_others_for_minutes(
    starts: int,
) -> None:
    world = World(start_failures=0)
    for number in range(starts):
        world.be_silent(100.0 * number, 100.0 * number + 60)
        world.be_silent(100.0 * number, 100.0 * number + 60)  # judged again after a failed write
    end, pause = 100.0 * (starts - 1) + 60, 240.0 * starts
    assert not world.may_preempt(end + pause - 1)
    assert "nothing about any pods" in world.held(end + pause - 1)
    assert world.may_preempt(end + pause)
    assert world.held(end + pause) == "no room"


def test_silence_about_everybody_ends_once_others_are_served_and_that_about_one_does_not() -> None:
    world = World(start_failures=0)
    world.be_silent(0.0, 60.0)
    world.serve(30.0)
    assert not world.may_preempt(70.0), "that one was planned while the scheduler was silent"
    world.serve(65.0)
    assert world.may_preempt(70.0)
    later = a_plan(world.job, planned=CREATED + 80)
    assert world.failures.serves_others(world.job, later), "the next silence is its own"
    world.be_silent(80.0, 140.0, failures=1)
    world.serve(200.0)
    assert not world.may_preempt(10**6)
    assert "until it runs or is edited" in world.held(10**6)


# --- gangs that do not get ready --------------------------------------------------------------


def hanging(reason: str, message: str = "", pulls_since: float | None = None) -> Pods:
    """One replica runs; the container of the other waits, its sandbox ready or not."""

    def pods(job: JobFacts, plan: PlanFacts) -> list[PodFacts]:
        made = running(job, plan)
        waiting = {"reason": reason, "message": message}
        said: dict[str, Any] = {
            "containerStatuses": [{"name": "train", "state": {"waiting": waiting}}]
        }
        if pulls_since is not None:
            ready = {"type": "PodReadyToStartContainers", "status": "True"}
            said["conditions"] = [{**ready, "lastTransitionTime": stamp(pulls_since)}]
        made[1] = a_pod(job, plan, plan.members[1], "Pending", status=said)
        return made

    return pods


def test_a_gang_that_does_not_get_ready_in_time_gives_its_places_back() -> None:
    job, view = gang("Starting", pods=hanging("ErrImagePull", "no such image", 5.0))
    assert transition(job, view, situation(after=900.0)) is None
    move = transition(job, view, situation(after=901.0))
    assert move is not None
    assert (move.phase, move.reason) == ("Restarting", Reason.START_TIMED_OUT)
    assert (move.restarts, move.interruptions, move.start_failures) == (0, 1, 1)
    assert move.message == (
        "1 of 2 replicas did not run within startTimeoutSeconds 900; replica 1 of worker on node "
        f"n1: container train is in ErrImagePull: no such image; the next try is at {stamp(961)}"
    )


@pytest.mark.parametrize(("since", "last"), [(100.0, 4500.0), (None, 900.0)])
def test_an_image_that_is_being_pulled_stops_the_clock_for_an_hour(
    since: float | None, last: float
) -> None:
    job, view = gang("Starting", pods=hanging("ContainerCreating", pulls_since=since))
    assert transition(job, view, situation(after=last)) is None
    assert moved(job, view, situation(after=last + 1)) == ("Restarting", Reason.START_TIMED_OUT)


def test_the_time_of_a_pull_that_is_over_does_not_count() -> None:
    def pulled(job: JobFacts, plan: PlanFacts) -> list[PodFacts]:
        made = running(job, plan)
        ready = {"type": "PodReadyToStartContainers", "status": "True"}
        said: dict[str, Any] = {"conditions": [{**ready, "lastTransitionTime": stamp(10)}]}
        state = {"running": {"startedAt": stamp(1010)}}
        said["containerStatuses"] = [{"name": "train", "state": state}]
        made[1] = a_pod(job, plan, plan.members[1], ready=False, status=said)
        return made

    job, view = gang("Starting", pods=pulled)
    assert transition(job, view, situation(after=1900.0)) is None
    assert moved(job, view, situation(after=1901.0)) == ("Restarting", Reason.START_TIMED_OUT)


def test_a_gang_that_has_run_is_not_bound_by_the_limit_on_starts() -> None:
    job, view = gang("Running", pods=hanging("CrashLoopBackOff"))
    assert transition(job, view, situation(after=1e6)) is None


# --- pods that never ran ----------------------------------------------------------------------


def rejected(
    reason: str = "UnexpectedAdmissionError", message: str = "no GPU left", **more: Any
) -> Pods:
    def pods(job: JobFacts, plan: PlanFacts) -> list[PodFacts]:
        made = running(job, plan)
        said = {"reason": reason, "message": message, **more}
        made[1] = a_pod(job, plan, plan.members[1], "Failed", status=said)
        return made

    return pods


NEVER_RAN: dict[str, Any] = {
    "containerStatuses": [{"name": "train", "state": {"waiting": {"reason": "x"}}}]
}
RAN: dict[str, Any] = {
    "containerStatuses": [{"name": "train", "state": {"terminated": {"exitCode": 1}}}]
}


@pytest.mark.parametrize(
    "reason", ["UnexpectedAdmissionError", "OutOfcpu", "TopologyAffinityError", "NodeAffinity"]
)
@pytest.mark.parametrize("more", [{}, NEVER_RAN])
def test_a_pod_that_its_kubelet_refuses_is_an_interruption(
    reason: str, more: dict[str, Any]
) -> None:
    job, view = gang("Starting", pods=rejected(reason, **more), runPolicy={"backoffLimit": 0})
    move = transition(job, view, situation())
    assert move is not None
    assert (move.phase, move.reason) == ("Restarting", Reason.POD_REJECTED)
    assert (move.restarts, move.interruptions, move.start_failures) == (0, 1, 0)
    assert move.message == f"node n1 refused replica 1 of worker: {reason}: no GPU left"


@pytest.mark.parametrize(
    "pods", [rejected("Evicted", **RAN), rejected("DeadlineExceeded"), rejected("")]
)
def test_a_pod_that_ran_or_whose_own_deadline_passed_is_a_failure_of_the_job(pods: Pods) -> None:
    job, view = gang("Running", pods=pods)
    assert moved(job, view) == ("Restarting", Reason.POD_FAILED)


def rejected_by(*nodes: str) -> tuple[Transition, dict[str, Any]]:
    job, view = gang("Starting", pods=rejected(), status={"rejectedBy": list(nodes)})
    move = transition(job, view, situation())
    assert move is not None
    return move, status.after_transition(dict(job.status), job, move, CREATED)


def test_the_same_node_that_refuses_again_makes_it_pause() -> None:
    move, body = rejected_by("n1")
    assert (move.phase, body["rejectedBy"], body["startFailures"]) == ("Restarting", ["n1"], 1)


def test_a_job_pauses_once_five_nodes_have_refused_it_and_after_each_further_one() -> None:
    move, body = rejected_by("a", "b", "c")
    assert (move.start_failures, body["rejectedBy"]) == (0, ["a", "b", "c", "n1"])
    move, body = rejected_by("a", "b", "c", "d")
    assert (move.phase, move.start_failures) == ("Restarting", 1)
    assert body["rejectedBy"] == ["a", "b", "c", "d", "n1"]
    assert body["message"] == (
        "node n1 refused replica 1 of worker: UnexpectedAdmissionError: no GPU left; 4 other "
        f"nodes refused it before; the next try is at {stamp(61)}"
    )
    move, body = rejected_by("a", "b", "c", "d", "e")
    assert (move.phase, move.start_failures) == ("Restarting", 1)
    assert body["rejectedBy"] == ["b", "c", "d", "e", "n1"], "the API knows five"


def test_who_preempts_a_replica_is_said() -> None:
    def preempted(job: JobFacts, plan: PlanFacts) -> list[PodFacts]:
        made = running(job, plan)
        target = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
        target["message"] = "default-scheduler: preempting to accommodate a higher priority pod"
        said = {"conditions": [target]}
        member = plan.members[1]
        made[1] = a_pod(job, plan, member, status=said, deletionTimestamp=stamp())
        return made

    job, view = gang("Starting", pods=preempted)
    move = transition(job, view, situation())
    assert move is not None
    assert move.reason is Reason.POD_LOST
    assert move.message == (
        "replica 1 of worker on node n1 was deleted (PreemptionByScheduler: default-scheduler: "
        "preempting to accommodate a higher priority pod)"
    )
