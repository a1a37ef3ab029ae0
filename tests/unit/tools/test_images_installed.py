"""Packages of an image: what is removed, and what is compiled beforehand."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tools.images import installed

SITE = "lib/python3.13/site-packages"


def furnish(environment: Path, *files: str) -> Path:
    folder = environment / SITE
    for file in files:
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_text("content\n")
    return folder


def test_tests_headers_and_stubs_go_and_modules_stay(tmp_path: Path) -> None:
    stays = ["numpy/core.py", "numpy/testing/__init__.py", "bireme/testing/a.py", "a/py.typed"]
    goes = ["numpy/tests/test_a.py", "numpy/lib/tests/data/x.bin", "numpy/core.pyi", "numpy/x.h"]
    folder = furnish(tmp_path, *stays, *goes)
    installed.remove(tmp_path)
    left = {str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file()}
    assert left == set(stays)


def test_a_rule_that_finds_nothing_in_its_package_stops_the_build(tmp_path: Path) -> None:
    furnish(tmp_path, "kubernetes/client/api_client.py")
    with pytest.raises(SystemExit, match=r"kubernetes/\S+ matches nothing in .*: correct REMOVED"):
        installed.remove(tmp_path)


def test_the_image_without_a_package_needs_no_rule_for_it(tmp_path: Path) -> None:
    folder = furnish(tmp_path, "pandas/tests/test_a.py", "pandas/__init__.py")
    installed.remove(tmp_path)
    assert [file.name for file in (folder / "pandas").iterdir()] == ["__init__.py"]


def test_imports_inside_functions_count() -> None:
    source = "import a.b as c\nfrom . import near\ndef f():\n    from d import e\n"
    assert list(installed.imports(source)) == ["a.b", "d", "d.e"]


def test_every_module_that_is_imported_somewhere_gets_bytecode_that_no_clock_undoes(
    tmp_path: Path,
) -> None:
    site = tmp_path / "site"
    for name in installed.PACKAGES:
        (site / name).mkdir(parents=True)
        (site / name / "__init__.py").write_text("")
    (site / "bireme/lazy.py").write_text("def f():\n    import needed\n    import missing_one\n")
    (site / "needed.py").write_text("VALUE = 1\n")
    (site / "idle.py").write_text("never imported\n")
    layer = tmp_path / "layer"
    command = [sys.executable, "-S", installed.__file__, "compile", str(layer)]
    environment = {**os.environ, "PYTHONPATH": str(site), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert "uvicorn" in done.stdout
    assert "missing_one" in done.stdout
    compiled = list(layer.rglob("needed.*.pyc"))
    assert len(compiled) == 1
    flags = int.from_bytes(compiled[0].read_bytes()[4:8], "little")
    assert flags == 0b01, "by hash, and not checked: PEP 552"
    assert layer in compiled[0].parents
    assert list(layer.rglob("idle.*.pyc")) == []
    assert list(layer.rglob("json/__init__.*.pyc")) or list(layer.rglob("ast.*.pyc"))


def test_a_module_that_fails_stops_the_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_one.py").write_text("raise RuntimeError('not here')\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(RuntimeError, match="not here"):
        installed._imported("broken_one")


def test_a_package_may_say_in_its_own_words_that_another_is_not_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    absent = "try:\n    import missing_one\nexcept ModuleNotFoundError as error:\n"
    (tmp_path / "wordy.py").write_text(f"{absent}    raise ImportError('install it') from error\n")
    (tmp_path / "wrong.py").write_text("from wordless import nothing\n")
    (tmp_path / "wordless.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    assert installed._imported("wordy")
    with pytest.raises(ImportError, match="nothing"):
        installed._imported("wrong")
