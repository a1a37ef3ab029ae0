"""``bireme simulate``: compare policies on a workload.

The table goes to standard output, progress to a terminal on standard error, all numbers to
``--json``, a page with plots to ``--html``.
"""

import argparse
import sys
import time
from math import inf
from pathlib import Path

from bireme.cli.arguments import check_target, naming, number, whole, write_results
from bireme.cli.own_policies import once_each, policy_names
from bireme_lab.cli.experiment import DEFAULTS, Experiment, carry_out, set_up
from bireme_lab.simulator.comparison import Comparison, compare
from bireme_lab.simulator.node_floors import FLOORS, REACTIVE
from bireme_lab.simulator.physics.model import PHYSICS, PLAIN, to_json
from bireme_lab.simulator.reports import page, terminal


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--trace", required=True, metavar="SOURCE", help="for example philly:FILE or gen:poisson")
    _add_machines(parser)
    add(
        "--policy",
        type=policy_names,
        default=DEFAULTS.orderer,
        metavar="NAMES",
        help="orderer, orderer/placer or orderer/placer/sizer, several with commas between; each "
        "is a name from `bireme policies`, with parameters as NAME?PARAMETER=VALUE, "
        "package.module:Class of your own or, last, checkpoint:FOLDER, which alone sets all "
        "parts of the checkpoint; ratios are to the first policy; default: %(default)s",
    )
    add(
        "--placer",
        default=DEFAULTS.placer,
        help="placer of policies that name none; default: %(default)s",
    )
    add(
        "--sizer",
        default=DEFAULTS.sizer,
        help="sizer of policies that name none; default: goodput, if speeds are known",
    )
    add("--limit", type=whole, metavar="N", help="only the first N jobs")
    add(
        "--start", type=_seconds, default=0.0, metavar="SECONDS", help="only jobs from this time on"
    )
    add("--seed", type=_seeds, default="0", metavar="NUMBERS", help="for example 0,1,2; default: 0")
    add(
        "--estimates",
        choices=("history", "stated", "true"),
        default="history",
        help="run times that policies know: those that the trace states or finished jobs show "
        "(as in a cluster), only those that it states, or the true ones; default: "
        "%(default)s",
    )
    add(
        "--resumable",
        type=_share,
        default=1.0,
        metavar="SHARE",
        help="share of the jobs, from 0 to 1, that can resume after a stop, as elastic ones can; "
        "only such jobs are stopped for equals, moved, and started in places reserved for "
        "others; default: all, %(default)g",
    )
    add("--no-preemption", action="store_true", help="stop no running job for others")
    add(
        "--wait-bound",
        type=whole,
        default=DEFAULTS.wait_bound_seconds,
        metavar="SECONDS",
        help="after this wait a job goes first; default: %(default)s",
    )
    add(
        "--record",
        type=Path,
        metavar="FOLDER",
        help="write the snapshots and decisions of the first policy as an operator's record, for "
        "`bireme replay` and `bireme tune`; not with floors",
    )
    add("--json", metavar="FILE", help="write all numbers; - for standard output, and no table")
    add("--html", metavar="FILE", help="write one self-contained page with plots")


def _add_machines(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--nodes", metavar="COUNTxGPUS", help="64x8, or 64x8,16x4; default: those of the trace")
    add(
        "--pools",
        metavar="MIN[:SECONDS]",
        help="every part of --nodes is a node pool that grows from MIN nodes to the number in "
        "--nodes; a node arrives SECONDS after its request (180); several with commas "
        "between, one for each part; default: all nodes are always there",
    )
    add(
        "--floor",
        type=policy_names,
        metavar="NAMES",
        help=f"forecast of the pools, one or several of {', '.join(FLOORS)}; default: {REACTIVE}",
    )
    add("--racks", type=whole, metavar="N", help="number of racks of the nodes; default: none")
    add(
        "--physics",
        default=PLAIN,
        metavar="NAME",
        help="loss of jobs by spread, neighbours, stragglers, restarts and failing nodes: "
        f"{' or '.join(PHYSICS)}, with options as in plain?node_mtbf_seconds=1e6; default: "
        "%(default)s, no loss",
    )


def run(options: argparse.Namespace) -> int:
    for argument, target in (("--json", options.json), ("--html", options.html)):
        check_target(argument, target)
    experiment = set_up(options)
    progress = terminal.ProgressLine(sys.stderr, time.monotonic)
    try:
        metrics, outcomes = carry_out(experiment, progress.show, options.record)
    finally:  # an error must not be written behind the bar
        progress.clear()
    comparison = compare(metrics)
    if options.html:
        gpus, treatments = experiment.gpus_by_node, experiment.trace.treatments
        report = page.PageContent(comparison, outcomes, gpus, options.command, treatments)
        with naming("--html"):
            Path(options.html).write_text(page.render(report), encoding="utf-8")
    columns = terminal.POOL_COLUMNS if experiment.pools else terminal.COLUMNS
    text = f"{_title(experiment)}\n\n{terminal.table(comparison, columns)}"
    write_results(options, document(experiment, comparison), text)
    return 0


def document(experiment: Experiment, comparison: Comparison) -> dict[str, object]:
    """Return the numbers that ``--json`` writes.

    ``trace`` (name, jobs, treatments: how many rows met
    which), ``cluster`` (nodes, gpus), ``physics`` (the fields of
    :class:`~bireme_lab.simulator.physics.model.Physics`, null for never), ``runs`` (a list with the
    keys of :data:`bireme_lab.simulator.metrics.KEYS`) and ``comparison`` (by policy and key: mean
    over seeds, ratio to the first policy's, each with the ``low`` and ``high`` of its 95 % interval
    or null).
    """
    trace, gpus = experiment.trace, experiment.gpus_by_node
    return {
        "trace": {
            "name": trace.name,
            "jobs": len(trace.jobs),
            "treatments": dict(trace.treatments),
        },
        "cluster": {"nodes": len(gpus), "gpus": sum(gpus.values())},
        "physics": to_json(experiment.physics),
        "runs": [run.to_json() for line in comparison.results for run in line.runs],
        "comparison": comparison.to_json(),
    }


def _title(experiment: Experiment) -> str:
    trace, gpus = experiment.trace, experiment.gpus_by_node
    treated = "".join(f"\n  {count:,} rows: {what}" for what, count in trace.treatments.items())
    return (
        f"{trace.name}: {terminal.plural(len(trace.jobs), 'job')} on "
        f"{terminal.plural(len(gpus), 'node')} with "
        f"{terminal.plural(sum(gpus.values()), 'GPU')}{treated}"
    )


def _share(text: str) -> float:
    return number(text, lambda value: 0 <= value <= 1, "is no share; write a number from 0 to 1")


def _seconds(text: str) -> float:
    return number(text, lambda value: 0 <= value < inf, "is not a number of seconds from 0 on")


def _seeds(text: str) -> list[int]:
    seeds = [part.strip() for part in text.split(",")]
    if not all(seed.isascii() and seed.isdigit() for seed in seeds):
        raise argparse.ArgumentTypeError(f"{text!r} is no list of seeds; write for example 0,1,2")
    return [int(seed) for seed in once_each(text, seeds)]
