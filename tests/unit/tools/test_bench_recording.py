"""The measurement of what recording costs, on a cluster small enough for a test."""

import re

import pytest

from benchmarks.timings.recording import main


def test_cycle_in_which_little_changed_is_far_shorter_than_the_first(
    capsys: pytest.CaptureFixture[str],
) -> None:
    main(["40", "20"])
    printed = capsys.readouterr().out
    first, later = (int(n.replace(",", "")) for n in re.findall(r"([\d,]+) bytes", printed))
    assert later < first / 4
