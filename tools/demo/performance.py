"""The demo from its first line to its exit status."""

import json
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.live import Live

from testbed.controlplane.cluster import Cluster
from testbed.history.amounts import GPU
from testbed.history.observed import ENDED
from testbed.history.recorder import COLLECTIONS, Recorder
from tools.demo import clusters, gantt, summary
from tools.demo.colours import Palette
from tools.demo.film import Film
from tools.demo.plain import Plain
from tools.demo.promises import judge
from tools.demo.report import Report, report_of
from tools.demo.screen import Screen
from tools.demo.submission import Submitter
from tools.demo.timeline import Timeline
from tools.demo.workload import Workload

TIME_LIMIT_SECONDS: Final = 150.0
REFRESH_SECONDS: Final = 0.25
WATCHED: Final[Mapping[str, str]] = {
    **COLLECTIONS,
    "PriorityClass": "/apis/scheduling.k8s.io/v1/priorityclasses",
    "Event": "/api/v1/events?fieldSelector=involvedObject.kind%3DTrainingJob",
}
REPORT: Final = "demo-report.json"
PICTURE: Final = "demo-gantt.png"


@dataclass(frozen=True, slots=True)
class Options:
    seed: int
    keeps: bool
    """Leave the cluster up."""
    name: str
    """Of the cluster, if it stays."""
    output: Path
    """Folder of report and picture."""
    film: Path | None = None
    """File of a moving picture of the live view, if one is wanted."""


def perform(workload: Workload, options: Options, console: Console) -> int:
    """Run the demo; the exit status is 0 when every promise was kept."""
    began = time.monotonic()

    def say(line: str) -> None:
        console.print(f"[dim]{time.monotonic() - began:5.1f} s[/]  {line}", highlight=False)

    with _cluster(workload, options, say) as cluster:
        history = clusters.RUN / "history.jsonl"
        with Recorder(cluster.kubeconfig, history, WATCHED) as recorder:
            timeline = Timeline()
            palette = Palette(job.name for job in workload.submissions)
            folder = clusters.RUN / "jobs"
            with Submitter(cluster, workload, folder, timeline.held_gpus) as submitter:
                _follow(recorder, timeline, palette, submitter, options, console)
            recorder.settle()
            timeline.feed(recorder.records())  # what came since the last look
            promises = judge(recorder.records(), timeline, workload)
        report = report_of(timeline, promises, options.seed)
        _write(report, timeline, palette, options)
        summary.show(report, console)
        console.print(f"\nPicture {PICTURE}, report {REPORT}, history {history}", highlight=False)
        console.print(f"The jobs, as they went in: {clusters.RUN / 'jobs'}", highlight=False)
        if options.keeps:
            tell_what_next(cluster, console)
        else:
            console.print(f"The operator's record: {clusters.RUN / 'records'}", highlight=False)
    return 0 if report["ok"] else 1


@contextmanager
def _cluster(workload: Workload, options: Options, say: clusters.Say) -> Iterator[Cluster]:
    """Yield the cluster; one that is kept goes as well when the demo does not reach its end."""
    if not options.keeps:
        with clusters.served(workload.nodes, workload.racks, say) as stack:
            yield stack.cluster
        return
    cluster = clusters.staying(options.name, workload.nodes, workload.racks, say)
    try:
        yield cluster
    except BaseException:
        clusters.down(options.name)
        raise


def _follow(
    recorder: Recorder,
    timeline: Timeline,
    palette: Palette,
    submitter: Submitter,
    options: Options,
    console: Console,
) -> None:
    """Show what happens until nothing more will, or the time is over."""
    limits = _limits(recorder)
    screen = Screen(timeline, palette, options.seed, limits)
    film = Film() if options.film is not None else None
    plain = Plain(timeline, lambda line: console.print(line, highlight=False, soft_wrap=True))
    settled_at: float | None = None
    with Live(console=console, auto_refresh=False, vertical_overflow="crop") as live:
        while recorder.elapsed_seconds < TIME_LIMIT_SECONDS:
            now = recorder.elapsed_seconds
            timeline.feed(recorder.records(), None if console.is_terminal else plain.take)
            if film is not None:
                film.take(now, screen.draw)
            if console.is_terminal:
                live.update(screen.draw(now, console), refresh=True)
            else:
                plain.totals(now)
            if submitter.failure is not None:
                raise submitter.failure
            if submitter.is_done and _is_over(timeline):
                settled_at = settled_at or now
                # The last pods and events come a moment after the phases of their jobs.
                if now > settled_at + 1.0:
                    break
            time.sleep(REFRESH_SECONDS)
    if film is not None and options.film is not None:
        film.save(options.film)


def _is_over(timeline: Timeline) -> bool:
    stories = timeline.stories.values()
    return all(s.phase in ENDED or s.status.get("reason") == "NeverFits" for s in stories)


def _limits(recorder: Recorder) -> dict[str, int]:
    return {
        queue["metadata"]["name"]: int(queue["spec"]["limit"][GPU])
        for queue in recorder.objects("Queue")
        if GPU in queue["spec"].get("limit", {})
    }


def _write(report: Report, timeline: Timeline, palette: Palette, options: Options) -> None:
    options.output.mkdir(parents=True, exist_ok=True)
    (options.output / REPORT).write_text(json.dumps(report, indent=1) + "\n")
    title = f"{len(report['jobs'])} training jobs on {report['gpus']} GPUs, seed {report['seed']}"
    gantt.draw(timeline, palette, options.output / PICTURE, title)


def tell_what_next(cluster: Cluster, console: Console) -> None:
    """Print how to look around a cluster that stays."""
    lines = (
        "",
        "[bold]The cluster stays up.[/] In a shell:",
        f"  export KUBECONFIG={cluster.kubeconfig}",
        f"  export PATH={Path(sys.executable).parent}:{cluster.binary('kubectl').parent}:$PATH",
        "  kubectl get btj -A                      # every job: phase, queue, priority, reason",
        "  kubectl get bq                          # the queues",
        "  kubectl get events -A --sort-by=.metadata.creationTimestamp    # the whole story",
        "  kubectl apply -f manifests/examples/01-single-gpu.yaml         # a job of your own",
        "  bireme why digits                       # where it is, and why",
        "  bireme submit --dry-run manifests/examples/01-single-gpu.yaml  # where it would start",
        "  make cluster-down                       # stop everything",
        "The board, in a browser; the address works once (then: bireme ui):",
        f"  {clusters.board_address(cluster.name)}",
    )
    for line in lines:
        console.print(line, highlight=False, soft_wrap=True)
