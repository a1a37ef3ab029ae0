"""The page: complete in itself, well formed, honest, and readable in both modes."""

import re
from collections.abc import Sequence
from html.parser import HTMLParser

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bireme_lab.simulator.comparison import compare
from bireme_lab.simulator.metrics import measure
from bireme_lab.simulator.outcome import Outcome
from bireme_lab.simulator.reports import page, svg
from testbed.simulations import a_job
from tests.unit.lab.simulator.outcomes import (
    a_record,
    a_run,
    a_series,
    an_outcome,
    one_after_another,
)

VOID = {"meta", "input", "rect", "path", "br"}
NODES = {"n0": 4, "n1": 4}


class Page(HTMLParser):
    """Elements and text; ``faults`` are tags that do not match."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.faults: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        self.faults += self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        if not self._open or self._open.pop() != tag:
            self.faults.append(f"/{tag}")

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


def outcomes_of(*policies: str, seeds: Sequence[int] = (0,)) -> list[Outcome]:
    """By seed, then policy: the later a policy is named, the longer its jobs take."""
    return [
        one_after_another(10.0 + seed, 20.0 * (at + 1), 300.0, policy=policy, seed=seed)
        for seed in seeds
        for at, policy in enumerate(policies)
    ]


def rendered(outcomes: Sequence[Outcome], **more: object) -> str:
    comparison = compare([measure(outcome) for outcome in outcomes])
    shown = outcomes[: len(comparison.results)]
    return page.render(page.PageContent(comparison, shown, NODES, **more))  # type: ignore[arg-type]


def test_page_is_well_formed() -> None:
    assert Page(rendered(outcomes_of("fifo/packing", "srtf/packing"))).faults == []


def test_every_element_is_one_that_browsers_know() -> None:
    known = "html head meta title style body main header footer section h1 h2 h3 h4 p div span"
    known += " abbr code small b i ul li table thead tbody tr th td dl dt dd input label"
    known += " svg path rect g"
    found = {tag for tag, _ in Page(rendered(outcomes_of("fifo/packing", "srtf/packing"))).tags}
    assert found <= set(known.split())


def test_nothing_is_loaded_and_nothing_runs() -> None:
    text = rendered(outcomes_of("fifo/packing", "srtf/packing"))
    found = Page(text)
    names = {name for _, attributes in found.tags for name in attributes}
    assert not {tag for tag, _ in found.tags} & {"script", "link", "img", "iframe", "base"}
    assert not names & {"src", "href", "srcset", "xlink:href"}
    assert not [name for name in names if name.startswith("on")]
    assert not re.search(r"url\(|@import|https?:", text)


def test_every_name_is_shown_as_text_whatever_it_contains() -> None:
    nasty = '</style><script>alert("1")</script>'
    job = a_job(nasty, 10, gpus=4)
    outcome = an_outcome(
        a_record(job, a_run(job, 0, 10)), series=a_series((0, 4, 0, 0)), policy=nasty
    )
    text = rendered([outcome], command=nasty, treatments={nasty: 3})
    assert "<script" not in text
    assert Page(text).faults == []
    assert nasty in Page(text).words


def test_same_report_gives_the_same_page() -> None:
    outcomes = outcomes_of("fifo/packing", "srtf/packing", seeds=(0, 1))
    assert rendered(outcomes) == rendered(outcomes)


def test_every_policy_has_its_column_its_strip_and_its_map() -> None:
    found = Page(rendered(outcomes_of("fifo/packing", "srtf/packing", "drf/packing")))
    assert found.words.count("srtf") >= 4
    assert len([a for a in found.all("div") if a.get("class") == "map"]) == 3
    assert len([a for a in found.all("div") if a.get("class") == "strip"]) == 3
    chosen = [a.get("id") for a in found.all("input") if "checked" in a]
    assert chosen == ["tab0"]
    assert [a.get("for") for a in found.all("label")] == ["tab0", "tab1", "tab2"]


def test_every_drawing_says_in_words_what_it_shows() -> None:
    drawings = Page(rendered(outcomes_of("fifo/packing", "srtf/packing"))).all("svg")
    assert len(drawings) == 2 + 1 + 3 + 2
    assert all(drawing["role"] == "img" and drawing["aria-label"] for drawing in drawings)


def test_no_coordinate_is_missing() -> None:
    text = rendered(outcomes_of("fifo/packing", "srtf/packing", seeds=(0, 1, 2)))
    assert not re.search(r"\bnan\b|\binf\b|None", text)


def test_finding_names_the_best_policy_and_its_ratio() -> None:
    """Completion times 10, 30, 330 and 10, 30, 60."""
    slow = one_after_another(10, 20, 300, policy="slow/packing")
    quick = one_after_another(10, 20, 30, policy="quick/packing")
    found = "Lowest mean completion time: quick, 33 s"
    assert f"{found}, 0.27x that of slow." in rendered([slow, quick])
    assert f"{found}." in rendered([quick, slow])


def test_intervals_are_shown_with_several_seeds_only() -> None:
    one = rendered(outcomes_of("fifo/packing", "srtf/packing"))
    three = rendered(outcomes_of("fifo/packing", "srtf/packing", seeds=(0, 1, 2)))
    assert "95 % intervals" not in one
    assert "95 % intervals" in three
    assert "<small>" in three


def test_policies_that_finished_different_jobs_are_not_compared_in_silence() -> None:
    whole = one_after_another(10, 20, policy="fifo/packing")
    cut = an_outcome(
        *whole.jobs[:1],
        a_record(whole.jobs[1].job),
        series=whole.series,
        policy="srtf/packing",
    )
    assert "did not finish the same number of jobs" in rendered([whole, cut])


def test_answers_of_the_default_rules_are_not_passed_off_as_the_policys() -> None:
    outcome = one_after_another(10, policy="mine/packing")
    outcome = an_outcome(
        *outcome.jobs, series=outcome.series, policy="mine/packing", counts={"fallbacks": 7}
    )
    assert "mine/packing gave no valid answer in 7 cycles" in rendered([outcome])


def test_what_was_done_to_the_trace_and_how_to_get_the_page_again_is_on_it() -> None:
    text = rendered(
        outcomes_of("fifo/packing"), command="bireme simulate", treatments={"zero GPUs": 12}
    )
    assert "zero GPUs" in text
    assert "bireme simulate" in text


def test_page_of_nothing_says_so() -> None:
    assert "No job finished." in rendered([an_outcome()])


def test_many_policies_differ_by_more_than_colour() -> None:
    names = [f"p{number}/packing" for number in range(page.COLOURS + 2)]
    text = rendered(outcomes_of(*names))
    assert f".line.p{page.COLOURS}{{stroke-dasharray" in text
    assert ".line.p0{stroke-dasharray" not in text


def luminance(colour: str) -> float:
    """Relative luminance of ``#rrggbb`` (WCAG 2.2)."""
    channels = np.array([int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)])
    linear = np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
    return float(linear @ np.array([0.2126, 0.7152, 0.0722]))


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize(
    ("mode", "policies"),
    [(page.LIGHT, page.LIGHT_POLICIES), (page.DARK, page.DARK_POLICIES)],
    ids=["light", "dark"],
)
def test_colours_stand_out_and_text_can_be_read(
    mode: dict[str, str], policies: tuple[str, ...]
) -> None:
    assert all(contrast(colour, mode["card"]) >= 3 for colour in (*policies, mode["cut"]))
    for ground in ("card", "paper"):
        assert contrast(mode["ink"], mode[ground]) >= 7
        assert contrast(mode["soft"], mode[ground]) >= 4.5


def test_map_shows_the_hours_in_which_most_gangs_wait() -> None:
    """Two days of which only the last hour is busy."""
    job = a_job("long", 172_800)
    series = a_series((0, 1, 0, 0), (169_200, 1, 9, 0), (172_800, 0, 0, 0))
    outcome = an_outcome(a_record(job, a_run(job, 0, 172_800)), series=series)
    window = svg.choose([outcome], NODES)
    assert window.ended - window.began == svg.MAX_SECONDS
    assert window.began <= 169_200
    assert window.ended >= 172_800 - 1


def test_map_shows_shorter_hours_where_they_are_crowded() -> None:
    jobs = [a_job(f"j{n}", 100, at=100.0 * n) for n in range(800)]
    records = [a_record(job, a_run(job, job.submitted, job.submitted + 100)) for job in jobs]
    outcome = an_outcome(*records, series=a_series((0, 1, 0, 0)))
    window = svg.choose([outcome], {"n0": 4})
    assert window.ended - window.began < 80_000 / 8


def test_map_leaves_out_the_nodes_that_did_least_and_those_without_gpus() -> None:
    nodes = {f"n{number}": 4 for number in range(40)} | {"cpu": 0}
    busy, idle = a_job("busy", 100, gpus=4), a_job("idle", 1)
    outcome = an_outcome(
        a_record(busy, a_run(busy, 0, 100, "n39")),
        a_record(idle, a_run(idle, 0, 1, "n38")),
        series=a_series((0, 5, 0, 0)),
    )
    shown = list(svg.choose([outcome], nodes).gpus_by_node)
    assert len(shown) == svg.MAX_NODES
    assert shown[-2:] == ["n38", "n39"]
    assert "cpu" not in shown


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(1, 9), st.integers(1, 4)), max_size=12))
def test_bars_of_a_node_never_cover_each_other(wanted: list[tuple[int, int, int]]) -> None:
    """Whatever fits the node when it begins is drawn with as many lanes as it has GPUs."""
    segments: list[tuple[int, int, int]] = []
    for began, lasts, gpus in sorted(wanted):
        held = sum(g for b, e, g in segments if b <= began < e)
        if held + gpus <= 4:
            segments.append((began, began + lasts, gpus))
    records = []
    for number, (began, ended, gpus) in enumerate(segments):
        job = a_job(f"j{number}", ended - began, at=began, gpus=gpus)
        records.append(a_record(job, a_run(job, began, ended)))
    outcome = an_outcome(*records, series=a_series((0, 1, 0, 0)))
    drawing = svg.panel(outcome, svg.GanttWindow(0.0, 100.0, {"n0": 4}), "fifo")
    boxes = [
        [float(a[name] or "") for name in ("x", "y", "width", "height")]
        for a in Page(drawing).all("rect")
        if a.get("class") is None
    ]
    area = sum(width * height for _, _, width, height in boxes)
    assert area == pytest.approx(sum((e - b) * 10 * g * 11 for b, e, g in segments), rel=0.02)
    for at, (x, y, width, height) in enumerate(boxes):
        for left, top, wide, high in boxes[at + 1 :]:
            apart = x + width <= left + 0.11 or left + wide <= x + 0.11
            assert apart or y + height <= top + 0.11 or top + high <= y + 0.11


def test_preempted_run_has_a_red_edge_and_a_finished_one_has_none() -> None:
    job = a_job("a", 10, gpus=4)
    window = svg.GanttWindow(0.0, 100.0, {"n0": 4})
    stopped = an_outcome(a_record(job, a_run(job, 0, 10, end="preempted")))
    finished = an_outcome(a_record(job, a_run(job, 0, 10)))
    assert 'class="cut"' in svg.panel(stopped, window, "fifo")
    assert 'class="cut"' not in svg.panel(finished, window, "fifo")
