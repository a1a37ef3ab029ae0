"""Measures of programs to start sooner, and to stay small."""

import gc
import subprocess
import sys
from collections.abc import Iterator

import pytest

from bireme.startup import UNUSED, importing


@pytest.fixture(autouse=True)
def thawed() -> Iterator[None]:
    """Unfreezes after a test, so that its objects are collected again."""
    yield
    gc.unfreeze()


def test_nothing_is_collected_while_programs_import_and_what_they_did_never_again() -> None:
    before = gc.get_freeze_count()
    with importing():
        assert not gc.isenabled()
        kept: list[list[int]] = [[] for _ in range(1000)]
    assert gc.isenabled()
    assert gc.get_freeze_count() >= before + len(kept)


def test_a_module_that_is_missing_leaves_the_collector_at_work() -> None:
    with pytest.raises(ModuleNotFoundError), importing():
        import bireme.no_such_module  # type: ignore[import-not-found]  # noqa: F401
    assert gc.isenabled()


@pytest.mark.parametrize("module", ["bireme_operator.__main__", "bireme_extender.__main__"])
def test_a_program_loads_no_unused_package_and_may_load_it_later(module: str) -> None:
    statements = (
        f"import sys, {module}\n"
        f"assert not [name for name in {UNUSED} if name in sys.modules]\n"
        "import kubernetes.aio.config, rich.console"
    )
    subprocess.run([sys.executable, "-c", statements], timeout=120, check=True)
