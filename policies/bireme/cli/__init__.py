"""``bireme``, also as ``kubectl bireme``: the command line.

Each command is a module with two functions: ``add_arguments(parser)``, and ``run(options)``, which
returns the exit status: 0 when done, 1 if the command failed. ``options.command`` is the command
line as it was written, ``options.asked`` the name of the command. :func:`main` writes every
BiremeError as one line on standard error; a UsageError, for an argument that cannot be used, gives
2, any other 1, and Ctrl-C 130.
"""

import argparse
import os
import shlex
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import version
from typing import Final, NoReturn

from bireme.cli.arguments import UsageError
from bireme.core.errors import BiremeError

COMMANDS: Final = {
    "simulate": "compare policies on a workload, with the scheduling cycle of the operator",
    "replay": "what other policies would have done where an operator recorded what it did",
    "tune": "fit rules, constants and the learned index to a record, and refuse what does not win",
    "outlook": "when every gang that waits should start, by the leader or by a record",
    "train": "make a learned policy: a folder with its checkpoint and its curves",
    "evaluate": "compare a learned policy with its rivals, with the same seeds for all",
    "benchmark": "every policy beside the best tuned rule, on data that none was chosen by",
    "forecast": "how well a series can be forecast, by which model, and what comes next",
    "forecast-pools": "forecast the demand of every NodePoolScaler, and write it into their status",
    "why": "why a job waits, or where it is: the dominant reason first, and what would help",
    "queue": "which gangs wait, over all queues, the next to start first",
    "ui": "a page in the browser: capacity, queues, jobs, why they wait; of a cluster or a record",
    "list": "all jobs and gangs of a namespace: phase, reason, queue, place in line, size, age",
    "top": "what the cluster does now: queues, what runs, what is next; live, until Ctrl-C",
    "usage": "what devices were held for, by queue, namespace or pool, and how much was wasted",
    "suspend": "take the places of jobs away and keep the jobs, until they are resumed",
    "resume": "let suspended jobs start again, in their turn",
    "cancel": "delete jobs that have not ended, with a word on what that ends",
    "scale": "change how many replicas an elastic job asks for, while it waits",
    "logs": "what the replicas of a job write, with task and index before each line",
    "doctor": "check an installation from end to end, and say what is wrong and what to do",
    "explain": "what a SchedulingPolicy decides, whether it does, and how well",
    "drain": "what a drain of nodes would move, and where to; nothing is moved",
    "release": "let go of namespaces that enforce their queues, and of pods that wait for Bireme",
    "maintenance": "announce maintenance of nodes: no gang starts there that would not end before",
    "submit": "check manifests here and at the API server, send them all or none, and follow them",
    "convert": "Volcano's Jobs, PodGroups and Queues as Bireme's, with a note on all that differs",
    "policies": "list all policies, a line each",
    "completion": "a script by which bash, zsh or fish complete the command line",
}
"""The purpose of each command: its line in the list, and its description."""

# Modules named ``queue`` and ``list`` would hide a module and a type of Python.
_MODULES: Final = {
    "queue": "queues",
    "list": "listing",
    "suspend": "suspension",
    "resume": "suspension",
}


class _Parser(argparse.ArgumentParser):
    """Answers a wrong argument with one line instead of the whole usage."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message} (see {self.prog} --help)")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status."""
    command_line = list(sys.argv[1:] if arguments is None else arguments)
    try:
        options = parser_for(command_line).parse_args(command_line)
        options.command = shlex.join(["bireme", *command_line])
        status: int = options.run(options)
        sys.stdout.flush()  # so that a closed pipe is noticed here
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
        # The reader of the output has gone: leave nothing to flush when Python ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return status


def parser_for(command_line: Sequence[str]) -> argparse.ArgumentParser:
    """Return the parser; only the command in ``command_line`` has its arguments."""
    command_name = next((word for word in command_line if not word.startswith("-")), "")
    parser = _Parser(
        prog="bireme", description="Learned gang scheduling: ask a cluster, simulate, train, judge."
    )
    parser.add_argument("--version", action="version", version=f"bireme {version('bireme')}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for name, purpose in COMMANDS.items():
        sentence = f"{purpose[0].upper()}{purpose[1:]}."
        added = commands.add_parser(name, help=purpose, description=sentence)
        if name == command_name:  # the modules of all commands take a second to import
            module = _MODULES.get(name, name.replace("-", "_"))
            command = import_module(f"bireme.cli.{module}")
            command.add_arguments(added)
            added.set_defaults(run=command.run, asked=name)
    return parser
