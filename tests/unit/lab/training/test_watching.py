"""The display of a training: lines in a log, a bar on a terminal."""

import io

from bireme.testing import ManualClock
from bireme_lab.training.runs import SECONDS_BETWEEN_LINES, display, format_numbers


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_log_gets_a_line_at_first_and_then_one_now_and_then() -> None:
    log, clock = io.StringIO(), ManualClock(0)
    with display(log, clock) as show:
        for done in range(1, 7):
            show("ppo", 1000 * done, 6000, {"loss": 0.5})
            clock.advance(SECONDS_BETWEEN_LINES / 2)
    assert log.getvalue().splitlines() == [
        f"ppo: {done},000 of 6,000 steps; loss 0.5" for done in (1, 3, 5)
    ]


def test_terminal_gets_a_bar_with_the_stage_and_what_was_measured() -> None:
    terminal = Terminal()
    with display(terminal) as show:
        show("ppo", 3, 6, {"validation_slowdown": 3.25})
    assert "ppo" in terminal.getvalue()
    assert "validation slowdown 3.25" in terminal.getvalue()


def test_only_what_was_measured_last_is_shown_the_last_first() -> None:
    numbers = {"loss": 1.0, "kl": 2.0, "entropy": 3.0, "return": 4.0, "slowdown": 12345.678}
    assert format_numbers(numbers) == "slowdown 1.235e+04, return 4, entropy 3, kl 2"
