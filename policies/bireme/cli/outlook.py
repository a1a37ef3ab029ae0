"""``bireme outlook``: when every gang that waits should start, by the leader or by a record.

Without a record it is the leader's outlook (:mod:`bireme.cli.leader_outlook`). With a record the
scheduling cycle itself continues from the last cycle (:mod:`bireme.core.outlook`), by the policy
that decided it or by another one.
"""

import argparse
from collections import deque

from bireme.cli import cluster as common
from bireme.cli import leader, leader_outlook, what_if
from bireme.cli.arguments import (
    Json,
    UsageError,
    add_record,
    check_target,
    naming,
    whole,
    write_results,
)
from bireme.cli.own_policies import as_set, contenders, policy_names, recorded_name
from bireme.core.accelerators import Accelerators
from bireme.core.cycle import run_cycle
from bireme.core.outlook import Outlook, Prospect, look_ahead
from bireme.core.policy import Policy
from bireme.core.settings import SchedulingSettings
from bireme.core.times import clock_time, duration
from bireme.replay.decisions import RecordedPolicies
from bireme.replay.reader import RecordedCycle, open_record
from bireme.tables import align_columns


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_record(parser, is_needed=False)
    add = parser.add_argument
    add(
        "--policy",
        type=policy_names,
        default=[],
        metavar="NAME",
        help="orderer, orderer/placer or orderer/placer/sizer of the forecast; default: the "
        "policy of the record",
    )
    add("--limit", type=whole, metavar="N", help="show the first N gangs; default: all")
    common.add_target(parser)
    leader.add_leader(parser)
    add("--json", metavar="FILE", help="write all numbers; - for standard output, and no table")


def run(options: argparse.Namespace) -> int:
    check_target("--json", options.json)
    if len(options.policy) > 1:
        raise UsageError("argument --policy: name one policy")
    if not options.record:
        return _run_of_leader(options)
    settings, cycle = last_cycle(options, "RECORD")
    name, policy = _policy(options, settings, cycle)
    snapshot = cycle.snapshot
    # With explanations: only then does the first reservation state its expected time.
    outlook = look_ahead(snapshot, run_cycle(snapshot, policy), policy)
    write_results(
        options,
        _numbers(outlook, name),
        _text(outlook, name, options.limit, snapshot.nodes.accelerators),
    )
    return 0


def _run_of_leader(options: argparse.Namespace) -> int:
    if options.policy:
        raise UsageError(
            "argument --policy: the leader uses its own policy; name a RECORD to use another"
        )
    namespaces = [options.namespace] if options.namespace else []
    outlook = common.ask(
        options, lambda reader: leader_outlook.fetch(reader, options, namespaces=namespaces)
    )
    write_results(
        options, leader_outlook.numbers_of(outlook), leader_outlook.text_of(outlook, options.limit)
    )
    return 0


def _policy(
    options: argparse.Namespace, settings: SchedulingSettings, cycle: RecordedCycle
) -> tuple[str, Policy]:
    """Return the policy to play with, and its name."""
    if options.policy:
        ((name, (policy, _)),) = contenders(options.policy, settings).items()
        return name, policy
    remedy = "see --checkpoints, or name another by --policy"
    return policy_that_decided(settings, cycle, options.checkpoints, "RECORD", remedy)


def last_cycle(
    options: argparse.Namespace, argument: str
) -> tuple[SchedulingSettings, RecordedCycle]:
    """Return the settings and the last cycle of the record that ``argument`` names."""
    with naming(argument):
        record = open_record(options.record, options.policy_classes)
        last = deque(record.cycles(), maxlen=1)
    if not last:
        raise UsageError(
            f"argument {argument}: it has no cycle; has anything waited since it began?"
        )
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


def _numbers(outlook: Outlook, policy: str) -> Json:
    return {
        "policy": policy,
        "time": clock_time(outlook.now),
        "until": clock_time(outlook.until),
        "cut": outlook.cut.value,
        "cycles": outlook.cycles,
        "gangs": [
            {
                "gang": f"{prospect.gang.namespace}/{prospect.gang.name}",
                "queue": prospect.gang.queue,
                "position": prospect.position,
                "reason": prospect.reason.value if prospect.reason is not None else None,
                "start": clock_time(prospect.start) if prospect.start is not None else None,
                "waitSeconds": prospect.start - outlook.now if prospect.start is not None else None,
            }
            for prospect in outlook.prospects
        ],
    }


def _text(outlook: Outlook, policy: str, limit: int | None, accelerators: Accelerators) -> str:
    now = clock_time(outlook.now)
    if not outlook.prospects:
        return f"No gang waits at {now}.\n"
    starts = sum(prospect.start is not None for prospect in outlook.prospects)
    rows = [["POS", "GANG", "QUEUE", "GPUS", "WAITS FOR", "STARTS"]]
    rows += [_row(prospect, outlook.now, accelerators) for prospect in outlook.prospects[:limit]]
    lines = align_columns(rows, flush_left=len(rows[0]))
    left_out = len(outlook.prospects) - (len(rows) - 1)
    if left_out:
        lines.append(f"and {left_out} more; see --limit")
    what = f"{len(outlook.prospects)} gangs wait at {now}; {starts} have a start by {policy}"
    return "\n".join(
        (
            f"{what}: {leader_outlook.CUTS[outlook.cut]}.",
            what_if.ASSUMPTIONS,
            "",
            *lines,
            "",
        )
    )


def _row(prospect: Prospect, now: float, accelerators: Accelerators) -> list[str]:
    if prospect.start is None:
        start = "not foreseen"
    elif prospect.start <= now:
        start = "when the gangs there end"  # no time is known
    else:
        start = f"in {duration(prospect.start - now)}, {clock_time(prospect.start)}"
    return [
        str(prospect.position or "-"),
        f"{prospect.gang.namespace}/{prospect.gang.name}",
        prospect.gang.queue,
        str(accelerators.units(prospect.gang.demand)),
        prospect.reason.value if prospect.reason is not None else "not reached",
        start,
    ]
