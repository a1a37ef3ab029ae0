"""The house rules that no linter checks: where files may lie, how long they are, what is banned."""

import ast
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import pytest

ROOT = Path(__file__).parents[2]
SHIPPED = ("operator", "extender", "policies")
CODE = (*SHIPPED, "tools")
MOST_LINES_PER_FILE = 300
MOST_LINES_PER_FUNCTION = 40
USUAL_LINES_PER_FUNCTION = 10

BANNED_MODULES = {"pickle", "marshal", "shelve", "dill", "cloudpickle", "joblib"}
BANNED_CALLS = {
    *("eval", "exec", "compile", "__import__"),
    *("yaml.load", "yaml.load_all", "yaml.unsafe_load", "yaml.full_load"),
    *("torch.load", "numpy.load", "np.load", "os.system", "os.popen"),
}
Function = ast.FunctionDef | ast.AsyncFunctionDef


def sources(*folders: str) -> list[Path]:
    """Python files below ``folders``, without what tools and builds leave there."""
    found = (path for folder in folders for path in (ROOT / folder).rglob("*.py"))
    return sorted(p for p in found if not {"vendor", "node_modules"} & set(p.parts))


def functions(path: Path) -> Iterator[tuple[str, int]]:
    """Name and length of every function in a file, nested ones included."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, Function):
            yield node.name, (node.end_lineno or node.lineno) - node.lineno + 1


def shown(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_packages_lie_below_their_folder_never_in_it() -> None:
    """A package called ``operator`` would hide the one that Python itself imports."""
    assert [shown(p) for folder in SHIPPED for p in (ROOT / folder).glob("*.py")] == []


def test_tests_are_no_package() -> None:
    assert [shown(p) for p in (ROOT / "tests").rglob("__init__.py")] == []


def test_no_module_of_ours_hides_one_of_a_test() -> None:
    """Under importlib mode equal names are fine, but a helper module would not be found."""
    helpers = [p for p in sources("tests") if not p.name.startswith(("test_", "conftest"))]
    assert [shown(p) for p in helpers] == [], "put support code into tools/ or bireme.testing"


@pytest.mark.parametrize("folder", [*CODE, "tests"])
def test_files_are_short(folder: str) -> None:
    lengths = {shown(p): len(p.read_text(encoding="utf-8").splitlines()) for p in sources(folder)}
    assert {name: n for name, n in lengths.items() if n > MOST_LINES_PER_FILE} == {}


@pytest.mark.parametrize("folder", CODE)
def test_functions_are_short(folder: str) -> None:
    lengths = [(shown(p), name, n) for p in sources(folder) for name, n in functions(p)]
    assert [entry for entry in lengths if entry[2] > MOST_LINES_PER_FUNCTION] == []
    assert median(n for _, _, n in lengths) <= USUAL_LINES_PER_FUNCTION


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
