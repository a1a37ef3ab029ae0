"""``bireme doctor``: check an installation from end to end, and say what is wrong and what to do.

It reads with the caller's own rights and changes nothing. The exit status is 1 where something is
wrong; what the caller may not see is no fault. With ``--dump`` it writes what the leader saw and
decided last instead, for whoever helps.
"""

import argparse
from collections import Counter
from pathlib import Path
from typing import Final

from bireme.cli import cluster as common
from bireme.cli import colours, leader
from bireme.cli.arguments import naming
from bireme.cli.checkup import examined
from bireme.cli.cluster import ask, versioned
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
        help="write what the leader saw and decided last to FILE, as JSON, and check nothing",
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
    found = ask(options, examined)
    is_healthy = all(each.state is not State.WRONG for each in found)
    checks = [
        {
            "check": each.check,
            "state": each.state.value,
            "message": each.message,
            "helps": each.helps or None,
        }
        for each in found
    ]
    data = versioned("Diagnosis", {"healthy": is_healthy, "checks": checks})
    common.write(options.output, data, _text(found, colours.painter(options)))
    return int(not is_healthy)


def _text(found: list[Finding], paint: colours.Paint) -> str:
    width = max(len(each.check) for each in found)
    lines = []
    for each in found:
        state = paint(each.state.value) + " " * (7 - len(each.state.value))
        lines.append(f"{state}  {each.check:<{width}}  {each.message}")
        if each.helps:
            lines.append(f"{'':7}  {'':{width}}  What helps: {each.helps}.")
    count = Counter(each.state for each in found)
    wrong, unknown = count[State.WRONG], count[State.UNKNOWN]
    result = f"{wrong} wrong" if wrong else "Nothing is wrong"
    hidden = f"; {unknown} could not be seen" if unknown else ""
    return "\n".join([*lines, "", f"{result}{hidden}, of {len(found)} answers.", ""])
