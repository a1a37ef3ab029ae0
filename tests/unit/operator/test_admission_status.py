"""The admission of a job in its status while it runs: its places, and the gang it passed."""

from bireme.core.decision import Admit
from bireme.core.gangs import Gang
from bireme.core.placement import Placement
from bireme.core.policy import Ranked
from bireme.core.queues import Queue
from bireme.core.reasons import Reason
from bireme.testing import a_gang, a_snapshot, a_task, racks
from bireme_operator import status
from bireme_operator.lifecycle import Transition
from testbed.objects.facts import CREATED, a_job, a_plan

QUEUES = (Queue("default", parent="team"), Queue("team", max_min_runtime_seconds=600))
SNAPSHOT = a_snapshot(racks(1, 2), now=CREATED, queues=QUEUES)


def message_once_it_runs(
    passed: Gang | None = None, learned_seconds: float | None = None, **run_policy: int
) -> str:
    """The message of the condition Admitted of a job that was admitted and runs."""
    job = a_job(runPolicy=run_policy)
    gang = job.gang(0, learned_seconds=learned_seconds)
    admit = Admit(gang, Placement((), "", ""), Ranked(gang, 0.5), "", passed=passed)
    body = status.admission_status(job, a_plan(job, ("r0-n0",)), admit, SNAPSHOT)
    body = status.after_transition(
        body, job, Transition("Running", Reason.GANG_RUNNING, "runs"), CREATED + 9
    )
    (message,) = [c["message"] for c in body["conditions"] if c["type"] == "Admitted"]
    return str(message)


def test_job_that_started_around_a_blocked_one_says_so_while_it_runs() -> None:
    message = message_once_it_runs(a_gang("large", a_task(8)))
    assert message == "1 on r0-n0 (hostname r0-n0); ahead of default/large without delaying it"


def test_job_that_passed_a_blocked_one_by_the_history_of_run_times_says_so_too() -> None:
    message = message_once_it_runs(a_gang("large", a_task(8)), learned_seconds=2500.0)
    assert message == (
        "1 on r0-n0 (hostname r0-n0); ahead of default/large without delaying it; expected to "
        "run at most 42 min, like 90 % of similar runs"
    )


def test_job_that_passed_nobody_says_where_it_sits() -> None:
    assert message_once_it_runs(None) == "1 on r0-n0 (hostname r0-n0)"


def test_job_of_whose_minimum_run_time_less_counts_says_so_while_it_runs() -> None:
    assert message_once_it_runs(minRuntimeSeconds=601) == (
        "1 on r0-n0 (hostname r0-n0); maxMinRuntimeSeconds limits its minRuntimeSeconds 601 to 600"
    )
    assert message_once_it_runs(minRuntimeSeconds=600) == "1 on r0-n0 (hostname r0-n0)"
