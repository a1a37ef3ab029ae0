"""``bireme doctor``: check an installation from end to end, and say what is wrong and what to do.

It reads with the caller's own rights and changes nothing. The exit status is 1 if something is
wrong; an object that the caller may not read is no fault. With ``--dump`` it writes the leader's
last snapshot and decisions instead, for support.
"""

import argparse
from collections import Counter
from pathlib import Path
from typing import Final

from bireme.cli import cluster as common
from bireme.cli import colours, leader
from bireme.cli.arguments import naming
from bireme.cli.checkup import examine
from bireme.cli.cluster import ask, with_version
from bireme.cli.findings import Finding, State

_DUMP: Final = leader.Request(
    "debug/dump",
    "get /debug/dump",
    "record with operator.records",
    setting="debugDump",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--dump",
        type=Path,
        metavar="FILE",
        help="write the leader's last snapshot and decisions to FILE, as JSON, and check nothing",
    )
    leader.add_leader(parser)
    common.add_target(parser)
    common.add_output(parser)
    colours.add_argument(parser)


def run(options: argparse.Namespace) -> int:
    if options.dump is not None:
        dump = ask(options, lambda reader: leader.fetch(reader, options, _DUMP))
        with naming("--dump"):
            options.dump.write_bytes(dump)
        return 0
    findings = ask(options, examine)
    is_healthy = all(finding.state is not State.WRONG for finding in findings)
    checks = [
        {
            "check": finding.check,
            "state": finding.state.value,
            "message": finding.message,
            "helps": finding.helps or None,
        }
        for finding in findings
    ]
    data = with_version("Diagnosis", {"healthy": is_healthy, "checks": checks})
    common.write(options.output, data, _text(findings, colours.painter(options)))
    return int(not is_healthy)


def _text(findings: list[Finding], paint: colours.Paint) -> str:
    width = max(len(finding.check) for finding in findings)
    lines = []
    for finding in findings:
        state = paint(finding.state.value) + " " * (7 - len(finding.state.value))
        lines.append(f"{state}  {finding.check:<{width}}  {finding.message}")
        if finding.helps:
            lines.append(f"{'':7}  {'':{width}}  What helps: {finding.helps}.")
    count = Counter(finding.state for finding in findings)
    wrong, unknown = count[State.WRONG], count[State.UNKNOWN]
    result = f"{wrong} wrong" if wrong else "Nothing is wrong"
    hidden = f"; {unknown} could not be checked" if unknown else ""
    return "\n".join([*lines, "", f"{result}{hidden}, of {len(findings)} answers.", ""])
