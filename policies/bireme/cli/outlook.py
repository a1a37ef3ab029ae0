"""``bireme outlook``: when every gang that waits should start, by the leader or by a record.

Without a record it is the outlook that the leader keeps (:mod:`bireme.cli.leader_outlook`). Of a
record the last cycle is played forward with the scheduling cycle itself
(:mod:`bireme.core.outlook`), by the policy that decided it or by another one.
"""

import argparse
from collections import deque

from bireme.cli import cluster as common
from bireme.cli import leader, leader_outlook
from bireme.cli.arguments import (
    Json,
    UsageError,
    add_record,
    check_target,
    naming,
    whole,
    write_results,
)
from bireme.cli.experiment import as_set, contenders
from bireme.cli.replay import recorded_name
from bireme.cli.simulate import policy_names
from bireme.core.accelerators import Accelerators
from bireme.core.cycle import run_cycle
from bireme.core.outlook import Outlook, Prospect, look_ahead
from bireme.core.policy import Policy
from bireme.core.settings import SchedulingSettings
from bireme.core.times import clock_time, duration
from bireme.replay.decisions import RecordedPolicies
from bireme.replay.reader import RecordedCycle, open_record
from bireme.tables import aligned


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_record(parser, is_needed=False)
    add = parser.add_argument
    add(
        "--policy",
        type=policy_names,
        default=[],
        metavar="NAME",
        help="orderer, orderer/placer or orderer/placer/sizer to play with; default: who decided",
    )
    add("--limit", type=whole, metavar="N", help="show the first N gangs; default: all")
    common.add_target(parser)
    leader.add_leader(parser)
    add("--json", metavar="FILE", help="write all numbers; - for standard output, and no table")


def run(options: argparse.Namespace) -> int:
    check_target("--json", options.json)
    if len(options.policy) > 1:
        raise UsageError("argument --policy: name one policy; it is played alone")
    if not options.record:
        return _run_of_leader(options)
    settings, cycle = last_cycle(options, "RECORD")
    name, policy = _policy(options, settings, cycle)
    snapshot = cycle.snapshot
    # Explained, as only then the first reservation says when it should come true.
    found = look_ahead(snapshot, run_cycle(snapshot, policy), policy)
    write_results(
        options,
        _numbers(found, name),
        _text(found, name, options.limit, snapshot.nodes.accelerators),
    )
    return 0


def _run_of_leader(options: argparse.Namespace) -> int:
    if options.policy:
        raise UsageError("argument --policy: the leader plays its own; name a RECORD for another")
    wanted = [options.namespace] if options.namespace else []
    found = common.ask(
        options, lambda reader: leader_outlook.fetch(reader, options, namespaces=wanted)
    )
    write_results(
        options, leader_outlook.numbers_of(found), leader_outlook.text_of(found, options.limit)
    )
    return 0


def _policy(
    options: argparse.Namespace, settings: SchedulingSettings, cycle: RecordedCycle
) -> tuple[str, Policy]:
    """Return the policy to play with, and its name."""
    if options.policy:
        ((name, (made, _)),) = contenders(options.policy, settings).items()
        return name, made
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

    Its checkpoint is looked for below the folder ``checkpoints`` too; ``remedy`` is what to do
    where it cannot be made again.
    """
    recorded = recorded_name(settings)
    own, _ = as_set(settings, argument, recorded)
    policies = RecordedPolicies(own, settings, checkpoints)
    decided = policies.policy(cycle.source)
    if decided is None:
        raise UsageError(
            f"argument {argument}: the policy that decided it cannot be made again: "
            f"{policies.faults[cycle.source]}; {remedy}"
        )
    return cycle.source.name or recorded, decided


def _numbers(found: Outlook, policy: str) -> Json:
    return {
        "policy": policy,
        "time": clock_time(found.now),
        "until": clock_time(found.until),
        "cut": found.cut.value,
        "cycles": found.cycles,
        "gangs": [
            {
                "gang": f"{each.gang.namespace}/{each.gang.name}",
                "queue": each.gang.queue,
                "position": each.position,
                "reason": each.reason.value if each.reason is not None else None,
                "start": clock_time(each.start) if each.start is not None else None,
                "waitSeconds": each.start - found.now if each.start is not None else None,
            }
            for each in found.prospects
        ],
    }


def _text(found: Outlook, policy: str, limit: int | None, known: Accelerators) -> str:
    at = clock_time(found.now)
    if not found.prospects:
        return f"Nobody waits at {at}.\n"
    starts = sum(each.start is not None for each in found.prospects)
    rows = [["POS", "GANG", "QUEUE", "GPUS", "WAITS FOR", "STARTS"]]
    rows += [_row(each, found.now, known) for each in found.prospects[:limit]]
    lines = aligned(rows, left=len(rows[0]))
    left_out = len(found.prospects) - (len(rows) - 1)
    if left_out:
        lines.append(f"and {left_out} more; see --limit")
    what = f"{len(found.prospects)} gangs wait at {at}; {starts} have a start by {policy}"
    return "\n".join(
        (
            f"{what}: {leader_outlook.CUTS[found.cut]}.",
            "Nobody arrives in this, nothing fails, and all run as long as estimated.",
            "",
            *lines,
            "",
        )
    )


def _row(each: Prospect, now: float, known: Accelerators) -> list[str]:
    if each.start is None:
        start = "not foreseen"
    elif each.start <= now:
        start = "as soon as what runs there ends"  # which says of nothing when
    else:
        start = f"in {duration(each.start - now)}, {clock_time(each.start)}"
    return [
        str(each.position or "-"),
        f"{each.gang.namespace}/{each.gang.name}",
        each.gang.queue,
        str(known.units(each.gang.demand)),
        each.reason.value if each.reason is not None else "not reached",
        start,
    ]
