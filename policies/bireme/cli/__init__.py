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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import entry_points, version
from typing import Final, NoReturn

from bireme.cli.arguments import UsageError
from bireme.core.errors import BiremeError, nearest

COMMANDS: Final = {
    "outlook": "predict the start of every waiting gang, by the leader or from a record",
    "forecast-pools": "forecast the demand of every NodePoolScaler, and write it into its status",
    "why": "explain why a job waits or where it runs: the dominant reason first, with a remedy",
    "queue": "list the waiting gangs of all queues, the next to start first",
    "ui": "open a board in the browser: capacity, queues, jobs and reasons, of a cluster or a "
    "record",
    "list": "list the jobs and gangs of a namespace: phase, reason, queue, position, size, age",
    "top": "watch the cluster: queues, running and waiting jobs; live, until Ctrl-C",
    "usage": "report the use and waste of devices, by queue, namespace or pool",
    "suspend": "stop jobs and keep them, until they are resumed",
    "resume": "let suspended jobs wait and start again",
    "cancel": "delete jobs that have not ended, and say what each was doing",
    "scale": "change the number of replicas of a waiting elastic job",
    "logs": "print the logs of the replicas of a job, with task and index before each line",
    "doctor": "check an installation from end to end, and list faults with remedies",
    "explain": "explain a SchedulingPolicy: its parts, whether it decides, and how well",
    "drain": "show which gangs a drain of nodes would move, and where to; moves nothing",
    "release": "release namespaces that enforce their queues, and pods that wait for Bireme",
    "maintenance": "announce maintenance of nodes: only gangs that end before it may start there",
    "submit": "check manifests here and at the API server, send all or none, and follow the jobs",
    "convert": "convert Volcano's Jobs, PodGroups and Queues, with a note on every difference",
    "policies": "list all policies, a line each",
    "completion": "print a completion script for bash, zsh or fish",
}
"""The purpose of each command of Bireme: its line in the list, and its description."""
GROUP: Final = "bireme.commands"
"""Group of the entry points by which other distributions add commands.

The value of such an entry point is a mapping like COMMANDS, in the package of their modules.
"""

_LAB_REMEDY: Final = "; simulation and training need pip install bireme-lab"
# Modules named ``queue`` and ``list`` would hide a module and a type of Python.
_MODULES: Final = {
    "queue": "queues",
    "list": "listing",
    "suspend": "suspension",
    "resume": "suspension",
}


@dataclass(frozen=True, slots=True)
class Command:
    """A command: its purpose, and the module with its functions."""

    purpose: str
    module: str


def commands() -> dict[str, Command]:
    """Return every command by name, those that other distributions add last."""
    every = _of_package("bireme.cli", COMMANDS)
    for point in entry_points(group=GROUP):
        for name, command in _of_package(point.module, point.load()).items():
            every.setdefault(name, command)
    return every


def _of_package(package: str, purposes: Mapping[str, str]) -> dict[str, Command]:
    return {
        name: Command(purpose, f"{package}.{_MODULES.get(name, name.replace('-', '_'))}")
        for name, purpose in purposes.items()
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
    subparsers = parser.add_subparsers(required=True, metavar="COMMAND")
    # Entry points are read only for a list, and for a command that Bireme does not have itself.
    every = _of_package("bireme.cli", COMMANDS) if command_name in COMMANDS else commands()
    if command_name and command_name not in every:
        has_lab = any(point.name == "lab" for point in entry_points(group=GROUP))
        raise UsageError(
            f"argument COMMAND: no command is called {command_name!r}; "
            f"{nearest(command_name, every)}{'' if has_lab else _LAB_REMEDY} "
            f"(see {parser.prog} --help)"
        )
    for name, command in every.items():
        sentence = f"{command.purpose[0].upper()}{command.purpose[1:]}."
        added = subparsers.add_parser(name, help=command.purpose, description=sentence)
        if name == command_name:  # the modules of all commands take a second to import
            module = import_module(command.module)
            module.add_arguments(added)
            added.set_defaults(run=module.run, asked=name)
    return parser
