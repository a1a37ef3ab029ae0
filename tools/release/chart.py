"""The chart of a release: values that name its registry, and its images by digest."""

import copy
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from tools.release.errors import ReleaseError

IMAGES: Final = (("operator", "image"), ("scheduler", "extender", "image"), ("forecast", "image"))
"""Where in the values Bireme's own images stand. That of kube-scheduler is of the cluster."""
_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")


def write(source: Path, target: Path, registry: str, digests: Mapping[str, str]) -> None:
    """Copy the chart in ``source`` to ``target`` and write registry and digests into its values.

    ``digests`` are ``sha256:...`` by repository, as the values name it. All else, comments too,
    stays as it is.

    Raises:
        ReleaseError: an image of the chart has no digest, or none such as sha256:...
    """
    shutil.copytree(source, target)
    file = target / "values.yaml"
    text = file.read_text(encoding="utf-8")
    values = yaml.safe_load(text)
    wanted = copy.deepcopy(values)
    changes = {("image", "registry"): registry}
    for path in IMAGES:
        repository = _at(values, path)["repository"]
        digest = digests.get(repository, "")
        if not _DIGEST.fullmatch(digest):
            raise ReleaseError(
                f"the digest of image {repository} is {digest!r}: give it as sha256:..."
            )
        changes[(*path, "digest")] = digest
    for key, value in changes.items():
        _at(wanted, key[:-1])[key[-1]] = value
        text = _with_line(text, key, value)
    if yaml.safe_load(text) != wanted:
        raise ReleaseError(f"{source / 'values.yaml'} is not written key by key, two spaces deeper")
    file.write_text(text, encoding="utf-8")


def _at(values: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        values = values[name]
    return values


def _with_line(text: str, path: tuple[str, ...], value: str) -> str:
    """Return the YAML ``text`` with another value at the key at ``path``, two spaces a level."""
    lines = text.splitlines(keepends=True)
    at: list[str] = []
    for number, line in enumerate(lines):
        if match := re.match(r"( *)([A-Za-z]\w*):", line):
            at[len(match[1]) // 2 :] = [match[2]]
            if tuple(at) == path:
                lines[number] = f'{match[0]} "{value}"\n'
                return "".join(lines)
    raise ReleaseError(f"values.yaml has no {'.'.join(path)}")
