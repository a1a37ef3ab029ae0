"""``python -m tools.house``: measures of the code's language, rooms and size, each with its bar.

A measure is a number of the repository as it lies on the disk. Its bar says how large it may be.
``--check`` prints the measures that have a ceiling and fails where one is above it. The ceiling is
the bar or, until the bar is met, the number that has been reached: nothing may get worse.
"""

import argparse
import ast
import math
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from pydantic.alias_generators import to_camel

from bireme.cli.commands import groups
from bireme.settings_source import section_of, section_settings
from bireme_lab.simulator.reports.terminal import markdown_table
from testbed import walk
from tools.docs.reference.settings import SECTIONS

ROOT: Final = Path(__file__).parents[1]
SHIPPED: Final = ("operator", "extender", "policies")
TOOLS: Final = ("tools", "benchmarks", "testbed")
TESTS: Final = ("tests",)
DISTRIBUTION: Final = ("operator", "extender", "policies/bireme")
LAB: Final = ("policies/bireme_lab",)


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Participles and adverbs that stood as names on their own. A name is a noun or a verb of the field.
_BARE: Final = _words(
    "found known asked told given wanted kept there own each left held at why words made taken"
    " seen here others beside before after chosen said written begun ended gone drawn played"
    " placed spared lent owed passed missed meant heard shown bound late early alone apart near"
    " ahead behind above below again already still yet once least most fewest longest"
)
_IRREGULAR: Final = _words(
    "found known told given kept left held made taken seen chosen said written begun gone drawn"
    " lent meant heard shown bound thrown grown paid sent built"
)
_NO_PARTICIPLES: Final = _words("need feed seed speed embed exceed proceed succeed bed")
_SUPERLATIVES: Final = ("MOST_", "LEAST_", "LONGEST_", "FEWEST_")
_MAX_CLASS_LINES: Final = 400
_MAX_METHODS: Final = 30
_MAX_FILE_LINES: Final = 700
_FIRST_WORDS: Final = _words("What Who Whom Of Where Whose")

_Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Measure:
    """A number of the repository, its ``bar``, and the ``ceiling`` above which a check fails."""

    name: str
    count: Callable[[], float]
    bar: float
    ceiling: float
    unit: str = ""


def _files(folders: Iterable[str]) -> list[Path]:
    found = (path for folder in folders for path in (ROOT / folder).rglob("*.py"))
    return sorted(path for path in found if "__pycache__" not in path.parts)


@cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def _lines(paths: Iterable[Path]) -> int:
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in paths)


def _lines_of(folders: Sequence[str]) -> Callable[[], int]:
    return lambda: _lines(_files(folders))


def _bound_names(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.arg):
            yield node.arg


def _functions(tree: ast.Module) -> Iterator[_Function]:
    return (node for node in ast.walk(tree) if isinstance(node, _Function))


def begins_with_participle(name: str) -> bool:
    """Return whether the first word of a function's name is a participle."""
    first = name.strip("_").partition("_")[0].lower()
    if first in _IRREGULAR:
        return True
    return first.endswith("ed") and len(first) > 3 and first not in _NO_PARTICIPLES


def bare_names() -> Counter[str]:
    """Return how often the shipped packages bind each bare participle or adverb as a name."""
    names = (
        name.strip("_").lower() for path in _files(SHIPPED) for name in _bound_names(_tree(path))
    )
    return Counter(name for name in names if name in _BARE)


def _bare_share() -> float:
    every = sum(1 for path in _files(SHIPPED) for _ in _bound_names(_tree(path)))
    return 100 * bare_names().total() / every


def participle_functions() -> Counter[str]:
    """Return the functions of the shipped packages whose name begins with a participle."""
    names = (each.name for path in _files(SHIPPED) for each in _functions(_tree(path)))
    return Counter(name for name in names if begins_with_participle(name))


def _participle_share() -> float:
    every = sum(1 for path in _files(SHIPPED) for _ in _functions(_tree(path)))
    return 100 * participle_functions().total() / every


def superlatives() -> Counter[str]:
    """Return the constants that say MOST_ or the like for MAX_ or MIN_."""
    names = (name.lstrip("_") for path in _files(SHIPPED) for name in _bound_names(_tree(path)))
    return Counter(name for name in names if name.startswith(_SUPERLATIVES))


def classes_of_one_name() -> dict[str, list[Path]]:
    """Return the public classes that have one name in several packages, and where they are."""
    places: dict[str, set[Path]] = {}
    for path in _files(SHIPPED):
        for node in _tree(path).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places.setdefault(node.name, set()).add(path)
    shared = {name: sorted(paths) for name, paths in places.items()}
    return {name: paths for name, paths in shared.items() if len({p.parent for p in paths}) > 1}


def _docstrings(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | _Function):
            yield ast.get_docstring(node) or ""


def sentences(text: str) -> list[str]:
    """Return the sentences of a docstring."""
    plain = " ".join(text.split())
    for end in (". ", "? ", ": "):
        plain = plain.replace(end, f"{end.strip()}\n")
    return [line.strip() for line in plain.splitlines() if line.strip()]


def starts() -> list[tuple[Path, str]]:
    """Return the sentences of docstrings that begin with What, Who, Of and their like."""
    found = []
    for path in _files(SHIPPED):
        for text in _docstrings(_tree(path)):
            for sentence in sentences(text):
                first = sentence.split(maxsplit=1)[0]
                if first in _FIRST_WORDS and not sentence.endswith("?"):
                    found.append((path, sentence))
    return found


def _is_table(node: ast.ClassDef) -> bool:
    """Return whether a class is an enumeration, whose members are rows and no behaviour."""
    return any(isinstance(base, ast.Name) and base.id.endswith("Enum") for base in node.bases)


def large_classes() -> list[tuple[str, int, int]]:
    """Return the classes with too many lines or methods: name, lines, methods.

    Enumerations are left out: their members are the rows of a table.
    """
    found = []
    for path in _files(SHIPPED):
        for node in ast.walk(_tree(path)):
            if isinstance(node, ast.ClassDef) and not _is_table(node):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                methods = sum(isinstance(each, _Function) for each in node.body)
                if lines > _MAX_CLASS_LINES or methods > _MAX_METHODS:
                    found.append((node.name, lines, methods))
    return found


def large_files() -> list[tuple[Path, int]]:
    """Return the files with too many lines, and how many each has."""
    counts = ((path, _lines([path])) for path in _files(SHIPPED))
    return [(path, lines) for path, lines in counts if lines > _MAX_FILE_LINES]


def settings() -> list[str]:
    """Return the settings of both programs, each with its section."""
    return [
        f"{section_of(cls)}.{to_camel(name)}" for cls in SECTIONS for name in section_settings(cls)
    ]


def commands() -> list[str]:
    """Return the commands of ``bireme`` with those of the lab, as the help lists them."""
    return [name for _, group in groups() for name in group]


@cache
def _walk() -> walk.Walk:
    return walk.follow()


MEASURES: Final = (
    Measure("names that are a bare participle or adverb", _bare_share, 0.5, 0.5, "%"),
    Measure("functions that begin with a participle", _participle_share, 2.5, 2.5, "%"),
    Measure("constants MOST_, LEAST_, LONGEST_, FEWEST_", lambda: superlatives().total(), 0, 0),
    Measure("classes of one name in several packages", lambda: len(classes_of_one_name()), 0, 0),
    Measure("sentences that begin with What, Who, Of ...", lambda: len(starts()), 0, 0),
    Measure("classes above 400 lines or 30 methods", lambda: len(large_classes()), 0, 0),
    Measure("files above 700 lines", lambda: len(large_files()), 0, 0),
    Measure("files from a job's event to its pods", lambda: len(_walk().files()), 40, math.inf),
    Measure("returns to a file on that way", lambda: _walk().returns(), 120, math.inf),
    Measure("returns to a file within run_cycle", lambda: _walk().cycle_returns(), 40, math.inf),
    Measure("settings of both programs", lambda: len(settings()), 45, 45),
    Measure("commands of bireme", lambda: len(commands()), 22, 22),
    Measure("lines of bireme, which a cluster runs", _lines_of(DISTRIBUTION), 62_000, math.inf),
    Measure("lines of bireme-lab", _lines_of(LAB), 25_000, math.inf),
    Measure("lines of tools, benchmarks, testbed", _lines_of(TOOLS), 30_000, math.inf),
    Measure("lines of tests", _lines_of(TESTS), 80_000, math.inf),
)


def _text(number: float, unit: str) -> str:
    return f"{number:,.1f} {unit}" if unit else f"{number:,.0f}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Print every measure; with ``--check`` return 1 where one is above its ceiling."""
    parser = argparse.ArgumentParser(prog="house", description=__doc__)
    parser.add_argument("--check", action="store_true", help="fail above a ceiling")
    parser.add_argument("--list", action="store_true", help="print what is counted, too")
    options = parser.parse_args(arguments)
    rows, is_worse = [], False
    for measure in MEASURES:
        if options.check and math.isinf(measure.ceiling):
            continue
        number = measure.count()
        if number > measure.ceiling:
            is_worse = True
            print(f"above what was reached: {measure.name}; --list shows each", file=sys.stderr)
        rows.append((measure.name, _text(number, measure.unit), _text(measure.bar, measure.unit)))
    print("\n".join(markdown_table(("measure", "now", "bar"), rows)))
    if options.list:
        _print_lists()
    return int(options.check and is_worse)


def _print_lists() -> None:
    for title, counts in (
        ("bare names", bare_names()),
        ("functions", participle_functions()),
        ("superlatives", superlatives()),
    ):
        print(f"\n{title}: " + ", ".join(f"{name} {n}" for name, n in counts.most_common()))
    print("\nsettings: " + ", ".join(settings()))
    print("\ncommands: " + ", ".join(commands()))
    for name, paths in classes_of_one_name().items():
        print(name, *(path.relative_to(ROOT) for path in paths))
    for name, lines, methods in large_classes():
        print(f"class {name}: {lines} lines, {methods} methods")
    for path, lines in large_files():
        print(f"{path.relative_to(ROOT)}: {lines} lines")
    for path, sentence in starts():
        print(f"{path.relative_to(ROOT)}: {sentence}")


if __name__ == "__main__":
    sys.exit(main())
