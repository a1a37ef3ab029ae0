"""A command loads what it needs: who asks for help does not wait for libraries."""

import functools
import subprocess
import sys

import pytest

LOADED = "import sys; from bireme.cli import parser_for; parser_for({given}); print(*sys.modules)"


@functools.cache
def loaded_for(argument: str) -> set[str]:
    """Return the modules that a fresh Python has loaded to understand ``bireme ARGUMENT``."""
    command = [sys.executable, "-c", LOADED.format(given=[argument])]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    return set(done.stdout.split())


def test_the_list_of_commands_needs_no_library() -> None:
    assert loaded_for("--help").isdisjoint({"numpy", "aiohttp", "yaml", "bireme.registry"})


@pytest.mark.parametrize(
    "command",
    [
        "why",
        "queue",
        "list",
        "top",
        "suspend",
        "cancel",
        "scale",
        "logs",
        "doctor",
        "explain",
        "drain",
        "release",
        "maintenance",
        "submit",
        "convert",
    ],
)
def test_a_question_to_a_cluster_loads_no_simulator(command: str) -> None:
    loaded = loaded_for(command)
    renamed = {"queue": "queues", "list": "listing", "suspend": "suspension"}
    module = renamed.get(command, command)
    assert f"bireme.cli.{module}" in loaded
    assert not {name for name in loaded if name.startswith("bireme.simulator")}


@pytest.mark.parametrize("command", ["why", "queue", "list", "top"])
def test_what_reads_objects_alone_loads_nothing_that_decides(command: str) -> None:
    assert loaded_for(command).isdisjoint({"numpy", "bireme.core.snapshot", "bireme.registry"})


def test_a_forecast_without_a_picture_needs_no_matplotlib() -> None:
    assert "matplotlib" not in loaded_for("forecast")


def test_tuning_needs_nothing_that_the_image_of_the_operator_lacks() -> None:
    assert loaded_for("tune").isdisjoint({"torch", "gymnasium", "matplotlib", "rich"})
