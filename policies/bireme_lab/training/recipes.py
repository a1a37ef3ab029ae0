"""Recipes: training and evaluation of each learned policy, by name, loaded on demand.

A recipe is a class without constructor arguments that fulfils :class:`Recipe`. A name with a colon
is a user's recipe: ``mypackage.mymodule:MyRecipe``.
"""

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol, cast

from bireme.core.errors import SettingError, installing, nearest

if TYPE_CHECKING:
    from bireme.rl.checkpoint import Checkpoint
    from bireme_lab.training.runs import TrainingRun

RECIPES: Final[Mapping[str, str]] = {
    "a2c": "bireme_lab.training.deeprm.recipe:ScorerRecipe",
    "a2c-cnn": "bireme_lab.training.deeprm.recipe:ImageRecipe",
    "a2c-paper": "bireme_lab.training.deeprm.recipe:DeepRmPaperRecipe",
    "das": "bireme_lab.training.das.recipe:DasRecipe",
    "das-paper": "bireme_lab.training.das.recipe:DasPaperRecipe",
    "general-index": "bireme_lab.training.index.recipe:GeneralIndexRecipe",
    "learned-index": "bireme_lab.training.index.recipe:IndexRecipe",
    "tapfinger": "bireme_lab.training.tapfinger.recipe:TapfingerRecipe",
    "tapfinger-no-attention": "bireme_lab.training.tapfinger.recipe:NoAttention",
    "tapfinger-no-pointer": "bireme_lab.training.tapfinger.recipe:NoPointer",
    "tapfinger-paper": "bireme_lab.training.tapfinger.recipe:TapfingerPaperRecipe",
    "tapfinger-paper-small": "bireme_lab.training.tapfinger.recipe:SmallTapfingerPaperRecipe",
    "tapfinger-vanilla": "bireme_lab.training.tapfinger.recipe:Vanilla",
    "tapfinger-whole": "bireme_lab.training.tapfinger.recipe:Ablation",
    "rlpto": "bireme_lab.training.rlpto.recipe:RlptoRecipe",
    "rlpto-paper": "bireme_lab.training.rlpto.recipe:RlptoPaperRecipe",
}
FORECASTERS: Final[Mapping[str, str]] = {"gru": "bireme_lab.training.gru.recipe:GruRecipe"}
"""Recipes of forecasts, which ``bireme forecast compare`` evaluates."""

# An ImportError about another library is a fault of the module, which no installation repairs.
_OF_THE_EXTRA: Final = (
    "torch",
    "safetensors",
    "gymnasium",
    "matplotlib",
    "rich",
    "onnx",
    "onnxruntime",
    "onnxscript",
)

Results = Mapping[str, Mapping[str, float]]
"""Numbers by policy and metric; a non-finite number counts as missing."""


class Trainable(Protocol):
    """Training of a policy or a forecaster; ``summary`` is one line.

    A recipe that can also learn on other devices than the CPU has an attribute ``devices``, a tuple
    of all their names.
    """

    summary: str

    def train(self, run: "TrainingRun") -> Path:
        """Train within the limits of ``run``; return the folder of the finished checkpoint."""


class Recipe(Trainable, Protocol):
    """Training and evaluation of one learned policy.

    Attributes:
        settings: The settings of evaluations, by name, a line each.
        primary: The metric that ranks policies, and whether less of it is better.
    """

    settings: Mapping[str, str]
    primary: tuple[str, bool]

    def evaluate(
        self, checkpoint: "Checkpoint", setting: str, seed: int, options: Mapping[str, str]
    ) -> Results:
        """Evaluate the checkpoint, under its own name, and all baselines with the same ``seed``."""


def load_recipe(name: str) -> Recipe:
    """Return the recipe of the policy called ``name``.

    Raises:
        SettingError: no recipe has that name (the text names the nearest), or a library is missing.
    """
    return cast(Recipe, _class(name, RECIPES)())


def load_forecaster(name: str, *arguments: object) -> Trainable:
    """Return the recipe of the forecaster ``name``, made of ``arguments``; errors as above."""
    return cast(Trainable, _class(name, FORECASTERS)(*arguments))


def _class(name: str, paths: Mapping[str, str]) -> type:
    path = name if ":" in name else paths.get(name, "")
    if not path:
        raise SettingError(f"no recipe is called {name!r}; {nearest(name, sorted(paths))}")
    module_name, _, attribute = path.partition(":")
    try:
        module = import_module(module_name)
    except ImportError as error:
        remedy = missing(error) or f"cannot be loaded: {error}; correct the name or install it"
        raise SettingError(f"recipe {name!r} {remedy}") from error
    recipe = getattr(module, attribute, None)
    if not isinstance(recipe, type) or not callable(getattr(recipe, "train", None)):
        raise SettingError(
            f"recipe {name!r}: module {module_name!r} has no class {attribute!r} with a method "
            "'train'; see bireme_lab.training.recipes.Recipe"
        )
    return recipe


def missing(error: ImportError) -> str:
    """Return the command that installs the missing library; empty if no extra contains it."""
    library = (error.name or "").partition(".")[0]
    if library == "statsmodels":
        remedy = installing("forecast")
    elif library in _OF_THE_EXTRA:
        remedy = installing("train", "./policies")
    else:
        return ""
    return f"needs {library}, which is not installed; {remedy}"
