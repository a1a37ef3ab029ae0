"""The audit of pinned packages: it is green only where every package was looked up."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tools import audit

CLEAN = {"name": "aiohttp", "version": "3.0", "vulns": []}
FLAWED = {"name": "jinja2", "version": "2.0", "vulns": [{"id": "CVE-1", "fix_versions": ["2.1"]}]}
SKIPPED = {"name": "kopf", "skip_reason": "Dependency not found on PyPI"}


def pip_audit(folder: Path, *packages: dict[str, Any], status: int = 0, text: str = "") -> str:
    """Make a pip-audit that answers so; return the program."""
    program = folder / "pip-audit"
    report = text or json.dumps({"dependencies": packages, "fixes": []})
    lines = (f"#!{sys.executable}", "import sys", f"print({report!r})", f"sys.exit({status})")
    program.write_text("\n".join(lines))
    program.chmod(0o755)
    return str(program)


def test_audit_is_green_where_every_package_was_looked_up_and_none_has_a_flaw(
    tmp_path: Path,
) -> None:
    assert audit.audit(Path("c.txt"), [pip_audit(tmp_path, CLEAN, CLEAN)]) == 2


@pytest.mark.parametrize(
    ("packages", "status", "words"),
    [
        ((SKIPPED, SKIPPED), 0, "2 of 2 packages could not be looked up"),
        (
            (CLEAN, SKIPPED),
            0,
            "1 of 2 packages could not be looked up, so nothing is known of kopf",
        ),
        ((CLEAN, FLAWED), 1, "jinja2 2.0: CVE-1, fixed in 2.1"),
        ((), 0, "looked up no package of c.txt"),
        ((CLEAN,), 3, "ended with status 3"),
    ],
)
def test_audit_fails_where_a_flaw_is_known_or_nothing_is_known_of_a_package(
    tmp_path: Path, packages: tuple[dict[str, Any], ...], status: int, words: str
) -> None:
    program = pip_audit(tmp_path, *packages, status=status)
    with pytest.raises(audit.AuditError, match=words):
        audit.audit(Path("c.txt"), [program])


def test_audit_fails_with_the_status_where_pip_audit_makes_no_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    program = pip_audit(tmp_path, status=1, text="no network")
    monkeypatch.setattr(audit.audit, "__defaults__", ([program],))
    assert audit.main(["c.txt"]) == 1
    assert "status 1 and no report" in capsys.readouterr().err
