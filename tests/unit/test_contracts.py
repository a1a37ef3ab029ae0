"""The import contracts cover every module: none of them can forget a new one.

import-linter checks the modules that pyproject.toml lists. The contract of the layers is
exhaustive, so import-linter itself refuses a module without a layer. A contract about "everything
but these" is a plain list; here it is compared with the modules that exist.
"""

import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
LINTER: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"][
    "importlinter"
]
CONTRACTS: list[dict[str, Any]] = LINTER["contracts"]
LIBRARY = {
    f"{package}.{path.stem}"
    for package in ("bireme", "bireme_lab")
    for path in (ROOT / "policies" / package).iterdir()
    if path.stem != "__init__" and (path.suffix == ".py" or (path / "__init__.py").exists())
}
PROGRAMS = {"bireme_operator", "bireme_extender"}

EXEMPT = {
    "Only training imports torch, only onnx and training ONNX, only forecasting statsmodels": {
        *("bireme.forecasting", "bireme.onnx", "bireme_lab.training")
    },
}
"""By contract about all modules, those that it exempts."""


@pytest.mark.parametrize("name", EXEMPT)
def test_a_contract_about_all_modules_lists_every_one_that_it_does_not_exempt(name: str) -> None:
    (contract,) = (contract for contract in CONTRACTS if contract["name"] == name)
    assert (LIBRARY | PROGRAMS) - set(contract["source_modules"]) == EXEMPT[name]


@pytest.mark.parametrize("package", ["bireme", "bireme_lab"])
def test_the_layers_of_the_library_and_of_the_lab_are_exhaustive(package: str) -> None:
    (layers,) = (contract for contract in CONTRACTS if contract.get("containers") == [package])
    assert layers["exhaustive"] is True
    assert "exhaustive_ignores" not in layers


def test_the_library_the_lab_and_both_programs_are_checked() -> None:
    assert set(LINTER["root_packages"]) == {"bireme", "bireme_lab", *PROGRAMS}


def test_a_contract_names_only_modules_that_exist() -> None:
    named = {
        module
        for contract in CONTRACTS
        for key in ("source_modules", "forbidden_modules")
        for module in contract.get(key, ())
        if module.startswith(("bireme.", "bireme_lab."))
    }
    paths = {name: ROOT / "policies" / name.replace(".", "/") for name in named}
    assert not [
        name
        for name, path in paths.items()
        if not (path.with_suffix(".py").exists() or (path / "__init__.py").exists())
    ]
