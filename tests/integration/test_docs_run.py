"""Pages of the documentation, run block by block on an embedded cluster of each page's own."""

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from testbed.controlplane.process import free_ports
from testbed.pages.blocks import Commands, fences_of, shell_blocks
from testbed.pages.reader import ROOT, Reader, environment_of, find_kubectl
from testbed.pages.shell import Shell

DEMO = "tests/integration/test_demo.py plays the demo, and make test is this run"
HELM = "Helm installs what tests/cluster/test_install.py tests on a real API server"
REAL = "it compiles Kubernetes and starts a real control plane"

SKIPS: Mapping[str, Mapping[str, str]] = {
    "README.md": {"make demo": DEMO, "helm install": HELM},
    "docs/cookbook.md": {},
    "docs/quickstart.md": {"make demo": DEMO, "make cluster-up": REAL, "helm install": HELM},
    "docs/tutorial-administration.md": {
        "helm install": HELM,
        "helm upgrade": HELM,
        "kubectl -n bireme-system get lease": HELM,
    },
    "docs/tutorial-training.md": {},
}
"""By page, the beginning of each shell block that is not run, and the reason."""
PROGRESS_ADDRESS = "127.0.0.1:18082"
"""On pages; the tests of others may run at the same time, so this one takes a free port."""


@pytest.mark.parametrize("name", SKIPS)
def test_a_page_shows_what_its_commands_do(name: str, tmp_path: Path) -> None:
    page, skips = ROOT / name, tuple(SKIPS[name])
    kubectl = find_kubectl()
    if kubectl is None and any("kubectl " in block.text for block in run_blocks(page, skips)):
        pytest.skip(f"{name} uses kubectl, and there is none: make controlplane builds it")
    for folder in ("manifests", "charts"):
        (tmp_path / folder).symlink_to(ROOT / folder)
    # The environment that a page enters is the one of this test.
    (tmp_path / ".venv/bin").mkdir(parents=True)
    (tmp_path / ".venv/bin/activate").touch()
    (port,) = free_ports(1)
    with Shell(tmp_path, environment_of(tmp_path / "bin", kubectl)) as shell:
        Reader(page, shell, tmp_path, skips, {PROGRESS_ADDRESS: f"127.0.0.1:{port}"}).read()


def run_blocks(page: Path, skips: tuple[str, ...]) -> list[Commands]:
    return [block for block in shell_blocks(page) if not block.text.startswith(skips)]


@pytest.mark.parametrize("name", SKIPS)
def test_a_block_that_is_not_run_exists(name: str) -> None:
    blocks = shell_blocks(ROOT / name)
    counts = {each: sum(b.text.startswith(each) for b in blocks) for each in SKIPS[name]}
    assert counts == dict.fromkeys(counts, 1)


def test_the_readme_quotes_the_quick_start() -> None:
    quotes = [
        fence.text
        for fence in fences_of(ROOT / "README.md")
        if re.search(r"from the \[quick start\]", fence.introduction)
    ]
    shown = [fence.text for fence in fences_of(ROOT / "docs/quickstart.md")]
    assert quotes
    assert [text for text in quotes if text not in shown] == []
