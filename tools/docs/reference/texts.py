"""``tests/golden/messages.txt``: every text that users see, so that a change of words is one diff.

The last section is complete by construction: it lists the strings of all shipped modules that no
other section has.
"""

import argparse
import ast
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from bireme.cli import CommandParser, parser_for
from bireme.cli.commands import groups
from bireme.core.reasons import Reason
from bireme.kube.crd import KINDS, definition
from bireme.settings_source import section_settings
from bireme_extender.membership import RefusalReason
from testbed import messages
from tools.docs.monitoring import metrics
from tools.docs.reference import settings
from tools.docs.reference.tables import docstrings

ROOT: Final = Path(__file__).parents[3]
SHIPPED: Final = ("extender", "operator", "policies")
_HEAD: Final = "Every text that users see. Written by `make reference` from the code.\n"
_MIN_WORDS: Final = 3


def page() -> str:
    """Return all texts, one a line, in sections."""
    sections = {
        "Messages of decisions, by function of bireme.core.messages": _messages(),
        "Reasons: meaning, then what helps": _reasons(),
        "Refusals of the extender": docstrings(RefusalReason).items(),
        "Fields of the custom resources": _fields(),
        "Settings": _settings(),
        "Metrics": _metrics(),
        "Help of the command line": _commands(),
    }
    parts = [_HEAD]
    known: set[str] = set()
    for title, entries in sections.items():
        listed = [(name, _on_a_line(text)) for name, text in entries if text]
        known.update(text for _, text in listed)
        parts.append(_section(title, (f"{name}: {text}" for name, text in listed)))
    parts.append(_section("All other strings of at least three words", _others(known)))
    return "\n".join(parts)


def _section(title: str, lines: Iterable[str]) -> str:
    return "".join((f"# {title}\n\n", *(f"{line}\n" for line in lines)))


def _on_a_line(text: str) -> str:
    return " ".join(text.split())


def _messages() -> Iterator[tuple[str, str]]:
    for name, examples in messages.rendered().items():
        for example in examples:
            yield name, example


def _reasons() -> Iterator[tuple[str, str]]:
    for reason in Reason:
        yield reason.value, reason.meaning
        yield reason.value, reason.remedy


def _fields() -> Iterator[tuple[str, str]]:
    for kind in KINDS:
        made = definition(kind)["spec"]
        schema = made["versions"][0]["schema"]["openAPIV3Schema"]
        yield from _described(schema, made["names"]["kind"])


def _described(schema: Mapping[str, Any], path: str) -> Iterator[tuple[str, str]]:
    yield path, schema.get("description", "")
    for rule in schema.get("x-kubernetes-validations", ()):
        yield f"{path} (rule)", rule.get("message") or rule.get("messageExpression", "")
    for name, child in schema.get("properties", {}).items():
        yield from _described(child, f"{path}.{name}")
    for key, suffix in (("items", "[]"), ("additionalProperties", ".*")):
        if isinstance(schema.get(key), Mapping):
            yield from _described(schema[key], path + suffix)


def _settings() -> Iterator[tuple[str, str]]:
    for cls in settings.SECTIONS:
        meanings = docstrings(cls)
        for name in section_settings(cls):
            yield f"{cls.__name__}.{name}", meanings[name]


def _metrics() -> Iterator[tuple[str, str]]:
    for metric in (*metrics.of_operator(), *metrics.of_extender()):
        yield metric.name, metric.meaning


def _commands() -> Iterator[tuple[str, str]]:
    # Not the pages of argparse: their form depends on the version of Python.
    for _, commands in groups():
        for name, command in commands.items():
            yield f"bireme {name}", command.purpose
            yield from _arguments("bireme", parser_for([name]))


def _arguments(command: str, parser: argparse.ArgumentParser) -> Iterator[tuple[str, str]]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, subparser in action.choices.items():
                if isinstance(subparser, CommandParser):
                    subparser.load()
                if command != "bireme":
                    yield f"{command} {name}", subparser.description or ""
                yield from _arguments(f"{command} {name}", subparser)
        elif command != "bireme" and action.help != argparse.SUPPRESS:
            spelling = "/".join(action.option_strings) or str(action.metavar or action.dest)
            yield f"{command} {spelling}", action.help or ""


# --- strings of modules ---------------------------------------------------------------------------


def _others(known: set[str]) -> Iterator[str]:
    for folder in SHIPPED:
        for path in sorted((ROOT / folder).rglob("*.py")):
            module = ".".join(path.relative_to(ROOT / folder).with_suffix("").parts)
            for text in _strings(ast.parse(path.read_text())):
                line = _on_a_line(text)
                if len(line.split()) >= _MIN_WORDS and line not in known:
                    yield f"{module}: {line}"


def _strings(node: ast.AST) -> Iterator[str]:
    """Yield the strings below ``node``, with expressions as ``{}``; no docstrings, no types."""
    for field, value in ast.iter_fields(node):
        is_docstring = isinstance(node, ast.Expr) and isinstance(value, ast.Constant)
        if field in ("annotation", "returns") or is_docstring:
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.Constant) and isinstance(child.value, str):
                yield child.value
            elif isinstance(child, ast.JoinedStr):
                yield _template(child)
                yield from (text for part in child.values for text in _inner(part))
            elif isinstance(child, ast.AST):
                yield from _strings(child)


def _inner(part: ast.expr) -> Iterator[str]:
    if isinstance(part, ast.FormattedValue):
        yield from _strings(ast.Expression(part.value))


def _template(text: ast.JoinedStr) -> str:
    return "".join(
        str(part.value) if isinstance(part, ast.Constant) else "{}" for part in text.values
    )
