"""Read manifest files: YAML streams of Kubernetes objects, with `List` objects unfolded."""

import sys
from pathlib import Path
from typing import Any

import yaml

from bireme.cli.arguments import Json
from bireme.core.errors import BiremeError


class ManifestError(BiremeError):
    """A file is not a valid manifest stream; the message names the file and the remedy."""


def manifests(text: str, source: str) -> list[Json]:
    """Return the objects of a YAML stream, with lists unfolded; errors name ``source``."""
    try:
        loaded: list[Any] = list(yaml.safe_load_all(text))
    except yaml.YAMLError as error:
        raise ManifestError(f"{source}: is not YAML: {' '.join(str(error).split())}") from error
    objects: list[Json] = []
    for document in loaded:
        if document is None:
            continue
        if not isinstance(document, dict) or not isinstance(document.get("kind"), str):
            raise ManifestError(f"{source}: has an object without a kind; give only manifests")
        items = document.get("items") if document["kind"].endswith("List") else None
        objects += items if isinstance(items, list) else [document]
    return objects


def read(name: str) -> list[Json]:
    """Return the objects of the file ``name``, or of standard input if it is ``-``."""
    try:
        text = sys.stdin.read() if name == "-" else Path(name).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ManifestError(f"{name}: is not UTF-8 text: {error.reason}") from error
    return manifests(text, "standard input" if name == "-" else name)
