"""``bireme``, also as ``kubectl bireme``: the command line.

Each command is a module with two functions: ``add_arguments(parser)``, and ``run(options)``, which
returns the exit status: 0 when done, 1 if the command failed. ``options.command`` is the command
line as it was written, ``options.asked`` the name of the command, or of its verb. :func:`main`
writes every BiremeError as one line on standard error; a UsageError, for an argument that cannot be
used, gives 2, any other 1, and Ctrl-C 130. :mod:`bireme.cli.commands` lists the commands.
"""

import argparse
import os
import shlex
import shutil
import sys
import textwrap
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, Final, NoReturn

from bireme.cli.arguments import UsageError
from bireme.cli.commands import Command, find_command, groups, no_lab
from bireme.core.errors import BiremeError

_INDENT: Final = 14
"""Column of the purposes in the help."""


class _Parser(argparse.ArgumentParser):
    """Answers a wrong argument with one line instead of the whole usage."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message} (see {self.prog} --help)")


class CommandParser(_Parser):
    """Parser of a command, which imports the command once it is needed: all take a second."""

    command: Command | None = None

    def load(self) -> None:
        """Add the arguments of the command, or its verbs."""
        if (command := self.command) is None:
            return
        self.command = None
        if command.verbs:
            verbs = self.add_subparsers(required=True, metavar="VERB", parser_class=CommandParser)
            for name, verb in command.verbs.items():
                _add(verbs, name, verb, help=verb.purpose)
        elif not command.module:
            raise no_lab(self.prog)
        else:
            module = import_module(command.module)
            module.add_arguments(self)
            self.set_defaults(run=module.run, asked=self.prog.rpartition(" ")[2])

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Load the command, and parse as any other parser."""
        self.load()
        return super().parse_known_args(args, namespace)


def _add(commands: Any, name: str, command: Command, **more: str) -> None:
    commands.add_parser(name, description=_sentence(command.purpose), **more).command = command


class _Version(argparse.Action):
    """Prints the version, which takes a look at the installed packages."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> NoReturn:
        from importlib.metadata import version

        sys.stdout.write(f"bireme {version('bireme')}\n")
        parser.exit()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status."""
    return _run("bireme", arguments, parser_for)


def run_module(
    program: str, module: str, purpose: str, arguments: Sequence[str] | None = None
) -> int:
    """Run the command of ``module`` as ``python -m program``; return its exit status."""
    name, command = f"python -m {program}", import_module(module)

    def make(_: Sequence[str]) -> argparse.ArgumentParser:
        parser = _Parser(prog=name, description=_sentence(purpose))
        command.add_arguments(parser)
        parser.set_defaults(run=command.run)
        return parser

    return _run(name, arguments, make)


def _run(
    program: str,
    arguments: Sequence[str] | None,
    make: Callable[[Sequence[str]], argparse.ArgumentParser],
) -> int:
    command_line = list(sys.argv[1:] if arguments is None else arguments)
    try:
        options = make(command_line).parse_args(command_line)
        options.command = f"{program} {shlex.join(command_line)}"
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
    """Return the parser of the command in ``command_line``; UsageError if there is none."""
    name = next((word for word in command_line if not word.startswith("-")), "")
    parser = _Parser(
        prog="bireme",
        usage="bireme [-h] [--version] COMMAND ...",
        description="Learned gang scheduling: ask a cluster, simulate, train, judge.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version and exit")
    commands = parser.add_subparsers(
        prog="bireme",
        required=True,
        metavar="COMMAND",
        help=argparse.SUPPRESS,
        parser_class=CommandParser,
    )
    if not command_line or command_line[0] != name:  # an option of bireme itself
        parser.epilog = _overview()
    if name:
        _add(commands, name, find_command(name))
    return parser


def _sentence(purpose: str) -> str:
    return f"{purpose[0].upper()}{purpose[1:]}."


def _overview() -> str:
    """Return the commands by group, as the help shows them."""
    width = min(100, shutil.get_terminal_size().columns - 2)
    lines: list[str] = []
    for heading, commands in groups():
        lines += ["", f"{heading}:"] if lines else [f"{heading}:"]
        for name, command in commands.items():
            lines += textwrap.wrap(
                command.purpose,
                width,
                initial_indent=f"  {name:<{_INDENT - 3}} ",
                subsequent_indent=" " * _INDENT,
            )
    return "\n".join(lines)
