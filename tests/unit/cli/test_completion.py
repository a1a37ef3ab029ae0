"""What a shell makes of the script of ``bireme completion``."""

import subprocess

import pytest

from bireme.cli import COMMANDS, main

ASK = """
bireme() { printf '%s\\n' trainingjob.bireme.dev/mine podgroup.bireme.dev/guest; }
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
_bireme
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture
def scripts(capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    found = {}
    for shell in ("bash", "zsh", "fish"):
        assert main(["completion", shell]) == 0
        found[shell] = capsys.readouterr().out
    return found


def offered(script: str, *words: str) -> list[str]:
    """What bash offers for the last of ``words``."""
    command = ["bash", "-c", script + ASK, "bash", "bireme", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stderr == ""
    return done.stdout.split()


def test_bash_completes_commands_options_values_and_jobs(scripts: dict[str, str]) -> None:
    script = scripts["bash"]
    assert offered(script, "") == list(COMMANDS)
    assert offered(script, "su") == ["suspend", "submit"]
    assert offered(script, "list", "--sort") == ["--sort-by"]
    assert offered(script, "list", "--sort-by", "p") == ["phase", "position"]
    assert offered(script, "list", "--sort-by", "=", "p") == ["phase", "position"]
    assert offered(script, "list", "-n", "") == []
    assert offered(script, "logs", "-f", "") == ["mine", "podgroup/guest"]
    assert offered(script, "logs", "m") == ["mine"]
    assert offered(script, "completion", "z") == ["zsh"]


def test_bash_completes_files(scripts: dict[str, str]) -> None:
    here = __file__.rpartition("/")[0]
    assert offered(scripts["bash"], "submit", f"{here}/test_compl") == [__file__]
    assert offered(scripts["bash"], "list", "--kubeconfig", f"{here}/test_compl") == [__file__]


def test_the_other_shells_know_the_same_commands_and_options(scripts: dict[str, str]) -> None:
    for name in COMMANDS:
        assert f"    {name},-*) local -a options=('-h:" in scripts["zsh"]
        assert f"-n __fish_use_subcommand -a {name} -d " in scripts["fish"]
    assert "list,--sort-by) compadd -- name age gpus phase position queue; return" in scripts["zsh"]
    seen = "complete -c bireme -n '__fish_seen_subcommand_from list' -l sort-by"
    assert f"{seen} -x -a 'name age gpus phase position queue' -d" in scripts["fish"]
