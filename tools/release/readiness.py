"""What a maintainer does by hand before a tag: asked for by the rehearsal and by the release.

The standard library alone: a release asks before anything is installed.
"""

import tomllib
from collections.abc import Iterator
from pathlib import Path

from tools.release import versions
from tools.release.errors import ReleaseError
from tools.release.notes import notes
from tools.release.versions import ROOT, SOURCE


def missing(tag: str | None = None, root: Path = ROOT) -> Iterator[str]:
    """Yield what keeps the checkout from being released, as ``tag`` where one is given."""
    version = versions.current(root)
    if tag is not None and tag != f"v{version}":
        yield f"the tag is {tag}, and {SOURCE} has version {version}: tag v{version}"
    try:
        versions.check(root)
    except ReleaseError as error:
        yield str(error)
    try:
        notes(version, root / "CHANGELOG.md")
    except ReleaseError as error:
        yield str(error)
    for file in (SOURCE, "policies/pyproject.toml", "report/pyproject.toml"):
        urls = tomllib.loads((root / file).read_text())["project"]["urls"]
        if unnamed := [name for name, url in urls.items() if "/OWNER/" in url]:
            listed = ", ".join(unnamed)
            yield f"{file}: [project.urls] {listed}: name the account in place of OWNER"
