"""Release notes: the section of a version in CHANGELOG.md.

The standard library alone: a release asks before anything is installed.
"""

import datetime
import re
from pathlib import Path
from typing import Final

from tools.release.errors import ReleaseError

UNRELEASED: Final = "Unreleased"
_HEADING: Final = re.compile(r"^## (?P<name>\S+)(?: - (?P<date>\S+))?[ \t]*$", re.MULTILINE)


def notes(version: str, changelog: Path) -> str:
    """Return the section of ``version``, without its heading, links as from a page of the site.

    ``Unreleased`` needs no date; every other version has one, as in ``## 0.1.0 - 2026-01-31``.

    Raises:
        ReleaseError: there is no such section, or two; it has no date, or nothing in it.
    """
    text = changelog.read_text(encoding="utf-8")
    headings = list(_HEADING.finditer(text))
    found = [index for index, heading in enumerate(headings) if heading["name"] == version]
    if len(found) != 1:
        has = ", ".join(heading["name"] for heading in headings) or "none"
        raise ReleaseError(
            f"{changelog.name} has {len(found)} sections for version {version} (it has {has}): "
            f"write one, headed `## {version} - YYYY-MM-DD`"
        )
    heading = headings[found[0]]
    if version != UNRELEASED:
        _check_date(heading["date"], version, changelog)
    after = headings[found[0] + 1 :]
    section = text[heading.end() : after[0].start() if after else None].strip()
    if not re.search(r"^- ", section, re.MULTILINE):
        raise ReleaseError(
            f"{changelog.name}: the section of {version} lists no change: write one, `- ...`"
        )
    return section + "\n"


def _check_date(date: str | None, version: str, changelog: Path) -> None:
    try:
        datetime.date.fromisoformat(date or "")
    except ValueError:
        raise ReleaseError(
            f"{changelog.name}: the date of version {version} is {date!r}: "
            f"head the section `## {version} - YYYY-MM-DD`"
        ) from None
