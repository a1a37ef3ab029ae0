"""``bireme completion``: a script by which a shell completes commands, options and their values.

It is made from the parsers of the commands, so it fits the version that wrote it. The script reads
the names of jobs from the cluster, with ``bireme list``, on each completion.
"""

import argparse
import shlex
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

_FILES: Final = frozenset({"FILE", "MANIFEST", "RECORD", "FOLDER", "DIRECTORY"})
"""Names of values that are paths."""
_JOBS: Final = "$(bireme list -o name 2>/dev/null | sed 's#^trainingjob[^/]*/##; s#[.][^/]*/#/#')"
"""Shell code for the names of jobs, as ``bireme why`` takes them."""


@dataclass(slots=True)
class _Option:
    """An option of a command: its spellings, its help and its possible values."""

    spellings: Sequence[str]
    helps: str
    takes_value: bool
    choices: Sequence[str] = ()
    is_file: bool = False


@dataclass(slots=True)
class _Command:
    """A command: its options and its arguments."""

    name: str
    purpose: str
    options: list[_Option] = field(default_factory=list)
    values: list[str] = field(default_factory=list)
    takes_files: bool = False
    takes_jobs: bool = False


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=tuple(_SCRIPTS), metavar="SHELL", help="bash, zsh or fish")
    parser.epilog = (
        "bash: source <(bireme completion bash); zsh: source <(bireme completion zsh), after "
        "compinit; fish: bireme completion fish | source"
    )


def run(options: argparse.Namespace) -> int:
    sys.stdout.write("\n".join(_SCRIPTS[options.shell](list(_commands()))) + "\n")
    return 0


# --- commands and their options -----------------------------------------------------------------


def _commands() -> Iterator[_Command]:
    from bireme.cli import COMMANDS, parser_for

    for name, purpose in COMMANDS.items():
        command = _Command(name, purpose)
        for action in _actions(parser_for([name]), name):
            _add(command, action)
        yield command


def _actions(parser: argparse.ArgumentParser, name: str) -> Sequence[argparse.Action]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            subparser: argparse.ArgumentParser = action.choices[name]
            return subparser._actions
    raise AssertionError(f"the parser of bireme has no commands, such as {name}")


def _add(command: _Command, action: argparse.Action) -> None:
    metavar = action.metavar if isinstance(action.metavar, str) else ""
    is_file = metavar in _FILES or action.type is Path
    choices = tuple(map(str, action.choices or ()))
    if action.option_strings:
        helps = (action.help or "").replace("%%", "%")
        takes_value = action.nargs != 0
        command.options.append(_Option(action.option_strings, helps, takes_value, choices, is_file))
    else:
        command.values += choices
        command.takes_files |= is_file
        command.takes_jobs |= metavar == "JOB"


# --- scripts ------------------------------------------------------------------------------------


def _bash(commands: Sequence[_Command]) -> Iterator[str]:
    yield from (
        "_bireme() {",
        '    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} command="" i',
        '    # bash takes --sort-by=name apart at "=".',
        '    if [[ $cur == "=" ]]; then cur=""',
        '    elif [[ $prev == "=" ]]; then prev=${COMP_WORDS[COMP_CWORD-2]}; fi',
        "    for ((i = 1; i < COMP_CWORD; i++)); do",
        "        if [[ ${COMP_WORDS[i]} != -* ]]; then command=${COMP_WORDS[i]}; break; fi",
        "    done",
        '    case "$command,$prev" in',
    )
    for command in commands:
        for option in command.options:
            if option.takes_value:
                pattern = "|".join(f"{command.name},{spelling}" for spelling in option.spellings)
                yield f"    {pattern}) {_bash_words(option.choices, option.is_file)}; return ;;"
    yield "    esac"
    yield '    case "$command,$cur" in'
    yield f"    ,*) {_bash_words([command.name for command in commands])} ;;"
    for command in commands:
        spellings = [spelling for option in command.options for spelling in option.spellings]
        yield f"    {command.name},-*) {_bash_words(spellings)} ;;"
        completion = _bash_words(command.values, command.takes_files, jobs=command.takes_jobs)
        yield f"    {command.name},*) {completion} ;;"
    yield from ("    esac", "}", "complete -F _bireme bireme")


def _bash_words(values: Sequence[str], files: bool = False, *, jobs: bool = False) -> str:
    if files:
        return 'compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$cur"))'
    listed = f'"{_JOBS}"' if jobs else shlex.quote(" ".join(values))
    return f'COMPREPLY=($(compgen -W {listed} -- "$cur"))'


def _zsh(commands: Sequence[_Command]) -> Iterator[str]:
    yield from (
        "#compdef bireme",
        "_bireme() {",
        '    local command="" prev=${words[CURRENT-1]} i',
        "    for ((i = 2; i < CURRENT; i++)); do",
        "        if [[ ${words[i]} != -* ]]; then command=${words[i]}; break; fi",
        "    done",
        "    if [[ ${words[CURRENT]} == --*=* ]]; then",
        '        prev=${words[CURRENT]%%=*}; compset -P "*="',
        "    fi",
        '    case "$command,$prev" in',
    )
    for command in commands:
        for option in command.options:
            if option.takes_value:
                pattern = "|".join(f"{command.name},{spelling}" for spelling in option.spellings)
                yield f"    {pattern}) {_zsh_words(option.choices, option.is_file)}; return ;;"
    yield "    esac"
    yield '    case "$command,${words[CURRENT]}" in'
    described = " ".join(shlex.quote(f"{command.name}:{command.purpose}") for command in commands)
    yield f"    ,*) local -a commands=({described}); _describe command commands ;;"
    for command in commands:
        options = " ".join(
            shlex.quote(f"{spelling}:{option.helps.replace(':', ' ')}")
            for option in command.options
            for spelling in option.spellings
        )
        yield f"    {command.name},-*) local -a options=({options}); _describe -o option options ;;"
        completion = _zsh_words(command.values, command.takes_files, jobs=command.takes_jobs)
        yield f"    {command.name},*) {completion} ;;"
    yield from ("    esac", "}", "compdef _bireme bireme")


def _zsh_words(values: Sequence[str], files: bool = False, *, jobs: bool = False) -> str:
    if files:
        return "_files"
    listed = f'${{(f)"{_JOBS}"}}' if jobs else " ".join(map(shlex.quote, values))
    return f"compadd -- {listed}" if listed else ":"


def _fish(commands: Sequence[_Command]) -> Iterator[str]:
    yield "complete -c bireme -f"
    for command in commands:
        purpose = _fish_quoted(command.purpose)
        yield f"complete -c bireme -n __fish_use_subcommand -a {command.name} -d {purpose}"
        within = f"complete -c bireme -n '__fish_seen_subcommand_from {command.name}'"
        for option in command.options:
            yield f"{within}{_fish_option(option)}"
        if command.values:
            yield f"{within} -a {_fish_quoted(' '.join(command.values))}"
        if command.takes_files:
            yield f"{within} -F"
        if command.takes_jobs:
            yield f"{within} -a {_fish_quoted(_JOBS.removeprefix('$'))}"


def _fish_option(option: _Option) -> str:
    spellings = "".join(
        f" -l {spelling.removeprefix('--')}" if spelling.startswith("--") else f" -s {spelling[1:]}"
        for spelling in option.spellings
    )
    value = ""
    if option.takes_value:
        value = " -r -F" if option.is_file else " -x"
        if option.choices:
            value += f" -a {_fish_quoted(' '.join(option.choices))}"
    return f"{spellings}{value} -d {_fish_quoted(option.helps)}"


def _fish_quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


_SCRIPTS: Final = {"bash": _bash, "zsh": _zsh, "fish": _fish}
