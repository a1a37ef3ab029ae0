"""Decided resizes: when they are carried out, and what the status says of them."""

from collections.abc import Coroutine
from dataclasses import replace
from typing import Any, cast
from unittest.mock import Mock

import numpy as np
import pytest

from bireme.core.decision import Decision, Resize
from bireme.core.gangs import Key
from bireme.core.placement import Placement, TaskPlacement
from bireme.core.reasons import Reason
from bireme.kube.allocations import AssumedPlan
from bireme_operator import status
from bireme_operator.actuator import Actuator
from bireme_operator.events import Events
from bireme_operator.executor import DecisionExecutor
from bireme_operator.metrics import OperatorMetrics
from bireme_operator.reconcile import ReconcileErrors
from bireme_operator.resizes import Resizes
from bireme_operator.status_writer import StatusWriter
from bireme_operator.workqueue import WorkQueue
from testbed.objects.cluster_state import ClusterStateFeed
from testbed.objects.facts import CREATED, a_job, a_plan, a_view, pod_manifest, running
from testbed.scenario.manifests import task
from tests.unit.operator.lifecycle_cases import situation

WORKERS = task("worker", 3, minReplicas=1, maxReplicas=6, gpus=2)
JOB = a_job(WORKERS, rendezvous="torch", status={"phase": "Running"})
PLAN = replace(a_plan(JOB, ("n0", "n1")), queue="q")
KEY = JOB.key


class Desk:
    """Takes the place of work queue, actuator and status writer, and records what is begun."""

    def __init__(self) -> None:
        self.cluster = ClusterStateFeed()
        self.state = self.cluster.state
        self.cluster.job(WORKERS, plan=PLAN, rendezvous="torch", status={"phase": "Running"})
        for member in PLAN.members:
            self.cluster.member(pod_manifest(JOB, PLAN, member))
        self.assumed: list[AssumedPlan | None] = []
        self.is_telling = False
        self.troubles = Mock()
        self.resizes = Resizes(
            state=self.state,
            work=cast(WorkQueue, self),
            actuator=cast(Actuator, self),
            reports=cast(StatusWriter, self),
            events=cast(Events, None),
            metrics=OperatorMetrics(),
            troubles=self.troubles,
            now=lambda: CREATED + 9,
        )

    async def create_pods(self, *_: object) -> None:
        """Nothing is created."""

    def is_free(self, key: Key) -> bool:
        return key == KEY

    def is_writing(self, uid: str) -> bool:
        return self.is_telling and uid == "job-uid"

    def start(
        self, key: Key, work: Coroutine[Any, Any, None], assumed: AssumedPlan | None = None
    ) -> None:
        work.close()
        self.assumed.append(assumed)

    def decide(self, *counts: int) -> None:
        """Carry out that n0 and n1 hold so many replicas."""
        snapshot = self.cluster.snapshot()
        self.carry_out(snapshot.running_by_uid["job-uid"], *counts)

    def carry_out(self, running: Any, *counts: int) -> None:
        rows = np.flatnonzero(counts)
        placement = Placement((TaskPlacement("worker", rows, np.array(counts)[rows]),), "", "")
        resize = Resize(running, placement, "why", Reason.GROWN)
        self.resizes.carry_out(resize, self.cluster.snapshot(), dict(self.state.objects.jobs))


@pytest.mark.parametrize("counts", [(2, 3), (2, 0), (1, 0)])
def test_a_resize_keeps_its_places_while_it_is_written(counts: tuple[int, int]) -> None:
    desk = Desk()
    desk.decide(*counts)
    (assumed,) = desk.assumed
    assert assumed is not None
    assert (assumed.plan.queue, assumed.job_uid) == ("q", "job-uid")
    assert assumed.plan.replicas == {"worker": sum(counts)}
    assert assumed.plan.resized == CREATED + 9


def test_a_gang_whose_status_is_being_written_is_resized_later() -> None:
    desk = Desk()
    desk.is_telling = True
    desk.decide(2, 3)
    assert desk.assumed == []


def test_a_gang_that_lost_a_replica_meanwhile_is_left_alone() -> None:
    desk = Desk()
    decided = desk.cluster.snapshot().running_by_uid["job-uid"]
    desk.cluster.gone(pod_manifest(JOB, PLAN, PLAN.members[2]))
    desk.carry_out(decided, 2, 3)
    assert desk.assumed == []


def test_a_job_that_was_made_anew_is_left_alone() -> None:
    desk = Desk()
    decided = desk.cluster.snapshot().running_by_uid["job-uid"]
    old = replace(decided, gang=replace(decided.gang, uid="another"))
    desk.carry_out(old, 2, 3)
    assert desk.assumed == []


def test_the_replica_where_the_others_meet_is_never_given_up() -> None:
    desk = Desk()
    desk.decide(0, 1)
    assert desk.assumed == []


def test_a_gang_without_a_lost_replica_is_smaller_and_no_smaller_than_that() -> None:
    desk = Desk()
    view = desk.state.views.get(KEY)
    assert view is not None
    assert desk.resizes.repair(JOB, view, situation(lost="n1"))
    (assumed,) = desk.assumed
    assert assumed is not None
    assert [m.index for m in assumed.plan.members] == [0, 2]
    assert not desk.resizes.repair(JOB, view, situation())


def test_a_replica_that_is_given_up_because_it_failed_is_trouble_with_its_node() -> None:
    desk = Desk()
    desk.cluster.member(pod_manifest(JOB, PLAN, PLAN.members[1], "Failed"))
    view = desk.state.views.get(KEY)
    assert view is not None
    assert desk.resizes.repair(JOB, view, situation())
    namespace, failed = desk.troubles.observe_pods.call_args.args
    assert (namespace, [pod.key[1] for pod in failed]) == ("default", ["job-worker-1"])


def test_a_replica_is_not_made_from_templates_that_were_edited_since_the_plan() -> None:
    desk = Desk()
    desk.cluster.gone(pod_manifest(JOB, PLAN, PLAN.members[2]))
    view = desk.state.views.get(KEY)
    assert view is not None
    edited = a_job(
        {**WORKERS, "template": task("worker", gpus=1)["template"]},
        rendezvous="torch",
        status={"phase": "Running"},
    )
    assert not desk.resizes.repair(edited, view, situation())
    assert desk.resizes.repair(JOB, view, situation())


def test_the_status_of_a_gang_says_the_size_it_has_now() -> None:
    desk = Desk()
    view = a_view(JOB, PLAN, running(JOB, PLAN))
    reported = status.with_size({"gpus": 2}, view, desk.state.nodes.table)
    assert (reported["gpus"], reported["placement"]["nodes"]) == (6, 2)


class BrokenResizes:
    """Fails at every resize, and records the gangs."""

    def __init__(self) -> None:
        self.tried: list[Key] = []

    def carry_out(self, resize: Resize, *_: object) -> None:
        self.tried.append(resize.gang.key)
        raise ValueError("a bug")


def test_a_resize_that_cannot_be_carried_out_stops_no_other_and_backs_its_gang_off() -> None:
    desk, resizes, work = Desk(), BrokenResizes(), Mock(is_pausing=lambda _: False)
    errors = ReconcileErrors(desk.state, work, Mock(), OperatorMetrics())
    executor = DecisionExecutor(
        *(desk.state, work, Mock(), Mock(), Mock(), cast(Resizes, resizes), Mock(), errors),
        troubles=Mock(),
        start_failures=Mock(),
        metrics=Mock(),
        now=lambda: CREATED,
    )
    snapshot = desk.cluster.snapshot()
    (first,) = snapshot.running
    other = replace(first, gang=replace(first.gang, name="other", uid="other-uid"))
    resized = [Resize(each, each.placement, "why", Reason.GROWN) for each in (first, other)]
    executor.carry_out(Decision(tuple(resized)), executor.basis(snapshot))
    assert resizes.tried == [KEY, other.gang.key]
    assert [call.args[0] for call in work.back_off.call_args_list] == resizes.tried
