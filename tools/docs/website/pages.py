"""The pages of the documentation site: README first, and every file they link to.

Pages link by relative paths in the repository, and a site holds one folder of pages, so each linked
file outside ``docs`` becomes a page below ``source/``. A link to nothing stays, for the site's
strict build to refuse; what that build lets pass is refused here.
"""

import os.path
import posixpath
import re
import shutil
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, Final

import yaml

ROOT: Final = Path(__file__).parents[3]
DOCS: Final = "docs/"
HOME: Final = "README.md"
ROOT_PAGES: Final = (HOME, "CHANGELOG.md")
OUTSIDE_NAVIGATION: Final = ("source/*", "results/*", "adr/0*")
"""Pages that others lead to."""
_LINK: Final = re.compile(r"(\]\()([^)#\s]+)((?:#[^)\s]*)?\))")
_PICTURE: Final = re.compile(r"!\[[^\]]*\]\(([^)#\s]+)\)")
_LANGUAGES: Final = {".py": "python", ".yaml": "yaml", ".json": "json", ".toml": "toml"}


def write(folder: Path) -> None:
    """Write every page, and the files of ``docs`` that are none, below ``folder``."""
    own = {path.relative_to(ROOT).as_posix() for path in (ROOT / DOCS).rglob("*") if path.is_file()}
    waiting = [*ROOT_PAGES, *(path for path in own if path.endswith(".md"))]
    seen = own | set(waiting)
    for path in own - set(waiting):
        target = folder / uri_of(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / path, target)
    while waiting:
        here = waiting.pop()
        text = page_of(here)
        new = set(linked(text, here)) - seen
        seen |= new
        waiting += new
        target = folder / uri_of(here)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(rewritten(text, here))


def faults(folder: Path, navigation: Any) -> Iterator[str]:
    """Yield what is wrong with the pages below ``folder`` and the strict build lets pass.

    That is a page that ``navigation`` lacks, one that it names and that is not there, and a
    picture that is not there.
    """
    named = set(_named(navigation))
    pages = {path.relative_to(folder).as_posix() for path in folder.rglob("*.md")}
    for page in sorted(named - pages):
        yield f"mkdocs.yml: nav names {page!r}, which does not exist; correct or remove it"
    for page in sorted(pages - named):
        if not any(fnmatch(page, pattern) for pattern in OUTSIDE_NAVIGATION):
            yield f"mkdocs.yml: nav lacks {page!r}; add it, so that readers find the page"
    for page in sorted(pages):
        for target in _PICTURE.findall((folder / page).read_text()):
            if "://" not in target and not (folder / page).parent.joinpath(target).is_file():
                yield f"{page}: the picture {target!r} does not exist; correct or remove it"


def navigation_of(configuration: str) -> Any:
    """Return ``nav`` of the text of mkdocs.yml."""
    return yaml.safe_load(configuration)["nav"]


def _named(navigation: Any) -> Iterator[str]:
    if isinstance(navigation, str):
        yield navigation
    else:
        for entry in navigation.values() if isinstance(navigation, dict) else navigation:
            yield from _named(entry)


def page_of(path: str) -> str:
    """Return the Markdown that shows a file or folder of the repository."""
    full = ROOT / path
    if path.endswith(".md"):
        return full.read_text()
    if full.is_dir():
        names = sorted(each.name for each in full.iterdir() if each.is_file())
        entries = "".join(f"- [{name}]({full.name}/{name})\n" for name in names)
        return f"# {path}\n\n{entries}"
    # Tildes, as the file may have a fence of backticks in it.
    return f"# {path}\n\n~~~~{_LANGUAGES.get(full.suffix, 'text')}\n{full.read_text()}\n~~~~\n"


def linked(text: str, here: str) -> Iterator[str]:
    """Yield repository paths of the files and folders that the page ``here`` links to."""
    yield from filter(None, (_resolved(target, here) for _, target, _ in _LINK.findall(text)))


def rewritten(text: str, here: str) -> str:
    start = posixpath.dirname(uri_of(here)) or "."

    def turned(found: re.Match[str]) -> str:
        path = _resolved(found[2], here)
        if not path:
            return found[0]
        return found[1] + posixpath.relpath(uri_of(path), start) + found[3]

    return _LINK.sub(turned, text)


def uri_of(path: str) -> str:
    """Return where a file of the repository is on the site, as the path of its source."""
    if path == HOME:
        return "index.md"
    place = path.removeprefix(DOCS) if path.startswith(DOCS) else f"source/{path}"
    if (ROOT / path).is_dir():
        return f"{place}/index.md"
    return place if place.endswith(".md") or path.startswith(DOCS) else f"{place}.md"


def _resolved(target: str, here: str) -> str | None:
    """Return the path in the repository, of a folder its README; None for what is none."""
    path = os.path.normpath(posixpath.join(posixpath.dirname(here), target))
    full = ROOT / path
    if "://" in target or path.startswith("..") or not full.exists():
        return None
    return f"{path}/README.md" if (full / "README.md").is_file() else path
