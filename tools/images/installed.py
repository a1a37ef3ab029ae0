"""Runs inside the Dockerfile: removes what no program reads from packages, and compiles the rest.

python installed.py remove /opt/bireme    # a virtual environment
/opt/bireme/bin/python installed.py compile /layer

``compile`` imports everything that Bireme's sources import anywhere and writes bytecode below
``/layer`` for each module that came along. A module that is forgotten is compiled at each start:
slower, never wrong.
"""

import ast
import importlib
import importlib.util
import pkgutil
import py_compile
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

REMOVED: Final = {
    # Tests of packages and their data; in numpy, scipy, pandas and statsmodels a tenth of it all.
    "tests of packages": (
        "**/tests",
        "onnx/backend/test",
        "kubernetes/**/*_test.py",
    ),
    # One class for each group of the Kubernetes API. Bireme takes credentials from this library
    # and calls nothing with it; it imports these when one is named, so that nothing misses them.
    "calls of the Kubernetes client": ("kubernetes/client/api", "kubernetes/aio/client/api"),
    # Each has a copy of much of the library. Bireme loads two of the six.
    "extensions of CEL": tuple(
        f"cel_expr_python/ext/ext_{name}.*" for name in ("encoders", "math", "proto", "strings")
    ),
    # For compilers and type checkers, of which the images have none.
    "headers, stubs and Cython sources": ("**/*.pyi", "**/*.pxd", "**/*.pyx", "**/*.h", "**/*.a"),
}
"""Patterns below site-packages, by what they are."""
PACKAGES: Final = ("bireme", "bireme_operator", "bireme_extender")
LAB: Final = "bireme_lab"
"""Package that only the image with the policies of research has."""
BY_NAME: Final = (
    # Names that libraries make up at run time.
    "encodings.idna",
    "uvicorn.lifespan.off",
    "uvicorn.protocols.http.httptools_impl",
)
BYTECODE: Final = Path("/opt/bireme/bytecode")


def remove(environment: Path) -> None:
    """Delete ``REMOVED`` from a virtual environment and print how much that was.

    Raises:
        SystemExit: a pattern matches nothing where its package is installed: it is out of date.
    """
    (folder,) = environment.glob("lib/python3.*/site-packages")
    for what, patterns in REMOVED.items():
        size_bytes = 0
        for pattern in patterns:
            found = sorted(folder.glob(pattern))
            package = pattern.split("/")[0]
            if not found and (folder / package).is_dir():
                raise SystemExit(f"{pattern} matches nothing in {folder}: correct REMOVED")
            size_bytes += sum(_delete(path) for path in found if path.exists())
        print(f"removed {size_bytes / 1e6:.1f} MB: {what}")


def _delete(path: Path) -> int:
    """Delete a path and return its size in bytes."""
    if path.is_dir():
        size_bytes = sum(file.lstat().st_size for file in path.rglob("*") if not file.is_dir())
        shutil.rmtree(path)
    else:
        size_bytes = path.lstat().st_size
        path.unlink()
    return size_bytes


def compile_imported(layer: Path) -> None:
    """Write bytecode below ``layer`` of every module that Bireme can import here.

    It does not depend on times of files, which builds set as they like.
    """
    absent = sorted({name.partition(".")[0] for name in names() if not _imported(name)})
    print(f"not installed: {', '.join(absent) or 'nothing that is imported anywhere'}")
    sys.pycache_prefix = str(BYTECODE)
    count = 0
    for source in sorted(_sources()):
        cached = Path(importlib.util.cache_from_source(source))
        if not cached.exists():
            target = layer / cached.relative_to("/")
            mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
            py_compile.compile(source, str(target), doraise=True, invalidation_mode=mode)
            count += 1
    print(f"compiled {count} modules")


def _sources() -> set[str]:
    """Return the files of all imported modules, but for this program's own."""
    modules = [module for name, module in sys.modules.items() if name != "__main__"]
    files = {getattr(module, "__file__", None) or "" for module in modules}
    return {file for file in files if file.endswith(".py")}


def names() -> Iterator[str]:
    """Yield every module that Bireme consists of or names in an import, sorted by file."""
    yield from BY_NAME
    packages = [*PACKAGES, *([LAB] if importlib.util.find_spec(LAB) else [])]
    for package in packages:
        (folder,) = importlib.import_module(package).__path__
        for module in pkgutil.walk_packages([folder], f"{package}.", onerror=lambda _: None):
            yield module.name
        for file in sorted(Path(folder).rglob("*.py")):
            yield from imports(file.read_text())


def imports(source: str) -> Iterator[str]:
    """Yield what the import statements of a source name: modules, or things inside them."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _imported(name: str) -> bool:
    """Import ``name`` as far as it is a module; False when its package is not here."""
    try:
        if importlib.util.find_spec(name.partition(".")[0]) is None:
            return False
        importlib.import_module(name)
    except ImportError as error:
        # Some packages say in words of their own that another one is not here.
        absent = error if isinstance(error, ModuleNotFoundError) else error.__cause__
        if not isinstance(absent, ModuleNotFoundError):
            raise
        # A thing inside a module, or a module of Bireme that needs a package which is not here.
        missing = absent.name or ""
        if name.startswith(missing) or importlib.util.find_spec(missing.partition(".")[0]) is None:
            return True
        raise
    return True


if __name__ == "__main__":
    action = {"remove": remove, "compile": compile_imported}[sys.argv[1]]
    action(Path(sys.argv[2]))
