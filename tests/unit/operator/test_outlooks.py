"""The outlook of a leader: renewed by a process of its own, and kept where that fails."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from bireme.core.cycle import run_cycle
from bireme.core.decision import Decision
from bireme.core.outlook import look_ahead
from bireme.core.settings import SchedulingSettings
from bireme.core.snapshot import ClusterSnapshot
from bireme.registry import make_policy
from bireme.rl.lookup import SETTINGS_SOURCE, PolicySource
from bireme.testing import ManualClock, a_gang, a_running_gang, a_snapshot, a_task, racks
from bireme.testing import with_running as with_gangs
from bireme_operator.metrics import OperatorMetrics
from bireme_operator.outlooks import Outlooks, StartForecast
from bireme_operator.questions import WorkerProcess

SETTINGS = SchedulingSettings()
POLICY = make_policy(SETTINGS)
NOW = 1000.0
PATIENCE_SECONDS = 60.0


def line(*waiting: str, now: float = NOW) -> ClusterSnapshot:
    """A node of 8 GPUs that a gang fills for ten minutes, and gangs that want it as long."""
    gangs = [
        replace(a_gang(name, a_task(8), arrived=float(place)), estimated_seconds=600.0)
        for place, name in enumerate(waiting)
    ]
    empty = a_snapshot(racks(1, 1), *gangs, now=now, settings=SETTINGS)
    runs = replace(a_gang("r", a_task(8)), estimated_seconds=600.0)
    return with_gangs(empty, replace(a_running_gang(runs, empty.nodes), started=NOW))


class Renewing:
    """Outlooks of a process that runs ``program`` in place of the real one, if any is given."""

    def __init__(self, *program: str, limit_seconds: float = PATIENCE_SECONDS) -> None:
        self.metrics, self.clock = OperatorMetrics(), ManualClock()
        questions = WorkerProcess(limit_seconds, 2**29, "")
        if program:
            questions.program = program
        self.outlooks = Outlooks(
            "test/1", SETTINGS, questions, 0.0, self.metrics.outlook, self.clock
        )

    def submit(self, snapshot: ClusterSnapshot, source: PolicySource = SETTINGS_SOURCE) -> Decision:
        decision = run_cycle(snapshot, POLICY)
        self.outlooks.submit(snapshot, decision, source)
        return decision

    def count(self, outcome: str) -> float:
        name, registry = "bireme_outlook_renewals_total", self.metrics.registry
        return registry.get_sample_value(name, {"outcome": outcome}) or 0.0

    async def counted(self, outcome: str, times: int = 1) -> StartForecast | None:
        """Return the latest outlook once so many renewals came out so."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while self.count(outcome) < times:
                await asyncio.sleep(0.01)
        return self.outlooks.latest


async def test_the_process_foresees_what_the_core_does_and_only_after_a_change_of_the_line() -> (
    None
):
    renewing, snapshot = Renewing(), line("a", "b")
    decision = renewing.submit(snapshot)
    found = await renewing.counted("renewed")
    assert found is not None
    assert found.outlook == look_ahead(snapshot, decision, POLICY)
    assert found.ranges["b"].earliest == NOW + 1200.0
    renewing.submit(line("a", "b", now=NOW + 60.0))
    assert not renewing.outlooks._tasks, "the line is the same"
    renewing.submit(line("a", "b", "c", now=NOW + 60.0))
    renewing.submit(line("b", "c", now=NOW + 70.0))
    again = await renewing.counted("renewed", 2)
    assert again is not None
    assert [each.gang.name for each in again.outlook.prospects] == ["b", "c"], "the latest line"
    renewing.submit(line(now=NOW + 90.0))
    assert renewing.outlooks.latest is not None
    assert renewing.outlooks.latest.outlook.prospects == ()
    await renewing.outlooks.close()


@pytest.mark.parametrize(
    ("program", "outcome"),
    [
        ("import sys; sys.exit('no memory')", "died"),
        ("import time; time.sleep(1000)", "late"),
        ("print('{}')", "unreadable"),
        ("""print('{"now":1,"until":1,"cycles":1,"cut":"Never","starts":{}}')""", "unreadable"),
    ],
)  # fmt: skip
async def test_what_fails_is_counted_and_the_outlook_before_stays(
    program: str, outcome: str
) -> None:
    renewing = Renewing()
    renewing.submit(line("a"))
    before = await renewing.counted("renewed")
    questions = renewing.outlooks.questions
    questions.program, questions.limit_seconds = (sys.executable, "-c", program), 1.0
    renewing.submit(line("a", "b", now=NOW + 60.0))
    assert await renewing.counted(outcome) is before is not None
    renewing.submit(line("a", "b", now=NOW + 61.0))
    assert renewing.outlooks._tasks, "it asks again, though the line is the same"
    await renewing.outlooks.close()


async def test_a_policy_that_cannot_be_made_again_is_named() -> None:
    renewing = Renewing()
    renewing.submit(line("a"), PolicySource("lost", checkpoint="nowhere"))
    assert await renewing.counted("died") is None


def is_alive(pid: int) -> bool:
    try:
        return "(zombie)" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False


def children(pid: int) -> list[int]:
    tasks = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for task in tasks for child in task.read_text().split()]


async def gone(pids: list[int]) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while any(map(is_alive, pids)):
            await asyncio.sleep(0.01)


async def test_closing_ends_the_process() -> None:
    renewing = Renewing(sys.executable, "-c", "import time; time.sleep(1000)")
    mine = set(children(os.getpid()))
    renewing.submit(line("a"))
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not (new := list(set(children(os.getpid())) - mine)):
            await asyncio.sleep(0.01)
    await renewing.outlooks.close()
    await gone(new)


_LEADER = """
import asyncio, sys
from bireme.replay import questions
from bireme_operator.questions import WorkerProcess
asked = WorkerProcess(1000.0, 0, "")
asked.program = (
    asked.program[0], "-c",
    "import os, sys, time, pathlib; from bireme.replay import questions as q;"
    "q.Decoder.decode = lambda *_: pathlib.Path(sys.argv[1]).write_text("
    "f'{os.getpid()} {os.nice(0)}') and time.sleep(1000); q.main()",
    sys.argv[1],
)
header = (
    b'{"format":"bireme-record","version":1,"bireme":"0","run":"x","number":1,"settings":{}}'
)
asyncio.run(asked.ask(questions.OutlookQuestion(), header + b"\\n\\n", questions.OutlookAnswer))
"""


async def test_the_process_yields_to_others_and_ends_with_a_leader_that_is_killed(
    tmp_path: Path,
) -> None:
    reads = tmp_path / "reads"
    leader = subprocess.Popen([sys.executable, "-c", _LEADER, str(reads)])
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not (reads.exists() and reads.read_text()):
        assert time.monotonic() < deadline
        assert leader.poll() is None
        await asyncio.sleep(0.02)
    child, nice = map(int, reads.read_text().split())
    assert nice == 19
    assert is_alive(child)
    leader.send_signal(signal.SIGKILL)
    leader.wait()
    await gone([child])
