"""Examples of every message of :mod:`bireme.core.messages`, for the golden file of all texts."""

import inspect
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from bireme.core import messages
from bireme.core.decision import Reservation
from bireme.core.gangs import Gang
from bireme.core.gpus import GPU_MODEL_LABEL
from bireme.core.nodes import MaintenanceWindow
from bireme.core.placement import FreeCapacity, placement_at
from bireme.core.pod_constraints import NodeConstraints, NodeDemand, Taint
from bireme.core.policy import Ranked, ScoreFactor
from bireme.core.quotas import Quota
from bireme.core.settings import SchedulingSettings
from bireme.core.turns import OverLimitGang
from bireme.heuristics.packing import Packing
from bireme.testing import (
    GPU,
    a_gang,
    a_node,
    a_pool,
    a_running_gang,
    a_snapshot,
    a_task,
    racks,
)

HOUR: Final = 3600.0


def rendered() -> dict[str, Sequence[str]]:
    """Return the examples of each function of messages that returns a text.

    Raises:
        KeyError: a function has no example.
    """
    examples = {**_capacity(), **_limits(), **_order(), **_starts(), **_stops()}
    return {name: examples[name] for name in functions()}


def functions() -> list[str]:
    """Return the names of the public functions of messages that return a text."""
    return [
        name
        for name, function in inspect.getmembers(messages, inspect.isfunction)
        if function.__module__ == messages.__name__
        and not name.startswith("_")
        and inspect.signature(function).return_annotation in (str, str | None)
    ]


# --- the world of the examples --------------------------------------------------------------------

_NODES = racks(2, 2)
_SNAPSHOT = a_snapshot(_NODES, now=HOUR)
_TABLE = _SNAPSHOT.nodes
_OWN = a_gang("own", a_task(4, 8))
_OTHER = a_gang("other", a_task(2, 8))
_FOREIGN = a_gang("foreign", namespace="team-b")
_LEARNED = replace(_OWN, estimated_seconds=HOUR, is_learned_estimate=True)
_PLACEMENT = placement_at({"worker": {"r0-n0": 1, "r0-n1": 1}}, _TABLE)
_ONE_NODE = placement_at({"worker": {"r0-n0": 1}}, _TABLE)
_SPREAD = placement_at({"worker": {"r0-n0": 1, "r1-n0": 1}}, _TABLE)
_EXCESS: Mapping[str, tuple[int, int, int]] = {GPU: (8, 12, 16)}


def _text(message: str | None) -> str:
    assert message is not None
    return message


def _capacity() -> dict[str, Sequence[str]]:
    empty = FreeCapacity(_TABLE, np.zeros_like(_TABLE.allocatable))
    fragments = np.zeros_like(_TABLE.allocatable)
    fragments[:, _TABLE.axis.names.index(GPU)] = (1, 1, 8, 8)
    scattered = FreeCapacity(_TABLE, fragments)
    demand = NodeDemand("volume pv-1 of claim data", ())
    bound = a_gang("own", a_task(4, 8, constraints=NodeConstraints(demands=(demand,))))
    wide, large = a_gang("own", a_task(40)), a_gang("own", a_task(1, 9))
    tainted = a_snapshot([a_node("n0", taints=[Taint("team", "b", "NoSchedule")])]).nodes
    starting = a_snapshot([a_node("n0", is_ready=False)]).nodes
    pairs = a_gang("own", a_task(3, 5, name="a"), a_task(2, 5, name="b"))
    tight = a_gang("own", a_task(1, 8, cpu_millis=90_000), a_task(1, 8, name="ps"))
    lacking = messages.lacking(_OWN, scattered)
    return {
        "lacking": [
            lacking,
            messages.lacking(a_gang("own", a_task(2, 7)), FreeCapacity(_TABLE, fragments + 0)),
            messages.lacking(bound, scattered),
            messages.lacking(tight, empty),
        ],
        "behind": [messages.behind(lacking, 2)],
        "never_fits": [
            _text(messages.never_fits(gang, _TABLE, Packing()))
            for gang in (wide, large, bound, pairs)
        ]
        + [_text(messages.never_fits(_OWN, table, Packing())) for table in (tainted,)],
        "fits_later": [_text(messages.fits_later(a_gang("own"), starting, Packing()))],
        "dominant_resource": [messages.dominant_resource(_OWN, _TABLE)],
        "composition": [messages.composition(a_gang("own", a_task(4), a_task(1, name="ps")))],
        "quantity": [
            messages.quantity(resource, amount)
            for resource, amount in ((GPU, 8), ("cpu", 1500), ("memory", 3 * 2**29))
        ],
    }


def _limits() -> dict[str, Sequence[str]]:
    quota = Quota("team-a", "compute", hard={"requests." + GPU: 16}, used={})
    excess = {"requests." + GPU: (8, 12, 16), "limits.cpu": (2000, 3000, 4000)}
    alone = {"requests." + GPU: (20, 0, 16), "limits.cpu": (5000, 0, 4000)}
    growable = replace(_SNAPSHOT, growable=(a_pool(room=2),))
    labelled = replace(
        _OWN, queue="lab", queue_source="label bireme.dev/default-queue of namespace 'team-a'"
    )
    capped = replace(_OWN, min_runtime_seconds=7200.0)
    settings = SchedulingSettings()
    over = [
        OverLimitGang(Ranked(_OWN, 0.0), 3, 2, are_shapes_many, None)
        for are_shapes_many in (False, True)
    ]
    return {
        "queue_of": [messages.queue_of(_OWN), messages.queue_of(labelled)],
        "no_queue": [messages.no_queue(gang, _SNAPSHOT) for gang in (_OWN, labelled)],
        "over_limit": [messages.over_limit("lab", _EXCESS)],
        "above_limit": [
            messages.above_limit("lab", limited, {GPU: (12, 8)}) for limited in ("lab", "org")
        ],
        "beyond_limit": [messages.beyond_limit("lab", {GPU: (20, 0, 16)})],
        "over_quota": [messages.over_quota(quota, excess)],
        "beyond_quota": [messages.beyond_quota(quota, alone)],
        "claim_in_use": [
            messages.claim_in_use(("default", "data"), user) for user in (_OTHER, None)
        ],
        "beyond_all_nodes": [_text(messages.beyond_all_nodes({GPU: 100}, growable))],
        "runtime_cap_note": [messages.runtime_cap_note(capped, _SNAPSHOT)],
        "beyond_line": [messages.beyond_line(entry, settings) for entry in over],
        "scaling_up": [
            messages.scaling_up({"a": 1, "b": 2}, [a_pool("late", coming=2, asked_at=60.0)], 600.0)
        ],
    }


def _order() -> dict[str, Sequence[str]]:
    known = Reservation(2 * HOUR, _PLACEMENT)
    unknown = Reservation(HOUR, _PLACEMENT)
    closed = replace(known, is_closed=True)
    window = MaintenanceWindow(2 * HOUR, 4 * HOUR)
    closing = a_snapshot([a_node(f"n{at}", maintenance=window) for at in range(5)], now=HOUR)
    begun = replace(closing, now=3 * HOUR)
    stated = replace(_OWN, estimated_seconds=2 * HOUR)
    return {
        "reservation_note": [
            messages.reservation_note(reservation, _SNAPSHOT) for reservation in (known, unknown)
        ],
        "may_preempt_from": [messages.may_preempt_from(HOUR)],
        "would_delay": [
            messages.would_delay(gang, blocked, reservation, HOUR, 1)
            for gang, blocked, reservation in (
                (_OWN, _OTHER, known),
                (_LEARNED, _OTHER, known),
                (_OWN, _FOREIGN, unknown),
                (_OWN, _OTHER, closed),
            )
        ],
        "places_for_returns": [
            messages.places_for_returns(_OWN, returns)
            for returns in ([_OTHER], [_OTHER, _FOREIGN, a_gang("third")])
        ],
        "would_pass_limit": [messages.would_pass_limit(_OWN, _OTHER, 1)],
        "behind_barrier": [messages.behind_barrier(_OWN, _OTHER, 1)],
        "maintenance_ahead": [
            messages.maintenance_ahead(_OWN, ["n0"], closing),
            messages.maintenance_ahead(stated, list(closing.nodes.names), closing),
            messages.maintenance_ahead(_OWN, ["n0"], begun),
        ],
        "maintenance_move": [
            messages.maintenance_move(done, ["n0", "n1"], closing.nodes)
            for done in ("stopped", "shrunk")
        ],
    }


def _starts() -> dict[str, Sequence[str]]:
    part = replace(_OWN, tasks=(a_task(2, 8),))
    scheduled = replace(_OWN, left_to_scheduler="required pod affinity on rack")
    return {
        "where": [messages.where(places) for places in (_ONE_NODE, _PLACEMENT, _SPREAD)],
        "runtime_estimate": [messages.runtime_estimate(_LEARNED)],
        "ahead_of": [
            messages.ahead_of(_OTHER, _OWN),
            messages.ahead_of(_OTHER, _LEARNED),
            messages.ahead_of(_FOREIGN, _OWN, is_opportunistic=True),
        ],
        "scheduler_note": [messages.scheduler_note(scheduled)],
        "admission": [
            messages.admission(_OWN, _OWN, _PLACEMENT, None),
            messages.admission(part, _OWN, _ONE_NODE, _OTHER),
            messages.admission(scheduled, scheduled, _SPREAD, _OTHER, is_opportunistic=True),
        ],
        "growth": [messages.growth(a_gang("own", a_task(2)))],
    }


def _stops() -> dict[str, Sequence[str]]:
    models = ("Tesla-V100-SXM2-32GB", "NVIDIA-H100-80GB-HBM3")
    nodes = [a_node(f"n{at}", labels={GPU_MODEL_LABEL: model}) for at, model in enumerate(models)]
    fast = a_snapshot(nodes, now=HOUR)
    slow_run = a_running_gang(a_gang("own", a_task(1, 8)), fast.nodes)
    target = placement_at({"worker": {"n1": 1}}, fast.nodes)
    runs = [a_running_gang(gang, _TABLE) for gang in (_OTHER, _FOREIGN)]
    reasons = ("which has a higher priority class", "which has had less service")
    claims = [
        messages.claim(_entry(_OWN, 2.0, reason), _entry(_OTHER, 1.0, reason)) for reason in reasons
    ]
    claims += [
        messages.claim(_entry(_OWN, 1.0), _entry(_OTHER, 1.0), is_opportunistic)
        for is_opportunistic in (False, True)
    ]
    settings = SchedulingSettings()
    high = replace(_OWN, priority=settings.budget_override_priority)
    return {
        "faster_gpus": [messages.faster_gpus(slow_run, target, fast)],
        "claim": claims,
        "making_room": [
            messages.making_room(_OTHER, "shrunk", _OWN),
            messages.making_room(_OTHER, "stopped", _OWN, claims[0]),
            messages.making_room(_FOREIGN, "stopped", _OWN, claims[2]),
        ],
        "budget_overridden": [
            messages.budget_overridden(_BUDGET, gang, is_opportunistic, settings)
            for gang, is_opportunistic in ((high, False), (_OWN, True), (_OWN, False))
        ],
        "waiting_for_preemption": [
            messages.waiting_for_preemption(_OWN, victims) for victims in (runs[:1], runs)
        ],
    }


_BUDGET: Final = "budget guard allows 0 evictions, 4 are needed"


def _entry(gang: Gang, value: float, reason: str = "") -> Ranked:
    factor = ScoreFactor("priority", "", value, 1.0, reason)
    return Ranked(gang, value, lambda: (factor,), value if math.isfinite(value) else None)
