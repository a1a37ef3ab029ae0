"""Names of policies, encoders and checkpoints, by the distribution that brings them.

The names of Bireme stand here. Another distribution adds its own by an entry point of the group
``bireme.policies``, whose value is a :class:`PolicyNames`. Such an entry point is read only for a
name that Bireme does not have, or for a list of all names.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import Final, TypeVar

from bireme.core.errors import SettingError
from bireme.core.policy import PartName

_ValueT = TypeVar("_ValueT")

GROUP: Final = "bireme.policies"
"""Group of the entry points that add names of policies."""
LAB: Final = "bireme-lab"
"""Distribution and image with the policies of research."""


@dataclass(frozen=True, slots=True)
class PolicyNames:
    """The names that one distribution brings.

    Attributes:
        classes: ``module:Class`` of a policy, by part and name.
        encoders: ``module:Class`` of an encoder, by part, and by name with version.
        checkpoints: Folder of its checkpoints, each in a folder of its name.
        learned: Module whose classes decide by those checkpoints.
    """

    classes: Mapping[PartName, Mapping[str, str]]
    encoders: Mapping[PartName, Mapping[str, str]] = field(default_factory=dict)
    checkpoints: Path | None = None
    learned: str = ""


BIREME: Final = PolicyNames(
    classes={
        "orderer": {
            "combined-priority": "bireme.heuristics.combined_priority:CombinedPriority",
            "drf": "bireme.heuristics.fairness:DominantResourceFairness",
            "fair-share": "bireme.heuristics.fairness:FairShare",
            "fcfs": "bireme.heuristics.simple_orderers:Fifo",
            "fifo": "bireme.heuristics.simple_orderers:Fifo",
            "learned-index": "bireme.rl.builtin:LearnedIndex",
            "random": "bireme.heuristics.simple_orderers:RandomOrder",
            "sjf": "bireme.heuristics.simple_orderers:ShortestJob",
            "smallest-first": "bireme.heuristics.simple_orderers:SmallestFirst",
            "srsf": "bireme.heuristics.simple_orderers:ShortestRemainingService",
            "srtf": "bireme.heuristics.simple_orderers:ShortestRemainingTime",
            "tetris": "bireme.heuristics.tetris:TetrisOrder",
            "tiresias-gittins": "bireme.heuristics.tiresias:TiresiasGittins",
            "tiresias-las": "bireme.heuristics.tiresias:TiresiasLas",
        },
        "placer": {
            "best-fit": "bireme.heuristics.simple_placers:BestFit",
            "fgd": "bireme.heuristics.fragmentation:FragmentationGradientDescent",
            "first-fit": "bireme.heuristics.simple_placers:FirstFit",
            "load-balance": "bireme.heuristics.simple_placers:LoadBalance",
            "packing": "bireme.heuristics.packing:Packing",
            "random": "bireme.heuristics.simple_placers:RandomPlacement",
            "tetris": "bireme.heuristics.tetris:TetrisPlacement",
        },
        "sizer": {
            "fair-sharing": "bireme.heuristics.simple_sizers:FairSharing",
            "general": "bireme.heuristics.simple_sizers:GeneralRule",
            "goodput": "bireme.heuristics.goodput:Goodput",
            "max": "bireme.heuristics.simple_sizers:Maximum",
            "min": "bireme.heuristics.simple_sizers:Minimum",
        },
    },
    encoders={
        "orderer": {
            "index-gangs/1": "bireme.rl.encoders.index:IndexGangs",
        },
        "placer": {},
        "sizer": {},
    },
    checkpoints=Path(__file__).parent / "rl" / "checkpoints",
    learned="bireme.rl.builtin",
)


@cache
def added() -> Mapping[str, PolicyNames]:
    """Return the names that other distributions add, by the name of the entry point.

    Raises:
        SettingError: an entry point cannot be loaded.
    """
    names = {}
    for point in entry_points(group=GROUP):
        try:
            names[point.name] = point.load()
        except (ImportError, AttributeError) as error:
            raise SettingError(
                f"entry point {point.name!r} of {GROUP} cannot be loaded: {error}; install its "
                "distribution again, or remove it"
            ) from error
    return names


def distributions() -> tuple[PolicyNames, ...]:
    """Return the names of every distribution, those of Bireme first."""
    return (BIREME, *added().values())


def class_path(part: PartName, name: str) -> str:
    """Return the ``module:Class`` of the policy ``name``; empty if no distribution has it."""
    return BIREME.classes[part].get(name) or class_paths(part).get(name, "")


def class_paths(part: PartName) -> dict[str, str]:
    """Return the ``module:Class`` of every policy of ``part``, sorted by name."""
    return _merged([names.classes.get(part, {}) for names in distributions()])


def encoder_path(part: PartName, name: str) -> str:
    """Return the ``module:Class`` of the encoder ``name``; empty if no distribution has it."""
    return BIREME.encoders[part].get(name) or encoder_paths(part).get(name, "")


def encoder_paths(part: PartName) -> dict[str, str]:
    """Return the ``module:Class`` of every encoder of ``part``, sorted by name."""
    return _merged([names.encoders.get(part, {}) for names in distributions()])


def checkpoint_folder(name: str) -> Path | None:
    """Return the folder of the checkpoint ``name`` that comes with a distribution."""
    return _folders(BIREME).get(name) or checkpoint_folders().get(name)


def checkpoint_folders() -> dict[str, Path]:
    """Return the folders of all checkpoints that come with distributions, sorted by name."""
    return _merged([_folders(names) for names in distributions()])


def lab_remedy() -> str:
    """Return how to get the policies of research; empty where they are installed."""
    if "lab" in added():
        return ""
    return f"; policies of research need pip install {LAB}, or the image {LAB}"


def _folders(names: PolicyNames) -> dict[str, Path]:
    """Return folders by name, so that a name never becomes a path."""
    if names.checkpoints is None or not names.checkpoints.is_dir():
        return {}
    return {path.name: path for path in names.checkpoints.iterdir() if path.is_dir()}


def _merged(mappings: Sequence[Mapping[str, _ValueT]]) -> dict[str, _ValueT]:
    """Return all items, sorted by key; the first mapping with a key decides."""
    items: dict[str, _ValueT] = {}
    for mapping in reversed(mappings):
        items |= mapping
    return dict(sorted(items.items()))
