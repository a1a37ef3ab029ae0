"""TrainingJobs between decision and API: what the loop does to one job at a time."""

import asyncio
from collections.abc import Callable

import structlog

from bireme.core.decision import Admit, Hold
from bireme.core.gangs import Key
from bireme.core.reasons import Reason
from bireme.core.snapshot import ClusterSnapshot
from bireme.kube import plans
from bireme.kube.allocations import GangView
from bireme.kube.client import ApiError, NotLeader
from bireme.kube.plans import Member, PlanFacts
from bireme.kube.pod_groups import GroupFacts
from bireme.kube.training_jobs import JobFacts
from bireme.tasks import Tasks
from bireme_operator import lifecycle, status
from bireme_operator.actuator import Actuator, AdmissionRejected
from bireme_operator.events import Events
from bireme_operator.lifecycle import Situation, Transition
from bireme_operator.metrics import OperatorMetrics
from bireme_operator.progress_auth import ProgressService
from bireme_operator.resizes import Resizes
from bireme_operator.settings import OperatorSettings
from bireme_operator.status import Reports

_log = structlog.get_logger(__name__)
_STARTING_SECONDS = 5.0
"""A gang that runs within this time after its pods were made is reported once, as Running."""
_CHECKS_AT_ONCE = 4


class Jobs:
    """Admission, life cycle and reports of TrainingJobs."""

    def __init__(
        self,
        actuator: Actuator,
        resizes: Resizes,
        reports: Reports,
        progress: ProgressService,
        events: Events,
        metrics: OperatorMetrics,
        settings: OperatorSettings,
        clock: Callable[[], float],
        on_refused: Callable[[Key, AdmissionRejected], None],
    ) -> None:
        self._actuator = actuator
        self._state = actuator.state
        self._writes = actuator.writes
        self._resizes = resizes
        self._reports = reports
        self._progress = progress
        self._events = events
        self._metrics = metrics
        self._settings = settings
        self._clock = clock
        self._on_refused = on_refused
        self._admitted: dict[str, Admit] = {}
        self._pods_made: dict[str, float] = {}
        self._bind_failures: dict[str, int] = {}
        self._checked: dict[str, str] = {}
        self._checks = Tasks()

    # --- admission ------------------------------------------------------------------------

    def admit(self, job: JobFacts, admit: Admit, snapshot: ClusterSnapshot) -> None:
        """Hand an admitted job to the actuator."""
        self._admitted[job.uid] = admit
        plan = self.plan(admit, snapshot, job.attempt, job.spec_hash)
        self._actuator.admit(job, admit, plan)

    def plan(
        self, admit: Admit, snapshot: ClusterSnapshot, attempt: int, spec_hash: str
    ) -> PlanFacts:
        """The plan of an admission; unpinned when pinned ones kept failing to bind."""
        failures = self._bind_failures.get(admit.gang.uid, 0)
        return plans.make_plan(
            admit.gang,
            admit.placement,
            snapshot.nodes,
            epoch=self._actuator.epoch,
            attempt=attempt,
            spec_hash=spec_hash,
            now=snapshot.now,
            mode="Score" if failures >= self._settings.max_bind_failures else "Pinned",
        )

    def check_template(self, job: JobFacts, hold: Hold) -> None:
        """Let the API server try the pods of a job that waits; again once it was refused."""
        if hold.gang.fault is not None or self._checked.get(job.uid) == job.spec_hash:
            return
        if len(self._checks) >= _CHECKS_AT_ONCE:
            return  # the next turn offers it again
        self._checked[job.uid] = job.spec_hash
        self._checks.start(self._try_template(job, hold))

    async def _try_template(self, job: JobFacts, hold: Hold) -> None:
        members = tuple(Member(task.name, "any-node", 0) for task in hold.gang.tasks)
        requests = {task.name: task.request for task in hold.gang.tasks}
        roles = {task.name: task.role.value for task in hold.gang.tasks}
        plan = PlanFacts(0, 0, job.spec_hash, "Pinned", 0.0, requests, roles, members)
        try:
            await asyncio.sleep(self._settings.template_check_seconds)
            current = self._state.jobs.get(job.key)
            if current is not None and current.phase in ("Pending", "Restarting"):
                await self._actuator.try_template(job, plan)
        except AdmissionRejected as refused:
            self._checked.pop(job.uid, None)
            self._on_refused(job.key, refused)
        except (ApiError, NotLeader):
            self._checked.pop(job.uid, None)

    # --- life cycle -----------------------------------------------------------------------

    def tend(self, job: JobFacts, group: GroupFacts | None, at: Situation) -> None:
        """Move the job on if it is time, else do what its phase asks for, else report."""
        if self._reports.is_writing(job.uid):
            return  # what it says is about to change; the end of the write wakes us
        is_own = group is not None and group.job_uid == job.uid
        view = self._state.view(job.key) if is_own else None
        seen = None if view is None else lifecycle.going_on(job, view, at)
        move = lifecycle.transition(job, seen, at)
        if move is not None and not self._is_premature(job, move):
            self._actuator.start(job.key, self._move(job, move, view, at.now))
            return
        if group is not None and view is not None and self._resizes.mend(job, group, view, at):
            return
        own = self._actuator.pods_of(job)
        chore = lifecycle.chore(job, group, view, own, at.now, at.lost_node)
        if chore:
            self._actuator.do(job, chore, view.plan if view is not None else None)
        elif view is not None and job.phase in lifecycle.ACTIVE:
            wanted = status.counted(dict(job.status), job, view)
            wanted |= self._progress.told(job, view)
            if lifecycle.is_resizable(job):
                wanted = status.sized(wanted, view, self._state.node_table)
            self._reports.offer_job(job, wanted)
            if group is not None and job.phase == "Running":
                running = {"phase": "Running", "reason": Reason.GANG_RUNNING.value}
                self._reports.offer_group(group, {**group.status, **running})

    def is_free(self, job: JobFacts) -> bool:
        """Whether nothing is being done to the job, nor said about it."""
        return self._actuator.is_free(job.key) and not self._reports.is_writing(job.uid)

    async def preempt(self, job: JobFacts, message: str, now: float) -> None:
        """Record that the gang stops for another one; its life cycle does the rest."""
        move = Transition("Restarting", Reason.PREEMPTED, message, preemptions=1)
        await self._move(job, move, self._state.view(job.key), now)

    def _is_premature(self, job: JobFacts, move: Transition) -> bool:
        if move.phase != "Starting":
            return False
        # Nobody judges a gang while its pods are being created, so this is the end of that.
        wait = (
            self._pods_made.setdefault(job.uid, self._clock()) + _STARTING_SECONDS - self._clock()
        )
        if wait <= 0:
            return False
        loop = asyncio.get_running_loop()
        loop.call_later(wait, self._actuator.wake, job.key)
        return True

    async def _move(
        self, job: JobFacts, move: Transition, view: GangView | None, now: float
    ) -> None:
        before = {**job.status, **self._progress.told(job, view, at_once=True)}
        is_current = view is not None and view.plan.attempt == job.attempt
        if view is not None and is_current and "admittedTime" not in before:
            admit = self._admitted.get(job.uid)
            before = status.admitted(job, view, self._state.node_table, admit)
        wanted = status.moved(before, job, move, now)
        if view is not None and not move.starts_again:
            wanted = status.counted(wanted, job, view)
        in_place = move.phase in lifecycle.ACTIVE
        written = await self._writes.write_job_status(job, wanted, can_wait=in_place)
        self._metrics.gangs.count_move(job, move, view, now)
        self._remember(job, move)
        watches = self._actuator.watches
        await watches.wait_past(watches.jobs, written)
        await self._events.post("TrainingJob", job.key, job.uid, move.reason, wanted["message"])

    def _remember(self, job: JobFacts, move: Transition) -> None:
        if move.reason is Reason.GANG_NOT_BOUND_IN_TIME:
            self._bind_failures[job.uid] = self._bind_failures.get(job.uid, 0) + 1
        elif move.phase in ("Running", "Succeeded", "Failed", "Suspended"):
            self._bind_failures.pop(job.uid, None)
        if move.phase != "Starting":
            self._admitted.pop(job.uid, None)
        self._pods_made.pop(job.uid, None)

    async def close(self) -> None:
        """Stop the template checks under way."""
        await self._checks.close()

    def forget(self, uids: set[str]) -> None:
        """Drop what is remembered of jobs that are gone; ``uids`` are those that exist."""
        self._progress.forget(uids)
        self._admitted = {uid: x for uid, x in self._admitted.items() if uid in uids}
        self._pods_made = {uid: x for uid, x in self._pods_made.items() if uid in uids}
        self._bind_failures = {uid: x for uid, x in self._bind_failures.items() if uid in uids}
        self._checked = {uid: x for uid, x in self._checked.items() if uid in uids}
