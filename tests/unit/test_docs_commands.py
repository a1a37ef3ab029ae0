"""Commands that the documentation shows: simulations run on few jobs, others are parsed."""

import re
import shlex
import subprocess
from pathlib import Path

import pytest

from bireme import cli
from bireme.cli import main
from bireme_lab.cli import evaluate, train
from bireme_lab.simulator.metrics import KEYS
from testbed.networks.checkpoints import write

ROOT = Path(__file__).parents[2]
DATA = ROOT.parent / "shared" / "data"
NAMES = ("simulator", "learning", "forecasting", "policies")
PAGES = tuple(f"docs/{name}.md" for name in NAMES)
OWN = {"response_ratio": "docs/simulator.md"}
"""The module that a page names for its own policy."""


def blocks(page: str, language: str) -> list[str]:
    flags = re.DOTALL | re.MULTILINE
    return re.findall(rf"^```{language}\n(.*?)^```", (ROOT / page).read_text(), flags)


def shown(command: str) -> list[str]:
    """Every line of the pages that starts with ``command``."""
    lines = "\n".join(block for page in PAGES for block in blocks(page, "sh"))
    lines = lines.replace("\\\n", " ")
    found = (line for line in lines.splitlines() if line.startswith(command))
    return list(dict.fromkeys(found))


def simulations() -> list[str]:
    return shown("bireme simulate")


def lies_here(source: str) -> bool:
    """Whether the file of a trace is there; a part of an archive counts as its archive."""
    path = Path(source.partition(":")[2].partition("?")[0])
    return any(where.is_file() for where in (path, *path.parents))


def as_read(command: str) -> list[str]:
    """The arguments of ``command`` as a shell reads them."""
    script = f"printf '%s\\n' {command.partition(' ')[2]}"
    shell = subprocess.run(
        ["sh", "-c", script], env={"DATA": str(DATA)}, capture_output=True, text=True, check=True
    )
    return shell.stdout.splitlines()


def arguments(command: str) -> list[str]:
    """Those of ``command``, but for at most 40 jobs."""
    given = as_read(command)
    if "--limit" in given:
        at = given.index("--limit")
        del given[at : at + 2]
    return [*given, "--limit", "40"]


@pytest.fixture
def own_policies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the current folder, as somebody has who follows the pages; one is a checkpoint."""
    write(tmp_path / "runs/a2c/checkpoint", orderer=(1,), order_encoder="a2c-jobs/1", name="a2c")
    for module, page in OWN.items():
        code = [block for block in blocks(page, "python") if "def order" in block]
        assert code, f"{page} shows no policy of one's own"
        assert all(block.count("\n") < 40 for block in code)
        (tmp_path / f"{module}.py").write_text(code[0])
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))


def test_every_format_and_an_own_policy_are_shown() -> None:
    sources = " ".join(simulations())
    for name in ("philly", "openb", "pai", "tiresias", "muri", "pollux", "helios", "acme", "gen"):
        assert f"{name}:" in sources
    assert all(f"{module}:" in sources for module in OWN)


@pytest.mark.parametrize("command", simulations())
def test_a_simulation_of_the_documentation_runs(
    command: str, own_policies: None, capsys: pytest.CaptureFixture[str]
) -> None:
    given = arguments(command)
    source = given[given.index("--trace") + 1]
    if not source.startswith("gen:") and not lies_here(source):
        pytest.skip(f"{source} is not here: the trace is published, but not part of Bireme")
    assert main(given) == 0
    assert capsys.readouterr().out


@pytest.mark.parametrize("command", shown("bireme train") + shown("bireme evaluate"))
def test_a_command_about_learning_of_the_documentation_is_understood(command: str) -> None:
    given = shlex.split(command, comments=True)[1:]
    options = cli.parser_for(given).parse_args(given)
    assert options.run in (train.run, evaluate.run)


def about_a_cluster() -> list[str]:
    """Every command in a shell block of the README or a page that the tests above do not run."""
    pages = ["README.md", *(f"docs/{page.name}" for page in sorted((ROOT / "docs").glob("*.md")))]
    text = "\n".join(block for page in pages for block in blocks(page, "sh"))
    text = re.sub(r"(^|\s)#.*", "", text.replace("\\\n", " "), flags=re.MULTILINE)
    parts = (part.strip() for line in text.splitlines() for part in re.split(r"[|;]|&&", line))
    others = ("simulate", "train", "evaluate", "forecast compare")
    commands = [part for part in parts if re.match(rf"bireme (?!({'|'.join(others)}) )", part)]
    return list(dict.fromkeys(commands))


@pytest.mark.parametrize("command", about_a_cluster())
def test_a_command_about_a_cluster_of_the_documentation_is_understood(command: str) -> None:
    given = shlex.split(command)[1:]
    assert cli.parser_for(given).parse_args(given).run


@pytest.mark.parametrize("command", shown("bireme forecast compare "))
def test_a_forecast_of_the_documentation_is_made(
    command: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("runs/nodes/checkpoint").mkdir(parents=True)  # as if trained by the command above
    hours = range(21 * 24)
    rows = (f"2026-11-{1 + h // 24:02} {h % 24:02}:00,{10 + h % 24 % 7}\n" for h in hours)
    Path("nodes.csv").write_text("time,active\n" + "".join(rows))
    given = as_read(command)
    file = Path(given[given.index("--series") + 1])
    if not file.is_file():
        pytest.skip(f"{file} is not here: the series is published, but not part of Bireme")
    assert main([*given, "--models", "persistence,seasonal-naive"]) == 0
    assert "verdict" in capsys.readouterr().out


def test_every_key_is_documented_in_the_words_of_the_code() -> None:
    page = (ROOT / "docs/simulator.md").read_text()
    shown = re.findall(r"^\| `(\w+)` \| (.*) \|$", page, re.MULTILINE)
    table = {key: meaning for key, meaning in shown if key in KEYS}
    assert table == dict(KEYS)
