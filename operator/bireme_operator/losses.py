"""The device-seconds that a running gang loses by being stopped before its end."""

from collections.abc import Mapping
from typing import Any

from bireme.core.nodes import NodeTable
from bireme.core.usage import Holder, Use
from bireme.kube.allocations import GangView
from bireme.kube.progress_reports import progress_of
from bireme.kube.training_jobs import JobFacts


def lost_device_seconds(
    job: JobFacts,
    status: Mapping[str, Any],
    view: GangView,
    nodes: NodeTable,
    label: str,
    now: float,
) -> dict[Holder, float]:
    """Return the lost device-seconds of the gang of ``job``, stopped at ``now`` (POSIX seconds).

    The loss is its devices times the time since its last progress report, or since its start if
    this run has reported nothing: Bireme knows no checkpoints. ``status`` is the status before the
    stop, with the last report, and ``label`` is the label of node pools.
    """
    seconds = max(0.0, now - _safe_until(job, status, view))
    pools, accelerators = nodes.label(label), nodes.accelerators
    losses: dict[Holder, float] = {}
    for task, places in view.places.items():
        devices = [
            (name, amount * accelerators.weight(name))
            for name, amount in view.plan.requests.get(task, ())
            if accelerators.is_accelerator(name)
        ]
        for node, replicas in places.items():
            code = pools.codes[nodes.row[node]] if node in nodes.row else -1
            pool = pools.values[code] if code >= 0 else ""
            for resource, amount in devices:
                holder = Holder(resource, view.plan.queue, job.key[0], pool, Use.RUNNING)
                losses[holder] = losses.get(holder, 0.0) + seconds * replicas * amount
    return losses


def _safe_until(job: JobFacts, status: Mapping[str, Any], view: GangView) -> float:
    began = view.plan.planned if job.running_since is None else job.running_since
    reported = progress_of(status)
    return began if reported is None else max(began, reported.progress.reported)
