"""The comparison of a page with the output of its commands, and its words for a difference."""

import pytest

from testbed.pages.comparison import differences

PRINTED = """\
NAME        PHASE    AGE
resnet-ddp  Running  12 s
"""


@pytest.mark.parametrize(
    ("page", "program"),
    [
        ("NAME   PHASE     AGE\nresnet-ddp   Running   3 s", PRINTED),
        ("...\nresnet-ddp  Running  3 s", PRINTED),
        ("NAME  ...\nresnet-ddp  Running  ...", PRINTED),
        ("free at 2026-11-26T05:09:18Z", "free at 2026-12-01T02:25:38Z"),
        ("waits 4m5s, expected in 60 min", "waits 59s, expected in 59 min"),
        ("on 127.0.0.1:18082 by 10.64.0.1", "on 127.0.0.1:39501 by 10.105.180.80"),
        ("priority 0.4333 = wait 0 x 0.15", "priority 0.4334 = wait 0.0001 x 0.15"),
        ("priority 0.225 of 0.4", "priority 0.2249 of 0.3999"),
        ("a long line that\n  the page breaks\nend", "a long line that the page breaks\nend"),
    ],
)
def test_what_varies_and_what_is_left_out_is_no_difference(page: str, program: str) -> None:
    assert differences(page, program) == []


@pytest.mark.parametrize(
    ("page", "program"),
    [
        ("resnet-ddp  Running  3 s", PRINTED),
        ("priority 0.43", "priority 0.44"),
        ("on 127.0.0.1:18082", "on 127.0.0.2:18082"),
        ("two\nlines", "two\n\nlines"),
        ("...\nlast", "last\nand one more"),
        ("first\n...", "one more\nfirst"),
    ],
)
def test_lines_of_one_side_alone_are_a_difference(page: str, program: str) -> None:
    assert differences(page, program)


def test_a_difference_is_shown_line_by_line() -> None:
    page = "NAME        PHASE    AGE\nresnet-ddp  Pending  3 s\n...\nlast"
    program = f"{PRINTED}one\ntwo\nlast"
    assert differences(page, program) == [
        "  NAME  PHASE  AGE",
        "- resnet-ddp  Pending  <duration>",
        "+ resnet-ddp  Running  <duration>",
        "+ one",
        "+ two",
        "  last",
    ]
