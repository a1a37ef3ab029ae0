"""A command loads what it needs: who asks for help does not wait for libraries."""

import functools
import subprocess
import sys

import pytest

LOADED = """
import contextlib, sys
from bireme.cli import parser_for
with contextlib.redirect_stdout(None), contextlib.suppress(SystemExit):
    parser_for({given}).parse_args({given})
print(*sys.modules)
"""


@functools.cache
def loaded_for(*given: str) -> set[str]:
    """The modules that a fresh Python has loaded to give help on the command ``given``."""
    code = LOADED.format(given=[*given, "--help"])
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    return set(done.stdout.split())


def test_the_list_of_commands_needs_no_library() -> None:
    assert loaded_for().isdisjoint({"numpy", "aiohttp", "yaml", "bireme.registry"})


@pytest.mark.parametrize(
    ("command", "module"),
    [
        ("why", "why"),
        ("queue", "queues"),
        ("list", "listing"),
        ("suspend", "suspension"),
        ("cancel", "cancel"),
        ("scale", "scale"),
        ("logs", "logs"),
        ("doctor", "doctor"),
        ("policies", "policies"),
        ("maintenance plan", "maintenance_plan"),
        ("maintenance announce", "maintenance"),
        ("forecast pools", "forecast_pools"),
        ("migrate release", "release"),
        ("migrate convert", "convert"),
        ("submit", "submit"),
    ],
)
def test_a_question_to_a_cluster_loads_no_simulator(command: str, module: str) -> None:
    loaded = loaded_for(*command.split())
    assert f"bireme.cli.{module}" in loaded
    assert not {name for name in loaded if name.startswith("bireme_lab.simulator")}


@pytest.mark.parametrize("command", ["why", "queue", "list"])
def test_what_reads_objects_alone_loads_nothing_that_decides(command: str) -> None:
    loaded = loaded_for(command)
    assert loaded.isdisjoint({"numpy", "bireme.core.snapshot", "bireme.registry"})
    assert "importlib.metadata" not in loaded, "packages are searched for their commands alone"


def test_a_forecast_without_a_picture_needs_no_matplotlib() -> None:
    assert "matplotlib" not in loaded_for("forecast", "compare")


def test_tuning_needs_nothing_that_the_image_of_the_operator_lacks() -> None:
    assert loaded_for("tune").isdisjoint({"torch", "gymnasium", "matplotlib", "rich"})
