"""``python -m tools.docs.board_pictures`` takes the pictures of the board for the documentation.

A morning of a small cluster is decided by the scheduling cycle, with the rules of the default
settings, and recorded; Chromium photographs what ``bireme ui`` shows of its last cycle.
"""

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Literal

from playwright.sync_api import FloatRect, sync_playwright

from bireme.core.gangs import Gang, Role, Task
from bireme.core.gpus import GPU, GPU_MODEL_LABEL
from bireme.core.nodes import Node
from bireme.core.queues import Queue
from bireme.core.settings import SchedulingSettings
from bireme.testing import a_gang, a_node, a_task
from testbed import browser as browsers
from testbed.board import board
from testbed.recordings import RecordedCluster

FOLDER: Final = Path(__file__).parents[2] / "docs" / "pictures"
WAITS: Final = "search-pretrain"
"""The first gang that is blocked, which has a reservation."""
_BEGIN: Final = 1_787_212_800.0  # 2026-08-20T08:00:00Z
_HOUR: Final = 3600.0
_WIDTH, _HEIGHT, _MARGIN = 1200, 800, 24
_PATIENCE_MS: Final = 60_000
_Scheme = Literal["light", "dark"]
_VIEWS: Final[tuple[tuple[str, _Scheme, str, str], ...]] = (
    ("board", "light", "/", "section:has(#line)"),
    ("board", "dark", "/", "section:has(#line)"),
    ("why", "light", f"/job/search/{WAITS}", "section:has(#kept)"),
    ("nodes", "dark", "/nodes", "main section"),
)
"""Name, colour scheme, path, and the last part of the page that is on the picture."""


def main() -> int:
    program = browsers.chromium()
    if program is None:
        sys.stderr.write("no Chromium on the path; run python -m testbed.browser\n")
        return 1
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _morning(folder / "records")
        with (
            board(str(folder / "records"), log=folder / "ui.log") as address,
            sync_playwright() as playwright,
        ):
            launched = playwright.chromium.launch(
                executable_path=program, args=list(browsers.SWITCHES)
            )
            page = launched.new_page(viewport={"width": _WIDTH, "height": _HEIGHT})
            page.goto(address)
            # The starts to come are added once they are foreseen.
            page.wait_for_function(
                "!document.body.innerText.includes('are being foreseen')", timeout=_PATIENCE_MS
            )
            for view, scheme, path, last in _VIEWS:
                page.emulate_media(color_scheme=scheme)
                page.goto(address.partition("/open")[0] + path)
                bottom = page.locator(last).last.evaluate("e => e.getBoundingClientRect().bottom")
                target = FOLDER / f"{view}-{scheme}.png"
                clip = FloatRect(x=0, y=0, width=_WIDTH, height=bottom + _MARGIN)
                page.screenshot(path=target, full_page=True, clip=clip)
                sys.stdout.write(f"{target}\n")
            launched.close()
    return 0


# --- the cluster, and what came to it ---


def _nodes() -> Iterator[Node]:
    for number in range(16):
        rack = number // 4
        pool, model = ("shared", "A100-80GB") if rack == 3 else ("training", "H100-80GB")
        labels = {"bireme.dev/node-pool": pool, GPU_MODEL_LABEL: model}
        yield a_node(f"gpu-{number:02}", rack=f"rack-{rack}", labels=labels)


_QUEUES: Final = (
    Queue("default"),
    Queue("research", guaranteed={GPU: 48}),
    Queue("vision", parent="research", limit={GPU: 40}),
    Queue("language", parent="research"),
    Queue("production", user_priority=90, guaranteed={GPU: 32}, limit={GPU: 64}),
    Queue("batch", user_priority=20, limit={GPU: 8}),
)


def _torch(workers: int, gpus: int = 8) -> tuple[Task, Task]:
    master = a_task(1, gpus, role=Role.MASTER)
    return master, a_task(workers, gpus)


def _jobs() -> Iterator[tuple[float, Gang, float]]:
    """Yield when each comes, in minutes, and how many hours it runs."""
    for minutes, name, namespace, queue, tasks, hours, stated in (
        (0, "recommender", "ads", "production", (a_task(16, 1),), 6.0, 6.0),
        (0, "feed-rank", "ads", "production", (a_task(4, 4),), 0.7, 1.0),
        (4, "whisper", "speech", "language", _torch(3), 5.0, 5.5),
        (9, "vit-large", "vision", "vision", _torch(3), 3.0, 3.5),
        (15, "gemma-dpo", "language", "language", _torch(1), 2.5, 3.0),
        (17, "sweep-0", "vision", "batch", (a_task(1, 4),), 1.2, 1.5),
        (17, "sweep-1", "vision", "batch", (a_task(1, 4),), 2.2, 2.5),
        (18, "sweep-2", "vision", "batch", (a_task(1, 4),), 1.2, 1.5),
        (22, "search-rank", "search", "production", _torch(1), 1.0, 1.2),
        (30, "llm-175b", "language", "language", _torch(19), 24.0, 24.0),
        (34, WAITS, "search", "research", _torch(7), 8.0, 9.0),
        (41, "fraud-score", "ads", "production", (a_task(2, 8),), 1.0, 1.5),
        (47, "bert-large", "language", "language", _torch(3), 4.0, 4.0),
        (55, "moe-scaling", "language", "language", _torch(5), 6.0, 6.5),
        (58, "distill", "speech", "research", (a_task(1, 4),), 0.5, 0.8),
    ):
        gang = a_gang(
            name, *tasks, queue=queue, namespace=namespace, estimated_seconds=stated * _HOUR
        )
        yield minutes * 60.0, gang, hours * _HOUR


def _morning(folder: Path) -> None:
    """Record a little more than an hour."""
    folder.mkdir()
    settings = SchedulingSettings()
    cluster = RecordedCluster(
        list(_nodes()), settings=settings, folder=folder, now=_BEGIN, queues=_QUEUES
    )
    for after, gang, seconds in _jobs():
        while cluster.next_end < _BEGIN + after:
            cluster.advance(cluster.next_end)
            cluster.settle()
        cluster.advance(_BEGIN + after)
        cluster.submit(gang, seconds)
        cluster.settle()
    cluster.advance(_BEGIN + 65 * 60)
    cluster.settle()
    cluster.writer.close()


if __name__ == "__main__":
    sys.exit(main())
