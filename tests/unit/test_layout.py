"""The layout rules that no linter checks: where files may lie, and what shipped code may not do."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SHIPPED = ("operator", "extender", "policies")
CODE = (*SHIPPED, "benchmarks", "tools", "testbed")

BANNED_MODULES = {"pickle", "marshal", "shelve", "dill", "cloudpickle", "joblib"}
BANNED_CALLS = {
    *("eval", "exec", "compile", "__import__"),
    *("yaml.load", "yaml.load_all", "yaml.unsafe_load", "yaml.full_load"),
    *("torch.load", "numpy.load", "np.load", "os.system", "os.popen"),
}


def sources(*folders: str) -> list[Path]:
    """Python files below ``folders``, without what tools and builds leave there."""
    found = (path for folder in folders for path in (ROOT / folder).rglob("*.py"))
    return sorted(p for p in found if not {"vendor", "node_modules"} & set(p.parts))


def shown(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_packages_lie_below_their_folder_never_in_it() -> None:
    """A package called ``operator`` would hide the one that Python itself imports."""
    assert [shown(p) for folder in SHIPPED for p in (ROOT / folder).glob("*.py")] == []


def test_tests_are_no_package() -> None:
    """Under importlib mode equal names are fine; what several folders share is the testbed."""
    assert [shown(p) for p in (ROOT / "tests").rglob("__init__.py")] == []


def test_unit_tests_lie_where_their_package_does() -> None:
    packages = {folder_of(path) for path in sources(*CODE) if path.name == "__init__.py"}
    unit = ROOT / "tests" / "unit"
    folders = {str(path.parent.relative_to(unit)) for path in unit.rglob("*.py")}
    assert folders - packages == {"."}


def folder_of(package: Path) -> str:
    """Return the folder below tests/unit of a package, by its ``__init__.py``."""
    name = shown(package.parent)
    for prefix in ("operator/bireme_", "extender/bireme_", "policies/bireme/", "policies/bireme_"):
        name = name.removeprefix(prefix)
    return name


def test_the_testbed_imports_neither_tests_nor_tools() -> None:
    found = [
        f"{shown(path)} imports {module}"
        for path in sources("testbed")
        for module in imports(path)
        if module.split(".")[0] in {"tests", "tools", "benchmarks"}
    ]
    assert found == []


def test_a_helper_beside_tests_serves_its_own_folder_alone() -> None:
    strangers = []
    for path in sources("tests", "benchmarks", "tools"):
        for module in imports(path):
            place = ROOT / module.replace(".", "/")
            folder = place if place.is_dir() else place.parent
            if module.startswith("tests.") and folder != path.parent:
                strangers.append(f"{shown(path)} imports {module}")
    assert strangers == [], "move it to testbed or bireme.testing"


def imports(path: Path) -> Iterator[str]:
    """Yield the modules that a file imports."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            yield node.module or ""
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


@pytest.mark.parametrize("folder", CODE)
def test_every_module_says_what_it_is_for(folder: str) -> None:
    silent = [
        shown(p)
        for p in sources(folder)
        if not ast.get_docstring(ast.parse(p.read_text(encoding="utf-8")))
    ]
    assert silent == []


def called(node: ast.Call) -> str:
    """The dotted name of what is called; empty where it has none."""
    parts: list[str] = []
    target: ast.expr = node.func
    while isinstance(target, ast.Attribute):
        parts.append(target.attr)
        target = target.value
    if not isinstance(target, ast.Name):
        return ""
    return ".".join([target.id, *reversed(parts)])


def offences(source: str) -> Iterator[str]:
    """Everything banned that a module imports or calls."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import():
                yield from (a.name for a in node.names if a.name.split(".")[0] in BANNED_MODULES)
            case ast.ImportFrom(module=str(module)) if module.split(".")[0] in BANNED_MODULES:
                yield module
            case ast.Call():
                if called(node) in BANNED_CALLS:
                    yield called(node)
                if any(k.arg == "shell" and _is_true(k.value) for k in node.keywords):
                    yield "shell=True"


def _is_true(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is True


@pytest.mark.parametrize("folder", SHIPPED)
def test_nothing_that_runs_code_from_data_is_shipped(folder: str) -> None:
    found = {
        shown(p): banned
        for p in sources(folder)
        if (banned := list(offences(p.read_text(encoding="utf-8"))))
    }
    assert found == {}


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "from marshal import loads",
        "eval('1')",
        "yaml.load(text)",
        "torch.load(path)",
        "subprocess.run(text, shell=True)",
    ],
)
def test_the_ban_is_seen_where_it_is_broken(source: str) -> None:
    assert list(offences(source))


@pytest.mark.parametrize(
    "source", ["yaml.safe_load(text)", "re.compile('a')", "model.eval()", "run(x, shell=False)"]
)
def test_harmless_code_is_no_offence(source: str) -> None:
    assert not list(offences(source))
