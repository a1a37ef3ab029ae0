"""The live view on a terminal: the cluster as a map, the jobs as a table, 120 columns by 40 lines.

Rows keep their place; on a low terminal finished jobs give way first.
"""

from typing import Final

from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from bireme_lab.embedded.fake_nodes import RACK
from testbed.history.amounts import GPU
from testbed.history.observed import ENDED, ObservedCluster
from testbed.history.records import Key
from tools.demo.colours import QUEUES, Palette
from tools.demo.timeline import JobStory, Timeline
from tools.demo.words import about, shortened

SPARKS: Final = " ▁▂▃▄▅▆▇█"
PHASES: Final = {
    "Pending": "yellow",
    "Starting": "cyan",
    "Running": "bold cyan",
    "Restarting": "bold magenta",
    "Succeeded": "green",
    "Failed": "bold red",
}
_TURNS: Final = 4
_HIGH_LINES: Final = 30  # on a lower terminal jobs matter more than turns
_WIDE_COLUMNS: Final = 115  # from here on a GPU of the map takes two columns


class _GpuMap:
    """Node to the name of the job on each of its GPUs; empty for a free one."""

    # Kubernetes counts GPUs and does not number them; a replica is shown on the lowest free ones of
    # its node and keeps them until it ends, so that nothing moves on the screen that runs.

    def __init__(self) -> None:
        self.slots: dict[str, list[str]] = {}
        self.racks: dict[str, list[str]] = {}
        """Rack to its nodes, both sorted."""
        self._held: dict[Key, tuple[str, list[int]]] = {}

    def update(self, world: ObservedCluster) -> None:
        holding = {key: pod for key, pod in sorted(world.pods.items()) if pod.holds_node}
        for key, (node, numbers) in list(self._held.items()):
            if key in holding and holding[key].node == node:
                continue
            del self._held[key]
            for number in numbers:
                self.slots[node][number] = ""
        for (_, name), manifest in sorted(world.objects.get("Node", {}).items()):
            if name not in self.slots:
                self.slots[name] = [""] * int(manifest["status"]["allocatable"].get(GPU, 0))
                rack = manifest["metadata"]["labels"].get(RACK, "")
                self.racks.setdefault(rack, []).append(name)
        for key, pod in holding.items():
            if key not in self._held and pod.node in self.slots:
                slots = self.slots[pod.node]
                free = [number for number, holder in enumerate(slots) if not holder]
                taken = free[: int(pod.request.get(GPU, 0))]
                self._held[key] = (pod.node, taken)
                for number in taken:
                    slots[number] = pod.gang[1]


class Screen:
    """Draws a Timeline; keeps the map between two drawings. ``limits`` are GPUs by queue."""

    def __init__(
        self, timeline: Timeline, palette: Palette, seed: int, limits: dict[str, int]
    ) -> None:
        self._timeline = timeline
        self._palette = palette
        self._seed = seed
        self._limits = limits
        self._map = _GpuMap()
        self._busy: list[float] = []

    def draw(self, now: float, console: Console) -> RenderableType:
        """Return the picture at ``now``, seconds of the recorder's clock, for this console."""
        self._map.update(self._timeline.world)
        usage = self._timeline.usage[-1].gpus if self._timeline.usage else {}
        gpus = max(1, self._timeline.gpus)
        if int(now) >= len(self._busy):
            self._busy.append(sum(usage.values()) / gpus)
        stories = list(self._timeline.stories.values())
        return Group(
            self._header(now, sum(usage.values()), gpus),
            self._racks(2 if console.width >= _WIDE_COLUMNS else 1),
            self._jobs(now, stories, max(3, console.height - self._other_lines(console.height))),
            self._queues(usage),
            *self._turns(_TURNS if console.height >= _HIGH_LINES else 0),
        )

    def _other_lines(self, height: int) -> int:
        """Count everything but the jobs: lines of text, the map, and a line for the cursor."""
        turns = _TURNS if height >= _HIGH_LINES else 0
        return 4 + turns + 2 + max((len(nodes) for nodes in self._map.racks.values()), default=0)

    def _header(self, now: float, busy: int, gpus: int) -> Text:
        waiting, running, ended = self._timeline.counts
        text = Text(no_wrap=True, overflow="crop")
        text.append(" Bireme ", style="bold reverse")
        text.append(f" {now:4.0f} s   seed {self._seed}   ", style="dim")
        text.append(f"{waiting} waiting", style=PHASES["Pending"])
        text.append(f"   {running} running", style=PHASES["Running"])
        text.append(f"   {ended} finished", style=PHASES["Succeeded"])
        text.append(f"   {busy:3d} of {gpus} GPUs busy ")
        sparks = (SPARKS[round(min(share, 1) * (len(SPARKS) - 1))] for share in self._busy[-40:])
        text.append("".join(sparks), style="cyan")
        return text

    def _racks(self, columns: int) -> Table:
        grid = Table.grid(expand=False, padding=(0, 1))
        panels = []
        for rack, nodes in self._map.racks.items():
            lines = [self._node(name, columns) for name in nodes]
            panels.append(Panel(Group(*lines), title=rack, border_style="dim", padding=(0, 1)))
            grid.add_column()
        grid.add_row(*panels)
        return grid

    def _node(self, name: str, columns: int) -> Text:
        line = Text(f"{name} ", style="dim")
        for job in self._map.slots[name]:
            if job:
                style = f"bold #111111 on {self._palette.colour(job)}"
                line.append(self._palette.letter(job).ljust(columns), style=style)
            else:
                line.append("·".ljust(columns), style="dim not bold")
        return line

    def _jobs(self, now: float, stories: list[JobStory], most: int) -> Table:
        table = Table(box=None, expand=True, padding=(0, 1, 0, 0), header_style="bold dim")
        for title, width in (("", 2), ("JOB", 15), ("QUEUE", 10)):
            table.add_column(title, width=width, no_wrap=True)
        for title, width in (("PRIO", 4), ("GPUS", 4), ("READY", 5), ("POS", 3)):
            table.add_column(title, width=width, justify="right")
        table.add_column("PHASE", width=10)
        table.add_column("WHAT IS GOING ON", ratio=1, no_wrap=True, overflow="ellipsis")
        for story in _shown(stories, most):
            self._row(table, story, now)
        return table

    def _row(self, table: Table, story: JobStory, now: float) -> None:
        status, style = story.status, PHASES.get(story.phase, "")
        colour = self._palette.colour(story.name)
        position = status.get("queuePosition")
        over = story.phase in ENDED
        table.add_row(
            Text(f"{self._palette.letter(story.name)} ", style=f"bold #111111 on {colour}"),
            Text(story.name, style="dim" if over else "bold"),
            Text(story.queue, style=QUEUES.get(story.queue, "")),
            f"{story.score:.2f}" if story.score else "",
            str(story.gpus),
            str(status.get("ready") or ""),
            "" if position is None else str(position),
            Text(story.phase, style=style),
            Text(about(story, now), style="dim" if over else ""),
        )

    def _queues(self, usage: dict[str, int]) -> Text:
        text = Text(no_wrap=True, overflow="crop")
        text.append(" GPUs by queue: ", style="dim")
        for queue, colour in QUEUES.items():
            limit = f" of at most {self._limits[queue]}" if queue in self._limits else ""
            text.append(f" {queue} {usage.get(queue, 0)}{limit}  ", style=colour)
        text.append("   map: a letter is a GPU held by that job, · a free one", style="dim")
        return text

    def _turns(self, most: int) -> list[Text]:
        lines = []
        for turn in self._timeline.moments.turns[-most:] if most else ():
            line = Text(no_wrap=True, overflow="ellipsis")
            line.append(f" {turn.seconds:4.0f} s  ", style="dim")
            line.append(f"{turn.job} ", style="bold")
            line.append(f"{turn.kind}: ", style=PHASES["Restarting"])
            lines.append(line.append(shortened(turn.text)))
        return lines


def _shown(stories: list[JobStory], most: int) -> list[JobStory]:
    """Return at most so many jobs in order of submission, the longest finished left out first."""
    surplus = len(stories) - most
    if surplus <= 0:
        return stories
    ended = sorted((s for s in stories if s.finished is not None), key=lambda s: s.finished or 0.0)
    gone = {story.key for story in ended[:surplus]}
    return [story for story in stories if story.key not in gone][:most]
