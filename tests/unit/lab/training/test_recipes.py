"""Recipes are found by name, and a refusal names its reason."""

import sys

import pytest

import bireme_lab.training
from bireme.core.errors import SettingError
from bireme_lab.training.recipes import RECIPES, load_recipe


def test_recipe_of_ones_own_is_named_by_its_path() -> None:
    assert load_recipe("testbed.toys.recipe:EchoRecipe").summary == "Echo, learned by PPO"


def test_unknown_recipe_names_the_nearest() -> None:
    with pytest.raises(SettingError, match="no recipe is called 'das1'; did you mean 'das'"):
        load_recipe("das1")


@pytest.mark.parametrize(
    "path", ["testbed.toys.recipe:Nothing", "testbed.toys.recipe:Path", "json:loads"]
)
def test_what_cannot_train_is_no_recipe(path: str) -> None:
    with pytest.raises(SettingError, match=r"has no class .* with a method 'train'"):
        load_recipe(path)


def test_missing_library_names_the_extra_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.delitem(sys.modules, "testbed.toys.recipe", raising=False)
    # The import system sets the package's attribute to what it imports here: that is undone, too.
    monkeypatch.setattr(bireme_lab, "training", bireme_lab.training)
    for module in [name for name in sys.modules if name.startswith("bireme_lab.training")]:
        monkeypatch.delitem(sys.modules, module)
    with pytest.raises(SettingError, match=r"needs torch.*\./policies\[train\]"):
        load_recipe("testbed.toys.recipe:EchoRecipe")


def test_missing_module_of_ones_own_is_named() -> None:
    with pytest.raises(SettingError, match="cannot be loaded: No module named 'nowhere'"):
        load_recipe("nowhere:Recipe")


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_of_the_table_is_whole(name: str) -> None:
    recipe = load_recipe(name)
    metric, is_less_better = recipe.primary
    assert recipe.summary
    assert recipe.settings
    assert metric
    assert isinstance(is_less_better, bool)
    assert callable(recipe.evaluate)
