"""docs/architecture.md names every package, and no module or function that does not exist."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
ROOMS = ("policies", "operator", "extender")
MODULES = sorted(
    set(re.findall(r"`((?:bireme|bireme_lab|bireme_operator|bireme_extender)/[\w/.]*)`", PAGE))
)
STEPS = PAGE.partition("## Follow one job")[2].partition("\n## ")[0]


def locate(module: str) -> Path | None:
    paths = (ROOT / room / module for room in ROOMS)
    return next((path for path in paths if path.exists()), None)


def definitions(module: str) -> set[str]:
    """Names of functions and classes of a module, and of methods behind their class."""
    path = locate(module)
    if path is None or path.is_dir():
        return set()
    names = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef):
            functions = (
                n for n in node.body if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)
            )
            names |= {node.name, *(f"{node.name}.{function.name}" for function in functions)}
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            names.add(node.name)
    return names


def test_every_package_and_every_module_beside_them_is_named() -> None:
    expected = {
        f"{package}.{path.stem}"
        for package in ("bireme", "bireme_lab")
        for path in (ROOT / "policies" / package).iterdir()
        if path.suffix == ".py" or (path / "__init__.py").exists()
        if not path.stem.startswith("__")
    }
    expected |= {"bireme_operator", "bireme_extender"}
    assert sorted(name for name in expected if f"`{name}`" not in PAGE) == []


def test_every_module_that_is_named_exists() -> None:
    assert len(MODULES) > 50
    assert [module for module in MODULES if locate(module) is None] == []


def test_every_function_on_the_way_of_a_job_is_one_of_the_modules_that_are_named() -> None:
    rows = re.findall(r"^\| [^|]+ \| (`bireme[^|]+) \| ([^|]+) \|$", STEPS, re.MULTILINE)
    assert len(rows) > 10
    known = set[str]().union(*map(definitions, MODULES))
    named = [
        name
        for _, functions in rows
        for name in re.findall(r"`([A-Za-z_]+(?:\.[a-z_]+)?)`", functions)
    ]
    assert len(named) > 20
    assert [name for name in named if name not in known] == []


def test_it_fits_into_one_reading() -> None:
    assert len(PAGE.splitlines()) <= 120
