"""The table of the terminal, and a progress line that stays out of files."""

import io

from bireme.testing import ManualClock
from bireme_lab.simulator.comparison import compare
from bireme_lab.simulator.metrics import measure
from bireme_lab.simulator.reports import terminal
from tests.unit.lab.simulator.outcomes import an_outcome, one_after_another


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_table_has_a_line_per_policy_in_columns() -> None:
    slow = measure(one_after_another(10, 20, 300, policy="slow/packing"))
    quick = measure(one_after_another(10, 20, 30, policy="quick/packing"))
    header, first, second, _, note = terminal.table(compare([slow, quick])).splitlines()
    assert header.split()[:2] == ["policy", "finished"]
    assert note == "JCT: job completion time; its ratio is that of the means, to slow's."
    assert first.split()[0] == "slow"
    assert first.endswith("1.00x")
    assert second.split()[:4] == ["quick", "3", "13", "s"]
    assert second.endswith("0.27x")
    assert len({len(line) for line in (header, first, second)}) == 1


def test_table_shows_intervals_and_says_over_how_many_seeds() -> None:
    runs = [
        measure(one_after_another(10.0 * factor + seed * seed, policy=policy, seed=seed))
        for policy, factor in (("a", 1), ("b", 2))
        for seed in range(5)
    ]
    text = terminal.table(compare(runs))
    assert "1.62x [1." in text
    assert "Means over 5 seeds; in brackets 95 % intervals." in text


def test_policy_without_a_finished_job_has_none_instead_of_a_number() -> None:
    runs = [measure(an_outcome(policy="a")), measure(one_after_another(5, policy="b"))]
    lines = terminal.table(compare(runs)).splitlines()
    assert lines[1].split()[2:6] == ["none"] * 4
    assert "did not finish the same number of jobs" in lines[-1]


def test_progress_writes_over_its_own_line() -> None:
    stream, clock = Terminal(), ManualClock()
    progress = terminal.ProgressLine(stream, clock)
    progress.show("fifo, seed 0", 1, 4)
    assert stream.getvalue() == "\r\x1b[K[" + "=" * 6 + " " * 18 + "]  25 %  fifo, seed 0"
    progress.clear()
    assert stream.getvalue().endswith("\r\x1b[K")


def test_progress_is_written_no_faster_than_an_eye_follows() -> None:
    stream, clock = Terminal(), ManualClock()
    progress = terminal.ProgressLine(stream, clock)
    for done in range(1000):
        progress.show("fifo", done, 1000)
        clock.advance(0.001)
    assert stream.getvalue().count("fifo") == 10


def test_progress_is_silent_where_there_is_no_terminal() -> None:
    stream = io.StringIO()
    progress = terminal.ProgressLine(stream, ManualClock())
    progress.show("fifo", 1, 2)
    progress.clear()
    assert stream.getvalue() == ""
