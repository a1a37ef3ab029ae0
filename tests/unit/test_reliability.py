"""The page on reliability: what it names exists, and nothing that exists is left out."""

import re
from dataclasses import fields
from pathlib import Path

import pytest

from testbed.history.observer import INVARIANTS
from testbed.simcluster.cluster import SimulatedCluster
from testbed.simcluster.fault_injection import FaultInjector
from testbed.simcluster.judge import PROMISES
from testbed.simcluster.tenants import Tenants
from testbed.simcluster.virtual import VirtualLoop
from testbed.simcluster.world import World
from tools.refind import FOUND

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reliability.md"
TEXT = PAGE.read_text()
LINKS = sorted(set(re.findall(r"\[`(test_\w+)`\]\(([^)]+)\)", TEXT)))


def test_there_are_links() -> None:
    assert len(LINKS) > 100
    assert len(re.findall(r"\btest_\w+", re.sub(r"\([^)]*\)", "", TEXT))) >= len(LINKS)


@pytest.mark.parametrize(("name", "target"), LINKS, ids=[name for name, _ in LINKS])
def test_a_test_that_the_page_links_to_is_there(name: str, target: str) -> None:
    path = (PAGE.parent / target).resolve()
    assert path.is_relative_to(ROOT / "tests")
    assert re.search(rf"^(async )?def {name}\(", path.read_text(), re.MULTILINE)


def test_every_invariant_has_its_place_on_the_page() -> None:
    assert {name for name in (*INVARIANTS, *PROMISES) if f"`{name}`" not in TEXT} == set()


def test_every_fault_of_simulated_clusters_that_the_page_names_is_one() -> None:
    loop = VirtualLoop()
    cluster = SimulatedCluster(0, loop)
    faults = {name.replace("_", "-") for name in FaultInjector(cluster, Tenants(cluster)).all()}
    loop.close()
    worlds = {each.name for each in fields(World)}
    section = TEXT.partition("## Faults")[2].partition("## Parsers")[0]
    named = {name.replace("_", "-") for name in re.findall(r"(?<!\[)`([a-z_-]+)`", section)}
    known = {name.replace("_", "-") for name in (*faults, *worlds)}
    assert named - known == {"code"}  # what such names are written as
    assert faults <= named


def test_every_bug_of_the_past_is_on_the_page_with_the_command_that_finds_it() -> None:
    assert set(re.findall(r"python -m tools\.refind ([a-z-]+)", TEXT)) == set(FOUND)
