"""The manifests that users are shown, as objects."""

from pathlib import Path

import yaml

from tests.support.scenario.manifests import Manifest

_FOLDER = Path(__file__).parents[3] / "manifests" / "examples"


def documents(name: str) -> list[Manifest]:
    """All objects of one example, in the order of the file."""
    return list(yaml.safe_load_all((_FOLDER / name).read_text()))
