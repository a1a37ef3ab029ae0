"""Makes a site of the repository's pages as they are: README first, and every file they link to.

Pages link by relative paths, and a site holds only what is below ``docs``, so each linked file
becomes a page below ``source/``. A link to nothing stays, for MkDocs' strict build to refuse.
"""

import os.path
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT: Final = Path(__file__).parents[3]
DOCS: Final = "docs/"
HOME: Final = "README.md"
ROOT_PAGES: Final = (HOME, "CHANGELOG.md")
_LINK: Final = re.compile(r"(\]\()([^)#\s]+)((?:#[^)\s]*)?\))")
_LANGUAGES: Final = {".py": "python", ".yaml": "yaml", ".json": "json", ".toml": "toml"}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the home page and a page for every file outside ``docs`` that some page links to."""
    own = {f"{DOCS}{file.src_uri}" for file in files}
    waiting = [*ROOT_PAGES, *(path for path in own if path.endswith(".md"))]
    seen = own | set(waiting)
    while waiting:
        here = waiting.pop()
        text = page_of(here)
        new = set(linked(text, here)) - seen
        seen |= new
        waiting += new
        if here not in own:
            content = rewritten(text, here)
            files.append(File.generated(config, uri_of(here), content=content))
    return files


def on_page_markdown(markdown: str, *, page: Page, **_: object) -> str:
    """Turn links of a page of ``docs`` to where their targets are on the site."""
    if page.file.generated_by:  # on_files has turned its links
        return markdown
    return rewritten(markdown, f"{DOCS}{page.file.src_uri}")


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
