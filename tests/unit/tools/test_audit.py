"""What an audit says of vulnerabilities, and that an offline one is no clean one."""

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tools import audit
from tools.audit import Unavailable

KNOWN = {"name": "alpha", "version": "1.0", "vulns": []}
UNKNOWN = {"name": "beta", "skip_reason": "not found"}
FLAW = {"id": "PYSEC-2026-1", "fix_versions": ["1.1", "2.0"]}


def report(*dependencies: dict[str, Any]) -> str:
    return json.dumps({"dependencies": dependencies, "fixes": []})


@pytest.fixture
def constraints(tmp_path: Path) -> Path:
    path = tmp_path / "constraints.txt"
    path.write_text("# by hand\nalpha==1.0 \\\n    --hash=sha256:00\nbeta==2.0\n")
    return path


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[list[str]]]:
    """Makes pip-audit answer with these texts in turn; returns the commands it is called by."""

    def make(*texts: str) -> list[list[str]]:
        left, calls = list(texts), []

        def run(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
            calls.append(command)
            return subprocess.CompletedProcess(command, 0, left.pop(0), "no route to the index")

        monkeypatch.setattr(subprocess, "run", run)
        return calls

    return make


def test_a_vulnerability_is_named_with_what_mends_it() -> None:
    found = audit.read(report({**KNOWN, "vulns": [FLAW]}, UNKNOWN))
    assert found.found == ("alpha 1.0: PYSEC-2026-1, mended in 1.1, 2.0",)
    assert (found.audited, found.unknown) == (1, ("beta",))


def test_every_package_is_asked_about_once_the_first_has_an_answer(
    constraints: Path, answers: Callable[..., list[list[str]]]
) -> None:
    calls = answers(report(KNOWN), report(KNOWN, UNKNOWN))
    assert audit.audit(constraints).audited == 1
    assert str(constraints) in calls[1]


@pytest.mark.parametrize(
    ("said", "words"),
    [("", "no route to the index"), (report(UNKNOWN), "tells no advisories")],
)
def test_an_index_that_tells_nothing_is_not_a_clean_audit(
    constraints: Path, answers: Callable[..., list[list[str]]], said: str, words: str
) -> None:
    answers(said)
    with pytest.raises(Unavailable, match=words):
        audit.audit(constraints)


def test_an_audit_counts_for_a_day_and_for_these_constraints(
    constraints: Path, tmp_path: Path
) -> None:
    stamp = tmp_path / "audited"
    os.utime(constraints, (1000.0, 1000.0))
    assert not audit.is_fresh(stamp, constraints, 2000.0)
    stamp.touch()
    os.utime(stamp, (1500.0, 1500.0))
    assert audit.is_fresh(stamp, constraints, 2000.0)
    assert not audit.is_fresh(stamp, constraints, 1500.0 + 86_401)
    os.utime(constraints, (1600.0, 1600.0))
    assert not audit.is_fresh(stamp, constraints, 2000.0)
