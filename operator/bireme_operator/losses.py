"""The device-seconds that a running gang loses by being stopped before its end."""

from collections.abc import Mapping
from typing import Any

from bireme.core.nodes import NodeTable
from bireme.core.usage import Holder, Use
from bireme.kube.allocations import GangView
from bireme.kube.training_jobs import JobFacts, progress_of


def lost_device_seconds(
    job: JobFacts,
    status: Mapping[str, Any],
    view: GangView,
    nodes: NodeTable,
    label: str,
    now: float,
) -> dict[Holder, float]:
    """Return what the gang of ``job`` loses that is stopped at ``now`` (POSIX seconds).

    That is its devices times the time since its last progress report, or since it ran where this
    run has reported none: Bireme knows of no checkpoints. ``status`` is that before the stop,
    with what was reported last, and ``label`` that of node pools.
    """
    seconds = max(0.0, now - _safe_until(job, status, view))
    pools, known = nodes.label(label), nodes.accelerators
    lost: dict[Holder, float] = {}
    for task, places in view.places.items():
        devices = [
            (name, amount * known.weight(name))
            for name, amount in view.plan.requests.get(task, ())
            if known.is_accelerator(name)
        ]
        for node, replicas in places.items():
            code = pools.codes[nodes.row[node]] if node in nodes.row else -1
            pool = pools.values[code] if code >= 0 else ""
            for resource, amount in devices:
                holder = Holder(resource, view.plan.queue, job.key[0], pool, Use.RUNNING)
                lost[holder] = lost.get(holder, 0.0) + seconds * replicas * amount
    return lost


def _safe_until(job: JobFacts, status: Mapping[str, Any], view: GangView) -> float:
    began = view.plan.planned if job.running_since is None else job.running_since
    reported = progress_of(status)
    return began if reported is None else max(began, reported.progress.reported)
