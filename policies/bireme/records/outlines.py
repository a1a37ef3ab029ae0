"""Decisions in names, so that they outlive the node rows they were made in, and can be compared."""

from collections.abc import Iterator
from hashlib import blake2b

import msgspec

from bireme.core.decision import Action, Admit, Decision, Hold, Preempt, Resize
from bireme.core.nodes import NodeTable
from bireme.core.placement import Placement
from bireme.records.lines import Outline, Places


def outline_of(decision: Decision, nodes: NodeTable) -> Outline:
    """``decision``, which was made over the rows of ``nodes``."""
    starts = {a.gang.uid: places_of(a.placement, nodes) for a in decision.admitted}
    resizes = {a.gang.uid: places_of(a.placement, nodes) for a in decision.resized}
    return Outline(
        digest=_digest(decision, nodes),
        starts=starts,
        resizes=resizes,
        stops={a.gang.uid: a.beneficiary.uid for a in decision.preempted},
        holds={a.gang.uid: a.reason.value for a in decision.held},
        fallback=decision.fallback,
        growth=_growth_of(decision),
    )


def _growth_of(decision: Decision) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for growth in decision.growth:
        found.setdefault(growth.gang.uid, {})[growth.pool] = growth.nodes
    return found


def places_of(placement: Placement, nodes: NodeTable) -> Places:
    """``placement`` by task and node name."""
    names = nodes.names
    return {
        task.task: {
            names[row]: count
            for row, count in zip(task.rows.tolist(), task.counts.tolist(), strict=True)
        }
        for task in placement.tasks
    }


def _digest(decision: Decision, nodes: NodeTable) -> str:
    told = [list(_told(action, nodes)) for action in decision.actions]
    growth = _growth_of(decision)
    # Without growth the digest is what it was before there were pools that grow.
    text = msgspec.json.encode([told, decision.fallback, *([growth] if growth else [])])
    return blake2b(text, digest_size=8).hexdigest()


def _told(action: Action, nodes: NodeTable) -> Iterator[object]:
    """Everything about ``action`` but its words."""
    yield action.gang.uid
    yield action.reason
    match action:
        case Admit():
            yield places_of(action.placement, nodes)
            yield action.passed.uid if action.passed else None
        case Hold():
            yield action.position
            kept = action.reservation
            if kept is not None:
                yield kept.start
                yield kept.is_closed
                yield places_of(kept.placement, nodes)
        case Resize():
            yield places_of(action.placement, nodes)
        case Preempt():
            yield action.beneficiary.uid
