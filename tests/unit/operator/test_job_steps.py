"""Steps with one job: what is written when it is admitted, starts and ends."""

import asyncio
from collections.abc import Coroutine, Mapping
from typing import Any, cast
from unittest.mock import AsyncMock, Mock

import numpy as np
import pytest

from bireme.core.decision import Admit
from bireme.core.gangs import Key
from bireme.core.gpus import GPU
from bireme.core.placement import make_placement
from bireme.core.policy import Ranked
from bireme.core.usage import Holder, Use
from bireme.kube.allocations import AssumedPlan
from bireme.kube.plans import PlanFacts
from bireme.kube.training_jobs import JobFacts
from bireme.testing import ManualClock
from bireme_operator.actuator import Actuator
from bireme_operator.admission import JobAdmission
from bireme_operator.dry_runs import DryRuns
from bireme_operator.jobs import JobReconciler
from bireme_operator.status_writer import StatusWriter
from bireme_operator.workqueue import WorkQueue
from testbed.objects.cluster_state import PLAN, WORKERS, ClusterStateFeed, own_pod
from tests.unit.operator.lifecycle_cases import situation

KEY = ("default", "job")


class Desk:
    """One job, and stand-ins for all that writes; they record what is to be written."""

    def __init__(self) -> None:
        self.cluster = ClusterStateFeed()
        self.state = self.cluster.state
        self.clock = ManualClock()
        self.begun: list[Coroutine[Any, Any, None]] = []
        self.assumed: list[AssumedPlan | None] = []
        self.written: list[dict[str, Any]] = []
        """Statuses of changes of phase."""
        self.reported: list[dict[str, Any]] = []
        self.admitted: list[tuple[JobFacts, PlanFacts, Mapping[str, Any]]] = []
        self.usage = Mock()
        self.max_grace_seconds = 3600
        """As the actuator it stands in for."""
        self.report_is_written = asyncio.Event()
        self.report_is_written.set()
        self.jobs = JobReconciler(
            state=self.state,
            work=cast(WorkQueue, self),
            actuator=cast(Actuator, self),
            admission=Mock(),
            resizes=Mock(repair=Mock(return_value=False)),
            reports=cast(StatusWriter, self),
            progress=Mock(status_update=Mock(return_value={})),
            events=Mock(post=AsyncMock()),
            start_failures=Mock(),
            troubles=Mock(),
            services=Mock(restore=Mock(return_value=False), add_obstacle=lambda wanted, _: wanted),
            metrics=Mock(),
            usage=self.usage,
            clock=self.clock,
            stalled_after_seconds=1800.0,
        )

    def start(
        self, key: Key, work: Coroutine[Any, Any, None], assumed: AssumedPlan | None = None
    ) -> None:
        self.begun.append(work)
        self.assumed.append(assumed)

    def is_writing(self, uid: str) -> bool:
        return False

    async def wait_for_write(self, uid: str) -> None:
        await self.report_is_written.wait()

    async def admit(self, job: JobFacts, plan: PlanFacts, wanted: Mapping[str, Any]) -> None:
        self.admitted.append((job, plan, wanted))

    async def write_job(self, job: JobFacts, wanted: dict[str, Any], **_: Any) -> None:
        self.written.append(wanted)

    def submit_job(self, job: JobFacts, wanted: dict[str, Any]) -> None:
        self.reported.append(wanted)

    async def step(self) -> None:
        """Reconcile the job, and carry out what that begins."""
        self.jobs.reconcile(self.state.objects.jobs[KEY], situation())
        for work in self.begun:
            await work
        self.begun.clear()

    def phase(self, phase: str, *pods: Any, **spec: Any) -> None:
        """The job in ``phase`` by its plan, with these pods."""
        self.cluster.job(plan=PLAN, status={"phase": phase}, **spec)
        for manifest in pods:
            self.cluster.member(manifest)


# --- admission --------------------------------------------------------------------------------


class NothingToLearn:
    """Dry runs of pods of which all is known."""

    async def learn(self, job: JobFacts) -> None: ...


def admission(desk: Desk) -> None:
    """Begin to admit the waiting job to n0 and n1."""
    snapshot = desk.cluster.snapshot()
    (gang,) = snapshot.waiting
    placement = make_placement(gang, snapshot.nodes, {"worker": np.array([1, 1])})
    parts = (desk.state, cast(WorkQueue, desk), cast(Actuator, desk), cast(StatusWriter, desk))
    admits = JobAdmission(*parts, epoch=7, dry_runs=cast(DryRuns, NothingToLearn()))
    admits.admit(
        desk.state.objects.jobs[KEY], Admit(gang, placement, Ranked(gang, 0.5), ""), snapshot
    )


async def test_admission_holds_its_places_while_a_report_about_its_wait_is_written() -> None:
    desk = Desk()
    desk.cluster.job()
    desk.report_is_written.clear()
    admission(desk)
    (work,), (assumed,) = desk.begun, desk.assumed
    assert assumed is not None
    assert [m.node for m in assumed.plan.members] == ["n0", "n1"]
    admitting = asyncio.create_task(work)
    await asyncio.sleep(0)
    assert desk.admitted == []
    desk.cluster.job(status={"phase": "Pending", "message": "waits"})
    desk.report_is_written.set()
    await admitting
    ((job, plan, wanted),) = desk.admitted
    assert job is desk.state.objects.jobs[KEY], "over the version that the report made"
    assert plan is assumed.plan
    assert (wanted["phase"], wanted["plan"]["epoch"]) == ("Starting", 7)


@pytest.mark.parametrize("change", ["edited", "made anew", "gone"])
async def test_job_that_became_another_while_its_report_was_written_is_not_admitted(
    change: str,
) -> None:
    desk = Desk()
    desk.cluster.job()
    admission(desk)
    match change:
        case "edited":
            desk.cluster.job({**WORKERS, "replicas": 3})
        case "made anew":
            desk.cluster.job(uid="next-uid")
        case "gone":
            desk.cluster.job_gone()
    for work in desk.begun:
        await work
    assert desk.admitted == []


# --- start ------------------------------------------------------------------------------------


async def test_counts_of_a_gang_that_starts_are_reported_only_if_that_takes_seconds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    desk, later = Desk(), Mock()
    monkeypatch.setattr(asyncio.get_running_loop(), "call_later", later)
    desk.phase("Starting", own_pod(0), own_pod(1, "Pending", node=""))
    await desk.step()
    assert desk.reported == []
    later.assert_called_once_with(5.0, desk.state.changes.requeue, KEY)
    desk.clock.advance(4.9)
    await desk.step()
    assert desk.reported == []
    desk.clock.advance(0.1)
    await desk.step()
    assert [status["ready"] for status in desk.reported] == ["1/2"]


async def test_gang_that_runs_says_so_at_once() -> None:
    desk = Desk()
    desk.phase("Starting", own_pod(0), own_pod(1))
    await desk.step()
    assert [(s["phase"], s["ready"]) for s in desk.written] == [("Running", "2/2")]
    assert "plan" in desk.written[0]


# --- end --------------------------------------------------------------------------------------


async def test_job_that_ended_gives_its_plan_back_in_the_same_write() -> None:
    desk = Desk()
    desk.phase("Running", own_pod(0, "Succeeded"), own_pod(1, "Succeeded"))
    await desk.step()
    (written,) = desk.written
    assert (written["phase"], "plan" in written) == ("Succeeded", False)
    assert written["tasks"][0]["succeeded"] == 2


async def test_job_that_ended_keeps_its_plan_while_a_pod_of_it_runs() -> None:
    desk = Desk()
    run_policy = {"backoffLimit": 0}
    desk.phase("Running", own_pod(0), own_pod(1, "Failed"), runPolicy=run_policy)
    await desk.step()
    (written,) = desk.written
    assert (written["phase"], "plan" in written) == ("Failed", True)


# --- what a stop loses ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("phase", "second", "loses"),
    [("Running", "Failed", True), ("Running", "Succeeded", False), ("Starting", "Failed", False)],
)
async def test_a_gang_that_ran_and_did_not_succeed_loses_work(
    phase: str, second: str, loses: bool
) -> None:
    desk = Desk()
    first = "Succeeded" if second == "Succeeded" else "Running"
    limit = {"backoffLimit": 0}
    desk.phase(phase, own_pod(0, first), own_pod(1, second), runPolicy=limit)
    await desk.step()
    assert [wanted["phase"] for wanted in desk.written] == [second]
    counted = [loss for call in desk.usage.count_loss.call_args_list for loss in call.args[0]]
    holder = Holder(GPU, PLAN.queue, "default", "", Use.RUNNING)
    assert counted == [holder] * loses
