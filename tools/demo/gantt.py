"""``demo-gantt.png``: every job from submission to its end, and the GPUs in use below it."""

from pathlib import Path
from typing import Any, Final

from matplotlib.figure import Figure

from demo.colours import QUEUES, Palette
from demo.timeline import JobStory, Timeline

INK: Final = "#222222"
FAINT: Final = "#b8b8b8"
BAD: Final = "#c0392b"


def draw(timeline: Timeline, palette: Palette, path: Path, title: str) -> None:
    """Write the picture to ``path``."""
    stories = list(timeline.stories.values())
    began = min(story.submitted for story in stories)
    end = max([s.finished or 0.0 for s in stories] + [began + 1]) - began
    rows = 0.3 * len(stories)
    # A figure by itself, not pyplot's: no display, no state shared with anyone.
    figure = Figure(figsize=(14, rows + 4), layout="constrained")
    jobs, usage = figure.subplots(2, 1, sharex=True, height_ratios=[rows, 1.9])
    _draw_jobs(jobs, stories, palette, began, end)
    _draw_usage(usage, timeline, began, end)
    jobs.set_title(title, loc="left", fontsize=14, fontweight="bold", color=INK, pad=10)
    figure.savefig(path, dpi=110, facecolor="white")


def _draw_jobs(
    axes: Any, stories: list[JobStory], palette: Palette, began: float, end: float
) -> None:
    for row, story in enumerate(stories):
        _draw_job(axes, row, story, palette.colour(story.name), began, end)
    axes.set_ylim(len(stories) - 0.4, -0.7)
    axes.set_xlim(0, end * 1.01)
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
        "thin line: waiting     bar: on nodes     cross: failed     number: GPUs",
        transform=axes.transAxes,
        ha="right",
        color="#777777",
    )


def _draw_job(axes: Any, row: int, story: JobStory, colour: str, began: float, end: float) -> None:
    submitted = story.submitted - began
    until = (story.finished - began) if story.finished is not None else end
    axes.plot([submitted, until], [row, row], color=FAINT, lw=1.2, zorder=1, solid_capstyle="butt")
    axes.plot([submitted], [row], marker="|", ms=8, mew=1.6, color="#888888", zorder=1)
    for run in story.runs:
        left = run.began - began
        right = (run.ended - began) if run.ended is not None else end
        bar = {"height": 0.72, "color": colour, "edgecolor": "white", "lw": 0.6, "zorder": 2}
        axes.barh(row, max(right - left, 0.15), left=left, **bar)
        nodes = f"{len(run.nodes)} nodes" if len(run.nodes) > 1 else run.nodes[0]
        text = f"{story.gpus}" if right - left < 0.09 * end else f"{story.gpus}  ·  {nodes}"
        axes.text(
            left + 0.006 * end,
            row,
            text,
            va="center",
            fontsize=8.5,
            color=INK,
            zorder=3,
            clip_on=True,
        )
        if run.outcome not in ("", "Succeeded"):
            mark = {"marker": "X", "ms": 9, "color": BAD, "mec": "white", "mew": 0.8, "zorder": 4}
            axes.plot([right], [row], **mark)
    if not story.runs:
        reason = str(story.status.get("reason") or story.phase)
        axes.text(submitted + 0.01 * end, row - 0.12, reason, va="bottom", fontsize=8.5, color=BAD)


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


def _dark(colour: str) -> str:
    """The colour at two thirds of its brightness, so that text in it can be read on white."""
    channels = (int(colour[at : at + 2], 16) for at in (1, 3, 5))
    return "#" + "".join(f"{channel * 2 // 3:02x}" for channel in channels)
