"""The import contracts: none of them forgets a module of the library.

import-linter checks what pyproject.toml lists, and a new module is on no list. That it lies in a
layer the contract of the layers says itself, being exhaustive.
"""

import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
CONTRACTS: list[dict[str, Any]] = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"][
    "importlinter"
]["contracts"]
MODULES = {
    path.stem
    for path in (ROOT / "policies/bireme").iterdir()
    if path.suffix == ".py" or (path / "__init__.py").exists()
} - {"__init__"}
SERVING = {"console", "forecasting", "policies_command", "replay", "rl", "simulator", "training"}

FREE = {
    "Test builders stay out of what runs": {"testing"},
    "What training scripts import stands alone": {"report"},
    "Only training knows torch": {"training"},
    "Only what serves learned policies, and who asks it to, knows ONNX": SERVING,
    "Only forecasting, and who tries forecasts, knows statsmodels and what that is made of": {
        *("forecasting", "simulator", "training")
    },
}
"""By contract, the modules that it leaves free."""


@pytest.mark.parametrize("name", FREE)
def test_a_contract_about_all_of_the_library_names_every_other_module(name: str) -> None:
    (contract,) = (contract for contract in CONTRACTS if contract["name"] == name)
    about = "forbidden" if contract["source_modules"] == ["bireme.report"] else "source"
    listed = {module.removeprefix("bireme.") for module in contract[f"{about}_modules"]}
    assert MODULES - listed == FREE[name]


def test_the_layers_of_the_library_are_exhaustive() -> None:
    (layers,) = (contract for contract in CONTRACTS if contract.get("containers") == ["bireme"])
    assert layers["exhaustive"] is True
    assert set(layers["exhaustive_ignores"]) == {"report", "testing"}
