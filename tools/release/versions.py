"""The version: pyproject.toml has it, and every other place that names it is written from there.

The standard library alone: a release asks before anything is installed.
"""

import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tools.release.errors import ReleaseError

ROOT: Final = Path(__file__).resolve().parents[2]
SOURCE: Final = "pyproject.toml"
_NUMBER: Final = r"(?P<version>\d+\.\d+\.\d+)"  # what helm and PyPI write alike
_VERSION: Final = re.compile(_NUMBER)
_SOURCE_LINE: Final = rf'^version = "{_NUMBER}"$'
# An image of Bireme's, or of a user's with Bireme in it, by its tag.
_IMAGE: Final = rf"\b(?:bireme(?:-[a-z]+)?|[a-z]+-bireme):{_NUMBER}"
PLACES: Final = (
    ("policies/pyproject.toml", _SOURCE_LINE),
    ("policies/pyproject.toml", rf'"bireme\[serve\]=={_NUMBER}"'),
    ("charts/bireme/Chart.yaml", rf"^(?:version|appVersion): {_NUMBER}$"),
    ("charts/bireme/README.md", rf"\bVersion {_NUMBER};"),
    ("docs/*.md", _IMAGE),
    ("docs/*.md", rf"oci://\S+/bireme --version {_NUMBER}"),
    ("kind-config.yaml", _IMAGE),
    ("manifests/examples/*.yaml", _IMAGE),
    ("tests/cluster/test_chart_values.py", _IMAGE),
    ("tests/golden/chart/*.yaml", rf'app\.kubernetes\.io/version: "{_NUMBER}"'),
    ("tests/golden/chart/*.yaml", rf"helm\.sh/chart: bireme-{_NUMBER}"),
    ("tests/golden/chart/*.yaml", _IMAGE),
)
"""Files below the repository, and what names the version in them.

Records of what ran, such as results and the cards of checkpoints, name the version that ran.
"""


@dataclass(frozen=True, slots=True)
class Place:
    """One mention of a version: ``line`` counts from 1, ``span`` is where in the text it stands."""

    file: Path
    line: int
    version: str
    span: tuple[int, int]


def current(root: Path = ROOT) -> str:
    """Return the version of pyproject.toml; ReleaseError where it is none such as 1.2.3."""
    version = str(tomllib.loads((root / SOURCE).read_text())["project"]["version"])
    if not _VERSION.fullmatch(version):
        raise ReleaseError(f"{SOURCE}: version {version!r} is none such as 0.2.0")
    return version


def check(root: Path = ROOT) -> None:
    """Raise ReleaseError unless every place names the version of pyproject.toml."""
    version = current(root)
    wrong = [
        f"{place.file.relative_to(root)}:{place.line} says {place.version}"
        for place in _places(root)
        if place.version != version
    ]
    if wrong:
        raise ReleaseError(
            f"{SOURCE} says {version}, but {'; '.join(wrong)}: "
            f"run `python -m tools.release version {version}`"
        )


def write(version: str, root: Path = ROOT) -> list[Path]:
    """Write ``version`` into every place; return the files that changed."""
    if not _VERSION.fullmatch(version):
        raise ReleaseError(f"version {version!r} is none such as 0.2.0")
    changed: dict[Path, str] = {}
    places = [*_found(root / SOURCE, _SOURCE_LINE), *_places(root)]
    for place in sorted(places, key=lambda one: one.span, reverse=True):  # the last of a file first
        if place.version != version:
            text = changed.get(place.file) or place.file.read_text()
            begin, end = place.span
            changed[place.file] = text[:begin] + version + text[end:]
    for file, text in changed.items():
        file.write_text(text)
    return sorted(changed)


def _places(root: Path) -> Iterator[Place]:
    """Yield the mentions; ReleaseError where a pattern of ``PLACES`` finds none."""
    for pattern, expression in PLACES:
        found = [place for file in sorted(root.glob(pattern)) for place in _found(file, expression)]
        if not found:
            raise ReleaseError(f"nothing in {pattern} matches {expression!r}: correct PLACES")
        yield from found


def _found(file: Path, expression: str) -> Iterator[Place]:
    text = file.read_text()
    for match in re.finditer(expression, text, re.MULTILINE):
        line = text.count("\n", 0, match.start()) + 1
        yield Place(file, line, match["version"], match.span("version"))
