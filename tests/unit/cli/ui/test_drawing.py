"""What the board draws of a view: colours of gangs, reserved devices, the timeline."""

from itertools import islice, pairwise
from typing import Final

from bireme.cli.gangs import GangLine, line_of
from bireme.cli.ui.drawing import colours, domains, timeline
from bireme.cli.ui.view import NodeRow, Span, View
from bireme.kube.quantities import format_timestamp

NOW: Final = 1e9
GANGS: Final = [f"default/g{number:02}" for number in range(13)]


def a_view(lines: list[GangLine] | None = None, spans: tuple[Span, ...] = ()) -> View:
    return View("test", NOW, lines or [], (), (), (), spans)


def a_line(key: str, minutes: float) -> GangLine:
    """A gang that runs for so long."""
    namespace, name = key.split("/")
    since = format_timestamp(NOW - 60 * minutes)
    status = {"phase": "Running", "admittedTime": since}
    about = {"namespace": namespace, "name": name}
    return line_of({"kind": "TrainingJob", "metadata": about, "status": status})


def test_gangs_differ_while_there_are_colours_and_a_start_changes_none() -> None:
    lines = [a_line(key, 100 - number) for number, key in enumerate(GANGS)]
    shown = [[colours(a_view(lines[:n]))(key) for key in GANGS[:n]] for n in range(1, 14)]
    for before, after in pairwise(shown):
        assert after[: len(before)] == before
    assert all(len(set(each)) == len(each) for each in islice(shown, 12))
    assert len(set(shown[-1])) == 12, "the thirteenth shares one"


def test_devices_that_are_kept_are_marked_whether_they_are_free_or_in_use_still() -> None:
    held, kept = {"a/runs": 5}, {"a/first": 6}
    row = NodeRow("n0", "", "", "rack", "nvidia.com/gpu", 8, held, 1, kept)
    ((_, (tile,)),) = domains([row], lambda gang: gang)
    kinds = [kind for kind, _, _ in tile.cells]
    assert kinds == ["a/runs"] * 2 + ["a/runs due"] * 3 + ["others due", "kept", "kept"]
    assert tile.text == "6 of 8 used, a/runs 5, other pods 1, reserved for a/first 6"


def test_what_starts_after_the_end_of_the_timeline_is_left_out_and_counted() -> None:
    runs = Span("a/runs", "runs", NOW - 600, NOW + 600, 8)
    soon = Span("a/soon", "expected", NOW + 600, NOW + 900, 8)
    late = Span("a/late", "expected", NOW + 90_000, None, 8)
    found = timeline(a_view(spans=(runs, soon, late)))
    assert [row.span for row in found.rows] == [runs, soon]
    assert found.left_out == 1
