"""``demo-gantt.png``: every job from submission to its end, and the GPUs in use below it."""

from pathlib import Path
from typing import Any, Final

from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from tools.demo.colours import QUEUES, Palette
from tools.demo.moments import Moment
from tools.demo.timeline import JobStory, Run, Timeline

Window = tuple[float, float]
"""The first submission by the recorder's clock, and seconds from it to the last end."""
INK: Final = "#222222"
FAINT: Final = "#b8b8b8"
BAD: Final = "#c0392b"


def draw(timeline: Timeline, palette: Palette, path: Path, title: str) -> None:
    stories = list(timeline.stories.values())
    began = min(story.submitted for story in stories)
    # A second at least, for a run that was broken off before any job ended.
    end = max([s.finished or 0.0 for s in stories] + [began + 1]) - began
    rows = 0.3 * len(stories)
    # A figure by itself, not pyplot's: no display, no state shared with anyone.
    figure = Figure(figsize=(14, rows + 4), layout="constrained")
    jobs, usage = figure.subplots(2, 1, sharex=True, height_ratios=[rows, 1.9])
    _draw_jobs(jobs, timeline, palette, (began, end))
    _draw_usage(usage, timeline, began, end)
    jobs.set_title(title, loc="left", fontsize=14, fontweight="bold", color=INK, pad=28)
    figure.savefig(path, dpi=110, facecolor="white")


def _draw_jobs(axes: Any, timeline: Timeline, palette: Palette, window: Window) -> None:
    stories = list(timeline.stories.values())
    for row, story in enumerate(stories):
        moments = [moment for moment in timeline.moments.found if moment.job == story.name]
        _draw_job(axes, row, story, moments, palette.colour(story.name), window)
    axes.set_ylim(len(stories) - 0.4, -0.7)
    axes.set_xlim(0, window[1] * 1.01)
    axes.set_yticks(range(len(stories)), [story.name for story in stories])
    for label, story in zip(axes.get_yticklabels(), stories, strict=True):
        label.set_color(_dark(QUEUES.get(story.queue, INK)))
    axes.tick_params(length=0, labelbottom=False)
    axes.grid(axis="x", color="#eeeeee", zorder=0)
    for side in axes.spines.values():
        side.set_visible(False)
    axes.text(
        1.0,
        1.012,
        "line: waiting    hatched: places kept    bar: on nodes, as high as its size in GPUs    "
        "◂ ahead of a blocked gang    ■ stopped for another    ✖ failed",
        transform=axes.transAxes,
        ha="right",
        color="#777777",
    )


def _draw_job(
    axes: Any, row: int, story: JobStory, moments: list[Moment], colour: str, window: Window
) -> None:
    began, end = window
    submitted = story.submitted - began
    until = (story.finished - began) if story.finished is not None else end
    axes.plot([submitted, until], [row, row], color=FAINT, lw=1.2, zorder=1, solid_capstyle="butt")
    axes.plot([submitted], [row], marker="|", ms=8, mew=1.6, color="#888888", zorder=1)
    for run in story.runs:
        _draw_run(axes, row, run, colour, window)
    for moment in moments:
        _draw_moment(axes, row, story, moment, colour, window)
    if not story.runs:
        reason = str(story.status.get("reason") or story.phase)
        axes.text(submitted + 0.01 * end, row - 0.12, reason, va="bottom", fontsize=8.5, color=BAD)


def _draw_run(axes: Any, row: int, run: Run, colour: str, window: Window) -> None:
    """Draw a bar as high as the gang is large at the time, and how the run ended."""
    began, end = window
    left, right = run.began - began, (run.ended - began) if run.ended is not None else end
    most = max(size for _, size in run.sizes)
    ends = [*(seconds - began for seconds, _ in run.sizes[1:]), right]
    for (seconds, size), until in zip(run.sizes, ends, strict=True):
        bar = {"height": 0.72 * size / most, "color": colour, "edgecolor": "white", "lw": 0.6}
        axes.barh(row, max(until - seconds + began, 0.15), left=seconds - began, zorder=2, **bar)
    nodes = f"{len(run.nodes)} nodes" if len(run.nodes) > 1 else run.nodes[0]
    sizes = " → ".join(str(size) for _, size in run.sizes)
    text = sizes if right - left < 0.09 * end else f"{sizes}  ·  {nodes}"
    fine = {"va": "center", "fontsize": 8.5, "color": INK, "zorder": 3, "clip_on": True}
    axes.text(run.sizes[-1][0] - began + 0.006 * end, row, text, **fine)
    if run.outcome not in ("", "Succeeded"):
        shape = "s" if run.outcome == "Preempted" else "X"
        _mark(axes, right, row, shape, BAD)


def _mark(axes: Any, at: float, row: int, shape: str, colour: str) -> None:
    axes.plot([at], [row], marker=shape, ms=8, color=colour, mec="white", mew=0.8, zorder=4)


def _draw_moment(
    axes: Any, row: int, story: JobStory, moment: Moment, colour: str, window: Window
) -> None:
    at = moment.seconds - window[0]
    start = next((run.began - window[0] for run in story.runs if run.began > moment.seconds), None)
    if moment.kind == "reserved" and start is not None:
        bar = {"height": 0.22, "color": colour, "hatch": "////", "edgecolor": "white", "lw": 0}
        axes.barh(row, start - at, left=at, zorder=2, **bar)
    if moment.kind == "backfilled":
        start = max(run.began - window[0] for run in story.runs if run.began <= moment.seconds)
        _mark(axes, start - 0.005 * window[1], row, "<", INK)


def _draw_usage(axes: Any, timeline: Timeline, began: float, end: float) -> None:
    steps = timeline.usage
    seconds = [max(0.0, step.seconds - began) for step in steps] + [end]
    layers = [[s.gpus.get(queue, 0) for s in steps] for queue in QUEUES]
    layers = [layer + layer[-1:] for layer in layers]
    axes.stackplot(
        seconds, *layers, step="post", colors=list(QUEUES.values()), labels=list(QUEUES), lw=0
    )
    axes.axhline(timeline.gpus, color=INK, lw=1, ls=(0, (4, 3)))
    axes.text(end, timeline.gpus * 1.02, f"all {timeline.gpus}", ha="right", va="bottom", color=INK)
    axes.set_ylim(0, timeline.gpus * 1.22)
    axes.set_yticks([timeline.gpus * quarter // 4 for quarter in range(5)])
    axes.set_ylabel("GPUs in use", color=INK)
    axes.set_xlabel("seconds since the first submission", color=INK)
    axes.grid(axis="y", color="#eeeeee")
    axes.set_axisbelow(True)
    legend = {"loc": "upper left", "ncols": 3, "frameon": False, "borderaxespad": 0.1}
    axes.legend(**legend, handlelength=1.2)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def _dark(colour: str) -> tuple[float, ...]:
    """Return two thirds of its brightness, so that text in it can be read on white."""
    return tuple(channel * 2 / 3 for channel in to_rgb(colour))
