"""``make verify`` resumes, keeps failures and never calls an old pass a new one."""

from pathlib import Path

import pytest

from tools import mutants, verify
from tools.verify import Step, kept, main


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Two steps: the first writes a line into a file each time it runs, the second fails."""
    count = tmp_path / "count"
    script = f"open({str(count)!r}, 'a').write('x')"
    made = (
        Step("good", "", ("python", "-c", script)),
        Step("bad", "", ("python", "-c", "raise SystemExit('no leader')")),
    )
    monkeypatch.setattr(verify, "STEPS", made)
    monkeypatch.setattr(verify, "LOGS", tmp_path / "logs")
    monkeypatch.setattr(verify, "RESULTS", tmp_path / "verify.json")
    monkeypatch.setattr(verify, "PAGE", tmp_path / "verify.md")
    monkeypatch.setattr(verify, "revision", lambda: "r1")
    return count


def test_a_run_that_was_cut_off_goes_on_where_it_stopped(steps: Path) -> None:
    assert main(["good"]) == 0
    assert main([]) == 1
    assert steps.read_text() == "x", "a step that passed on this revision is not run again"
    assert main(["good", "--fresh"]) == 0
    assert steps.read_text() == "xx"


def test_another_revision_has_passed_nothing(steps: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    main(["good"])
    monkeypatch.setattr(verify, "revision", lambda: "r2")
    main(["good"])
    assert steps.read_text() == "xx"


def test_the_page_tells_failures_and_what_never_ran(steps: Path) -> None:
    main(["bad"])
    assert kept()["bad"].last_line == "no leader"
    text = verify.page(kept())
    assert "**failed** | r1" in text
    assert "never run" in text


def test_a_step_that_this_machine_cannot_run_says_why_and_is_no_result(
    steps: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    able = verify.STEPS[0]
    unable = Step("far", "", ("false",), obstacle=lambda: "podman is missing")
    monkeypatch.setattr(verify, "STEPS", (unable, able))
    assert main([]) == 0
    assert "far: not on this machine: podman is missing" in capsys.readouterr().out
    assert set(kept()) == {"good"}


def test_every_file_and_module_that_a_step_names_is_there() -> None:
    """A test that moves takes its name along; the step would run for hours and end with 4."""
    words = {word for step in verify.STEPS for word in step.command}
    files = {word for word in words if word.startswith("tests/")}
    assert len(files) > 10
    assert [file for file in sorted(files) if not (verify.ROOT / file).exists()] == []


def test_every_mutant_has_its_line_once_and_its_story_the_mark() -> None:
    marked = {
        path.stem.removeprefix("test_")
        for path in (verify.ROOT / "tests" / "cluster").glob("test_*.py")
        if "pytest.mark.embedded" in path.read_text()
    }
    assert marked == set(mutants.MUTANTS)
    for mutant in mutants.MUTANTS.values():
        assert (verify.ROOT / mutant.file).read_text().count(mutant.line) == 1
