"""Programs without learned policies load nothing of what serves or trains them."""

import json
import subprocess
import sys

import pytest

HEAVY = ("torch", "onnx", "onnxruntime", "onnxscript", "gymnasium", "safetensors", "matplotlib")


def loaded_by(statements: str) -> set[str]:
    """The heavy libraries that a fresh Python has loaded after ``statements``."""
    show = f"\nimport json, sys; print(json.dumps([m for m in {HEAVY} if m in sys.modules]))"
    command = [sys.executable, "-c", statements + show]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    return set(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.parametrize("module", ["bireme.cli", "bireme_operator.app", "bireme_extender.app"])
def test_a_program_that_starts_loads_no_library_of_learned_policies(module: str) -> None:
    assert loaded_by(f"import {module}") == set()


@pytest.mark.parametrize("arguments", [["policies"], ["policies", "fifo"]])
def test_listing_policies_loads_no_library_of_learned_policies(arguments: list[str]) -> None:
    assert loaded_by(f"from bireme.cli import main; main({arguments})") == set()


def test_rules_decide_without_any_library_of_learned_policies() -> None:
    statements = (
        "from bireme.core.cycle import run_cycle\n"
        "from bireme.core.settings import SchedulingSettings\n"
        "from bireme.registry import make_policy\n"
        "from bireme.testing import a_gang, a_node, a_snapshot\n"
        "run_cycle(a_snapshot([a_node('n')], a_gang()), make_policy(SchedulingSettings()))"
    )
    assert loaded_by(statements) == set()
