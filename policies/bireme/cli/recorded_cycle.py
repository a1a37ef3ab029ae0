"""The last cycle of an operator's record: its policy, and its waiting gangs as lines."""

import argparse
from collections import deque
from collections.abc import Iterator

from bireme.cli.arguments import UsageError, naming
from bireme.cli.gangs import Factor, GangLine
from bireme.cli.own_policies import as_set, recorded_name
from bireme.core.decision import Decision
from bireme.core.gangs import Gang
from bireme.core.outlook import Outlook
from bireme.core.policy import Policy
from bireme.core.settings import SchedulingSettings
from bireme.core.snapshot import ClusterSnapshot
from bireme.replay.decisions import RecordedPolicies
from bireme.replay.reader import RecordedCycle, open_record


def last_cycle(options: argparse.Namespace) -> tuple[SchedulingSettings, RecordedCycle]:
    """Return the settings and the last cycle of the record that ``--record`` names."""
    with naming("--record"):
        record = open_record(options.record, options.policy_classes)
        last = deque(record.cycles(), maxlen=1)
    if not last:
        raise UsageError("argument --record: it has no cycle; has anything waited since it began?")
    return record.settings, last[0]


def policy_that_decided(
    settings: SchedulingSettings,
    cycle: RecordedCycle,
    checkpoints: str,
    argument: str,
    remedy: str = "see --checkpoints",
) -> tuple[str, Policy]:
    """Return the policy that decided a cycle of the record that ``argument`` names, and its name.

    The folder ``checkpoints`` is searched for its checkpoint too. ``remedy`` ends the error for a
    policy that cannot be loaded.
    """
    recorded = recorded_name(settings)
    settings_policy, _ = as_set(settings, argument, recorded)
    policies = RecordedPolicies(settings_policy, settings, checkpoints)
    decided = policies.policy(cycle.source)
    if decided is None:
        raise UsageError(
            f"argument {argument}: the policy that decided it cannot be loaded: "
            f"{policies.faults[cycle.source]}; {remedy}"
        )
    return cycle.source.name or recorded, decided


def waiting_lines(
    snapshot: ClusterSnapshot, decision: Decision, outlook: Outlook | None
) -> Iterator[GangLine]:
    """Yield the gangs that wait, with their starts as far as ``outlook`` foresees them."""
    prospects = {each.gang.uid: each for each in (outlook.prospects if outlook else ())}
    holds = {hold.gang.uid: hold for hold in decision.held}
    admits = {admit.gang.uid: admit for admit in decision.admitted}
    for gang in snapshot.waiting:
        hold, admit = holds.get(gang.uid), admits.get(gang.uid)
        outcome = hold or admit
        ranked = outcome.ranked if outcome is not None else None
        prospect = prospects.get(gang.uid)
        start = prospect.start if prospect is not None else None
        yield line_of_gang(
            gang,
            phase="Pending" if admit is None else "Starting",
            reason=outcome.reason.value if outcome is not None else "",
            message=outcome.message if outcome is not None else "",
            position=placed.position if (placed := prospect or hold) is not None else None,
            waits=admit is None,
            gpus=snapshot.nodes.accelerators.units(gang.demand),
            score=ranked.score if ranked is not None else None,
            factors=tuple(
                Factor(factor.name, factor.value, factor.weight, factor.contribution)
                for factor in (ranked.factors if ranked is not None else ())
            ),
            # A start at once rests on gangs that end at an unknown time.
            earliest=start if start is not None and start > snapshot.now else None,
            since=snapshot.now if admit is not None else None,
        )


def line_of_gang(gang: Gang, **facts: object) -> GangLine:
    """Return a line with ``facts``; a record holds none of the other fields."""
    unknown: dict[str, object] = dict.fromkeys(
        ("position", "score", "earliest", "latest", "coverage_percent", "since", "progress")
    )
    unknown |= dict.fromkeys(("reason", "message", "ready", "priority_class", "nodes"), "")
    unknown |= {"factors": (), "waited_before_seconds": 0.0}
    counters = (("preemptions", gang.evictions),) if gang.evictions else ()
    return GangLine(
        kind=gang.kind,
        namespace=gang.namespace,
        name=gang.name,
        queue=gang.queue,
        created=gang.arrived,
        queued=gang.arrived,
        parked=gang.parked,
        counters=counters,
        **{**unknown, **facts},  # type: ignore[arg-type]
    )
