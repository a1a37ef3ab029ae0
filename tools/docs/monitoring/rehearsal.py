"""Five minutes of a real cluster, scraped by a real Prometheus, for the picture of the overview.

Three queues have more work than room, gangs are stopped for urgent ones, and a shadow policy stands
beside the one that decides.
"""

import json
import random
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.support.prometheus import find_programs, serving
from tests.support.scenario.manifests import scheduling_policy
from tools.controlplane.stack import BiremeStack
from tools.demo import clusters
from tools.demo.submission import Submitter
from tools.demo.workload import Manifest, Submission, Workload, single, torch
from tools.docs.monitoring.overview import OVERVIEW
from tools.docs.monitoring.preview import Asked, draw

SECONDS: Final = 300
_NODES, _RACKS = 8, 2
_PAUSE_SECONDS: Final = 4
_SEED: Final = 7


def rehearse(target: Path) -> None:
    """Run it, and write the picture of the overview; Unavailable without Prometheus."""
    programs = find_programs()
    with clusters.served(_NODES, _RACKS, print) as stack, tempfile.TemporaryDirectory() as folder:
        ports = (stack.operator().env["BIREME_METRICS_PORT"], stack.extender_port)
        targets = [f"127.0.0.1:{port}" for port in ports]
        with serving(programs, Path(folder), targets=targets) as url:
            start = time.time()  # noqa: TID251  # Prometheus counts in POSIX seconds
            _perform(stack)
            draw(OVERVIEW, Asked(url, start, start + SECONDS), target)


def _perform(stack: BiremeStack) -> None:
    shadow = scheduling_policy("shortest-first", orderer="sjf", stage="Shadow")
    stack.cluster.kubectl("apply", "-f", "-", input=json.dumps(shadow))
    ends = time.monotonic() + SECONDS
    workload = Workload(_NODES, _RACKS, tuple(_submissions()))
    with Submitter(stack.cluster, workload, clusters.RUN / "jobs", lambda _: 0) as submitter:
        while time.monotonic() < ends:
            if submitter.failure is not None:
                raise submitter.failure
            time.sleep(1)


def _submissions() -> Iterator[Submission]:
    """Yield more than there is room for during the first three minutes, then less."""
    deal = random.Random(_SEED)  # noqa: S311  # a demo's dice
    for number, at in enumerate(range(0, SECONDS - 30, _PAUSE_SECONDS)):
        yield Submission(float(at), _job(f"job-{number:02d}", at, deal))


def _job(name: str, at: int, deal: random.Random) -> Manifest:
    seconds = deal.choice((6, 12, 20, 35))
    if deal.random() < 0.25:
        return single(name, 1, seconds)
    workers = deal.choice((1, 3, 5, 7)) if at < 0.6 * SECONDS else 1
    urgent = deal.random() < 0.2
    queue = "production" if urgent else "research"
    priority = "training-urgent" if urgent else "training-standard"
    return torch(name, workers, 4, seconds, queue, priority, expected=seconds + 5)
