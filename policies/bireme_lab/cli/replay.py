"""``bireme replay``: compare other policies with the record of an operator.

The first part compares decision by decision, on the recorded snapshots. The second part simulates
the submitted jobs from beginning to end. The recorded policy always comes first: it must decide as
recorded, and the others are compared with its simulation.
"""

import argparse
import sys
import time
from collections.abc import Mapping

from bireme.cli.arguments import add_record, check_target, naming, write_results
from bireme.cli.own_policies import as_set, contenders, policy_names, recorded_name
from bireme.replay.decisions import RecordedPolicies
from bireme.replay.reader import Record, open_record
from bireme_lab.replay.decisions import DecisionComparison
from bireme_lab.replay.report import Replay
from bireme_lab.replay.waits import ReplayPolicy, simulate_waits
from bireme_lab.replay.workload import WorkloadBuilder
from bireme_lab.simulator.reports.terminal import ProgressLine


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_record(parser)
    add = parser.add_argument
    add(
        "--policy",
        type=policy_names,
        default=[],
        metavar="NAMES",
        help="orderer, orderer/placer or orderer/placer/sizer, several with commas between; "
        "omitted parts are as recorded; default: only check the record",
    )
    add("--json", metavar="FILE", help="write all numbers; - for standard output, and no table")


def run(options: argparse.Namespace) -> int:
    check_target("--json", options.json)
    with naming("RECORD"):
        record = open_record(options.record, options.policy_classes)
    recorded = recorded_name(record.settings)
    policies = {recorded: as_set(record.settings, "RECORD", recorded)}
    policies |= contenders(options.policy, record.settings)
    progress = ProgressLine(sys.stderr, time.monotonic)
    try:
        sources = RecordedPolicies(policies[recorded][0], record.settings, options.checkpoints)
        result = replay(record, recorded, policies, sources, progress)
    finally:
        progress.clear()
    write_results(options, result.to_json(), result.text() + "\n")
    return 0


def replay(
    record: Record,
    recorded: str,
    policies: Mapping[str, ReplayPolicy],
    sources: RecordedPolicies,
    progress: ProgressLine,
) -> Replay:
    """Return the replay of ``record`` under ``policies``; its settings name ``recorded``."""
    comparisons = {name: DecisionComparison() for name in policies}
    builder, lost = WorkloadBuilder(), 0
    with naming("RECORD"):
        for cycle in record.cycles():
            then = sources.policy(cycle.source)
            for name, comparison in comparisons.items():
                # A SchedulingPolicy may have decided instead of the policy of the settings.
                policy = then if name == recorded else policies[name][0]
                if policy is not None:
                    comparison.compare(cycle, record.place, policy)
            builder.observe(cycle.snapshot)
            lost += cycle.lost
            progress.show(record.place, record.files_read, len(record.files))
    workload = builder.workload()
    waits = simulate_waits(workload, policies, progress.show)
    return Replay(record, recorded, comparisons, lost, workload, waits, sources)
