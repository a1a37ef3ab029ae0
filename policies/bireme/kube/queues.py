"""Queue manifests to :class:`bireme.core.queues.Queue`."""

from collections.abc import Mapping

from pydantic import ValidationError

from bireme.core.queues import Queue
from bireme.kube import quantities, wire
from bireme.kube.api.queues import QueueSpec


def from_manifest(queue: wire.Custom, namespaces: Mapping[str, Mapping[str, str]]) -> Queue:
    """The queue as the core sees it; ``namespaces`` are labels by name, for its selector.

    A queue whose spec cannot be read is closed: what nobody understands admits nobody.
    """
    name = queue.metadata.name
    try:
        spec = QueueSpec.model_validate(queue.spec, extra="ignore")
    except ValidationError:
        return Queue(name, is_open=False)
    allowed = None
    if spec.namespace_selector is not None:
        selects = spec.namespace_selector.selects
        allowed = frozenset(n for n, labels in namespaces.items() if selects(dict(labels)))
    return Queue(
        name=name,
        limit=_amounts(spec.limit),
        user_priority=spec.user_priority,
        wait_bound_seconds=spec.wait_bound_seconds,
        is_open=spec.state == "Open",
        namespaces=allowed,
        parent=spec.parent or "",
        weight=spec.weight,
        guaranteed=_amounts(spec.guaranteed),
    )


def _amounts(given: Mapping[str, str | int]) -> dict[str, int]:
    """Amounts a queue grants: a fraction of a unit is none."""
    return {r: quantities.parse_quantity(r, value, rounding="down") for r, value in given.items()}
