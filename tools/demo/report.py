"""``demo-report.json``: what happened, in numbers. All times are seconds since recording began.

ok                 true when every promise was kept
seed, nodes, gpus  what was run
seconds            from the first submission to the last end
waits              {mean, median, longest}: seconds without nodes, jobs that ended
completions        the same of submission to end
utilisation        {mean, whileQueued, peak}: shares of all GPUs; mean over ``seconds``,
                   whileQueued until the last job started; steps: [[seconds, GPUs], ...]
startOrder         [{name, priority, seconds}, ...], first start first
jobs               [{name, queue, priorityClass, priority, gpus, phase, reason, message,
                   submitted, started, finished, waitedSeconds, runs: [{attempt, began, ended,
                   outcome, nodes, sizes: [[seconds, GPUs], ...]}]}, ...], as submitted
turns              [{seconds, kind, job, text}, ...]: reserved, backfilled, preempted, grown, ...
promises           [{text, kept, detail}, ...]
"""

from collections.abc import Sequence
from dataclasses import asdict
from statistics import fmean, median
from typing import Any

from tools.demo.promises import Promise
from tools.demo.timeline import JobStory, Timeline, mean_busy

Report = dict[str, Any]


def report_of(timeline: Timeline, promises: Sequence[Promise], seed: int) -> Report:
    stories = list(timeline.stories.values())
    ended = [(s, s.finished) for s in stories if s.finished is not None]
    began = min(story.submitted for story in stories)
    end = max((finished for _, finished in ended), default=began)
    return {
        "ok": all(promise.kept for promise in promises),
        "seed": seed,
        "nodes": len(timeline.world.objects["Node"]),
        "gpus": timeline.gpus,
        "seconds": round(end - began, 2),
        "waits": _summary([story.waited_seconds(end) for story, _ in ended]),
        "completions": _summary([finished - story.submitted for story, finished in ended]),
        "utilisation": _utilisation(timeline, began, end),
        "startOrder": [
            {"name": s.name, "priority": s.score, "seconds": s.started}
            for s in timeline.in_order_of_start()
        ],
        "jobs": [_job(story, end) for story in stories],
        "turns": [asdict(turn) for turn in timeline.moments.turns],
        "promises": [asdict(promise) for promise in promises],
    }


def _utilisation(timeline: Timeline, began: float, end: float) -> Report:
    gpus = max(1, timeline.gpus)
    until = max(
        (s.started for s in timeline.stories.values() if s.started is not None), default=end
    )
    return {
        "mean": round(mean_busy(timeline.usage, began, end) / gpus, 3),
        "whileQueued": round(mean_busy(timeline.usage, began, until) / gpus, 3),
        "peak": round(max((step.total for step in timeline.usage), default=0) / gpus, 3),
        "steps": [[step.seconds, step.total] for step in timeline.usage],
    }


def _job(story: JobStory, end: float) -> Report:
    return {
        "name": story.name,
        "queue": story.queue,
        "priorityClass": story.job["spec"].get("priorityClassName", ""),
        "priority": story.score,
        "gpus": story.gpus,
        "phase": story.phase,
        "reason": story.status.get("reason", ""),
        "message": story.status.get("message", ""),
        "submitted": story.submitted,
        "started": story.started,
        "finished": story.finished,
        "waitedSeconds": round(story.waited_seconds(end), 2),
        "runs": [asdict(run) for run in story.runs],
    }


def _summary(values: list[float]) -> dict[str, float]:
    known = values or [0.0]
    found = {"mean": fmean(known), "median": median(known), "longest": max(known)}
    return {name: round(value, 2) for name, value in found.items()}
