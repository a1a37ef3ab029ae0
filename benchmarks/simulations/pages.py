"""Pages of tables as Markdown and JSON, and the index over all that lie in the folder."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from benchmarks.timings.measurements import Table
from bireme.simulator.reports.terminal import markdown_table as drawn

INDEX: Final = "README.md"
_PROSE: Final = Path(__file__).parent / "prose"


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """One question, its tables, and in words what they show and why.

    Attributes:
        summary: The answer in a sentence, for the index.
        findings: What the numbers say, written from them.
        figures: File name to SVG, drawn beside the page.

    Why it is so, and what was simulated, is the page's file in ``prose``: two parts around a line
    of three dashes.
    """

    name: str
    title: str
    summary: str
    findings: tuple[str, ...]
    tables: tuple[Table, ...]
    revisions: tuple[str, ...] = ()
    command: str = ""
    date: str = ""
    figures: dict[str, str] = {}


def write(folder: Path, page: Page) -> None:
    """Write the files of a page, and the index over all pages in ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, drawing in page.figures.items():
        (folder / name).write_text(drawing, encoding="utf-8")
    plain = msgspec.structs.replace(page, figures=dict.fromkeys(page.figures, ""))
    encoded = msgspec.json.format(msgspec.json.encode(plain), indent=1)
    (folder / f"{page.name}.json").write_bytes(encoded + b"\n")
    (folder / f"{page.name}.md").write_text(markdown(page), encoding="utf-8")
    pages = [msgspec.json.decode(path.read_bytes(), type=Page) for path in folder.glob("*.json")]
    (folder / INDEX).write_text(index(sorted(pages, key=lambda one: one.name)), encoding="utf-8")


def markdown(page: Page) -> str:
    """The page as text."""
    why, method = (_PROSE / f"{page.name}.md").read_text(encoding="utf-8").split("\n---\n")
    lines = [f"# {page.title}", ""]
    for finding in page.findings:
        lines += [f"* {finding}"]
    lines += ["", why.strip(), ""]
    for name in page.figures:
        lines += [f"![{page.title}]({name})", ""]
    for table in page.tables:
        lines += [f"## {table.title}", "", *drawn(table.columns, table.rows), ""]
    made = f"`{page.command}`, {page.date}, revision {' and '.join(page.revisions)}"
    lines += ["## What was simulated", "", method.strip(), "", f"Command: {made}."]
    return "\n".join(lines) + "\n"


def index(pages: Sequence[Page]) -> str:
    """Every page with its answer."""
    lines = [
        "# Evidence by simulation",
        "",
        "Written by `make evidence`; do not edit. Each page may be renewed by",
        "`python -m benchmarks.simulations NAME --fresh`. The traces are public, but not part",
        "of this repository; `--data` names the folder that has them.",
        "",
        *drawn(
            ("page", "answer", "date"),
            [(f"[{p.title}]({p.name}.md)", p.summary, p.date) for p in pages],
        ),
    ]
    return "\n".join(lines) + "\n"
