"""The demo from its first line to its exit status."""

import json
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Final

from rich.console import Console
from rich.live import Live

from testbed.history.amounts import GPU
from testbed.history.observed import ENDED
from testbed.history.recorder import COLLECTIONS, Recorder
from tools.demo import embedded_cluster, summary
from tools.demo.cluster import RUN, DemoCluster, Say
from tools.demo.colours import Palette
from tools.demo.plain import Plain
from tools.demo.promises import judge
from tools.demo.report import Report, report_of
from tools.demo.screen import Screen
from tools.demo.submission import Submitter
from tools.demo.timeline import Timeline
from tools.demo.workload import Workload

if TYPE_CHECKING:
    from tools.demo.film import Film

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
    is_real: bool
    """Play on a real control plane."""
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

    history = RUN / "history.jsonl"
    timeline = Timeline()
    palette = Palette(job.name for job in workload.submissions)
    with (
        _cluster(workload, options, say) as cluster,
        Recorder(cluster.kubeconfig, history, WATCHED) as recorder,
    ):
        with Submitter(cluster, workload, RUN / "jobs", timeline.held_gpus) as submitter:
            _follow(recorder, timeline, palette, submitter, options, console)
        recorder.settle()
        timeline.feed(recorder.records())  # what came since the last look
    promises = judge(recorder.records(), timeline, workload)
    report = report_of(timeline, promises, options.seed)
    _write(report, timeline, palette, options)
    summary.show(report, console)
    console.print(f"\nPicture {PICTURE}, report {REPORT}, history {history}", highlight=False)
    console.print(f"The jobs, as they went in: {RUN / 'jobs'}", highlight=False)
    if options.keeps:
        tell_what_next(cluster, console)
    else:
        console.print(f"The operator's record: {RUN / 'records'}", highlight=False)
    return 0 if report["ok"] else 1


def _clusters(*, is_real: bool) -> ModuleType:
    """Return the module that starts clusters."""
    if not is_real:
        return embedded_cluster
    from tools.demo import real_cluster  # needs what only Linux has

    return real_cluster


@contextmanager
def _cluster(workload: Workload, options: Options, say: Say) -> Iterator[DemoCluster]:
    """Yield the cluster; one that is kept goes as well when the demo does not reach its end."""
    clusters = _clusters(is_real=options.is_real)
    if not options.keeps:
        with clusters.temporary(workload.nodes, workload.racks, say) as cluster:
            yield cluster
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
    film = _film(options)
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


def _film(options: Options) -> "Film | None":
    if options.film is None:
        return None
    from tools.demo.film import Film  # what draws is large, and few want one

    return Film()


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
    from tools.demo import gantt  # what draws is large, and the cluster has ended by now

    title = f"{len(report['jobs'])} training jobs on {report['gpus']} GPUs, seed {report['seed']}"
    gantt.draw(timeline, palette, options.output / PICTURE, title)


_BY_KUBECTL: Final = (
    "  kubectl get btj,bq -A                   # jobs and queues",
    "  kubectl get events -A --sort-by=.metadata.creationTimestamp    # the whole story",
)


def _has_kubectl(cluster: DemoCluster) -> bool:
    folders = [*map(str, cluster.programs), os.environ.get("PATH", "")]
    return shutil.which("kubectl", path=os.pathsep.join(folders)) is not None


def tell_what_next(cluster: DemoCluster, console: Console) -> None:
    """Print how to look around a cluster that stays."""
    lines = (
        "",
        "[bold]The cluster stays up.[/] In a shell:",
        f"  export KUBECONFIG={cluster.kubeconfig}",
        f"  export PATH={os.pathsep.join(map(str, cluster.programs))}:$PATH",
        "  bireme list -A                          # every job: phase, reason, queue, size",
        "  bireme queue                            # who waits",
        "  bireme submit --dry-run manifests/examples/01-single-gpu.yaml  # where it would start",
        "  bireme submit manifests/examples/01-single-gpu.yaml            # a job of your own",
        "  bireme why digits                       # where it is, and why",
        *(_BY_KUBECTL if _has_kubectl(cluster) else ()),
        "  make cluster-down                       # stop everything",
        "The board, in a browser; the address works once (then: bireme ui):",
        f"  {cluster.board_address}",
    )
    for line in lines:
        console.print(line, highlight=False, soft_wrap=True)
