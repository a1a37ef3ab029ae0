"""The groups of commands, those of other packages, and the names of the past."""

from collections.abc import Mapping
from importlib.metadata import EntryPoint

import pytest

from bireme.cli import commands, main
from bireme.cli.commands import GROUPS, LAB, REMOVED, Command, find_command, groups


@pytest.fixture
def packages(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The groups of installed packages: objects by heading; empty at first."""
    points: dict[str, str] = {}

    def entry_points(*, group: str) -> list[EntryPoint]:
        return [EntryPoint(name, value, group) for name, value in points.items()]

    monkeypatch.setattr("importlib.metadata.entry_points", entry_points)
    return points


MORE: Mapping[str, Command] = {
    "pilot": Command("fly", "bireme.cli.scale"),
    "why": Command("hide a command of Bireme", "bireme.cli.scale"),
}


VERBS: Mapping[str, Command] = {
    "maintenance": Command(
        "maintain",
        verbs={
            "plan": Command("hide a verb of Bireme", "bireme.cli.scale"),
            "fly": Command("fly", "bireme.cli.scale"),
        },
    )
}


def test_help_lists_every_command_in_its_group(
    packages: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    packages["lab"] = "bireme_lab.cli:COMMANDS"
    with pytest.raises(SystemExit):
        main(["--help"])
    lines = capsys.readouterr().out.splitlines()
    headings = [line for line in lines if line.endswith(":") and not line.startswith(" ")]
    assert headings == ["options:", "jobs:", "cluster:", "lab:"]
    listed = [line.split()[0] for line in lines if line.startswith("  ") and line[2].isalpha()]
    assert listed == [name for _, group in groups() for name in group]
    assert len(listed) <= 22, "a command more must earn its place: SCOPE.md"


def test_a_package_adds_commands_and_hides_none(packages: dict[str, str]) -> None:
    packages["air"] = f"{__name__}:MORE"
    assert dict(groups()).keys() == {"jobs", "cluster", "air"}
    assert find_command("pilot") == MORE["pilot"]
    assert find_command("why") == GROUPS["jobs"]["why"]


def test_a_package_adds_verbs_to_a_command_and_changes_none(packages: dict[str, str]) -> None:
    packages["air"] = f"{__name__}:VERBS"
    verbs = find_command("maintenance").verbs
    assert verbs.keys() == {*GROUPS["cluster"]["maintenance"].verbs, "fly"}
    assert verbs["plan"] == GROUPS["cluster"]["maintenance"].verbs["plan"]
    assert dict(groups())["air"] == {}


@pytest.mark.parametrize("name", sorted(LAB))
def test_without_the_lab_its_commands_name_the_package(
    name: str, packages: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*name.split(), "--help"]) == 2
    assert capsys.readouterr().err == (
        f"bireme: bireme {name} is a command of the package {commands.LAB_PACKAGE}, which is not "
        f"installed; install it: pip install {commands.LAB_PACKAGE}\n"
    )


def test_the_lab_registers_the_commands_that_are_known_to_be_its_own(
    packages: dict[str, str],
) -> None:
    packages["lab"] = "bireme_lab.cli:COMMANDS"
    verbs = {f"forecast {verb}" for verb in find_command("forecast").verbs} & LAB
    assert {*dict(groups())["lab"], *verbs} == LAB
    assert all(find_command(name.split()[0]) for name in LAB)
    assert find_command("forecast").verbs["compare"].module


@pytest.mark.parametrize("name", sorted(REMOVED))
def test_a_name_of_the_past_leads_to_a_command_that_exists(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([name, "x"]) == 2
    said = capsys.readouterr().err
    assert said == f"bireme: bireme {name} is gone: {REMOVED[name]}\n"
    for word in said.split("use bireme ")[1:]:
        command, verb = find_command(word.split()[0]), word.split()[1]
        assert not command.verbs or verb in command.verbs


def test_a_misspelt_command_is_answered_with_the_nearest(
    packages: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["submitt", "x.yaml"]) == 2
    assert "no command is called 'submitt'; did you mean 'submit'?" in capsys.readouterr().err
