"""``bireme``, also as ``kubectl bireme``: questions to a cluster, and what needs none.

``why``, ``queue``, ``top``, ``explain``, ``drain`` and ``submit`` speak to a cluster,
``forecast-pools`` forecasts its node pools.
``simulate`` compares policies on a workload, ``replay`` on what an operator recorded; ``train`` and
``evaluate`` make and judge learned ones, ``policies`` lists them and shows single ones;
``forecast`` judges forecasters on a series; ``convert`` turns Volcano's manifests into Bireme's.
Exit status 0 when done, 2 for an argument that cannot be used (one line on standard error names
it), 1 when what was asked for failed, 130 after Ctrl-C.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import version
from typing import Final, NoReturn

from bireme.cli.arguments import UsageError
from bireme.core.errors import BiremeError

_COMMANDS: Final[tuple[tuple[str, str, str, str], ...]] = (
    (
        "simulate",
        "bireme.cli.simulate",
        "compare policies on a workload",
        "Compare policies on a workload, with the scheduling cycle of the operator.",
    ),
    (
        "replay",
        "bireme.cli.replay",
        "what other policies would have done",
        "What other policies would have done where an operator recorded what it did.",
    ),
    (
        "train",
        "bireme.cli.train",
        "make a learned policy",
        "Make a learned policy: a folder with its checkpoint and its curves.",
    ),
    (
        "evaluate",
        "bireme.cli.evaluate",
        "judge a learned policy",
        "Judge a learned policy beside its rivals, with the same seeds for all.",
    ),
    (
        "forecast",
        "bireme.cli.forecast",
        "how well a series can be forecast",
        "How well a series can be forecast, by whom, and what comes next.",
    ),
    (
        "forecast-pools",
        "bireme.cli.forecast_pools",
        "forecast the demand of node pools",
        "Forecast the demand of every NodePoolScaler of a cluster, and write it into their status.",
    ),
    (
        "why",
        "bireme.cli.why",
        "why a job waits, and what would help",
        "Why a job waits, or where it is: the dominant reason first, then the chain behind it.",
    ),
    (
        "queue",
        "bireme.cli.queues",
        "who is in line, the next to start first",
        "Who is in line, over all queues, the next to start first.",
    ),
    (
        "top",
        "bireme.cli.top",
        "what the cluster does now, live",
        "What the cluster does now: queues, who runs, who is next; again and again until Ctrl-C.",
    ),
    (
        "explain",
        "bireme.cli.explain",
        "what a SchedulingPolicy decides, and how well",
        "What a SchedulingPolicy decides, whether it does, and how well.",
    ),
    (
        "drain",
        "bireme.cli.drain",
        "what a drain of nodes would move",
        "What a drain of nodes would move, and where to. A preview: nothing is moved.",
    ),
    (
        "submit",
        "bireme.cli.submit",
        "check manifests, send them, follow them",
        "Check manifests here and at the API server, send them all or none, and follow them.",
    ),
    (
        "convert",
        "bireme.cli.convert",
        "Volcano's manifests as Bireme's",
        "Volcano's Jobs, PodGroups and Queues as Bireme's, with a word on everything that differs.",
    ),
    (
        "policies",
        "bireme.cli.policies",
        "list all policies",
        "List all policies, a line each.",
    ),
)
"""Name, module, the line in the list, and the description. Only the module that is asked for is
imported: together they take a second."""


class _Parser(argparse.ArgumentParser):
    """Answers a wrong argument with one line instead of the whole usage."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message} (see {self.prog} --help)")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; the exit status."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        options = parser_for(given).parse_args(given)
        status: int = options.run(options, given)
        sys.stdout.flush()
    except UsageError as error:
        sys.stderr.write(f"bireme: {error}\n")
        return 2
    except BiremeError as error:
        sys.stderr.write(f"bireme: {error}\n")
        return 1
    except KeyboardInterrupt:
        sys.stderr.write("bireme: interrupted\n")
        return 130
    except BrokenPipeError:
        # Whoever read the output has gone. Nothing may be left to flush when Python ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return status


def parser_for(given: Sequence[str]) -> argparse.ArgumentParser:
    """The parser of the command line; only the command of ``given`` knows its arguments."""
    asked = next((word for word in given if not word.startswith("-")), "")
    parser = _Parser(
        prog="bireme", description="Learned gang scheduling: ask a cluster, simulate, train, judge."
    )
    parser.add_argument("--version", action="version", version=f"bireme {version('bireme')}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for name, module, says, description in _COMMANDS:
        added = commands.add_parser(name, help=says, description=description)
        if name == asked:
            command = import_module(module)
            command.add_arguments(added)
            added.set_defaults(run=command.run)
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
