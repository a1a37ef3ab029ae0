"""Apply configurations of mutating policies: checked by the schema of a kind, then merged.

Source: ``k8s.io/apiserver/pkg/admission/plugin/policy/mutating/patch/smd.go`` and the validation of
``sigs.k8s.io/structured-merge-diff``.
"""

from collections.abc import Iterator
from typing import Any

from bireme_lab.embedded.api import apply
from bireme_lab.embedded.api.errors import Object as Manifest
from bireme_lab.embedded.api.field_sets import MergeShape
from bireme_lab.embedded.api.schemas import Schema
from bireme_lab.embedded.api.typed_patches import type_faults


class ConfigurationError(ValueError):
    """A configuration does not fit its kind, in the API server's words."""


def merge_configuration(obj: Manifest, configuration: Manifest, schema: Schema) -> Manifest:
    """Return ``obj`` with what ``configuration`` states.

    Raises:
        ConfigurationError: it has a field that the kind has not, or replaces a field whole.
    """
    stated = {**configuration, "apiVersion": obj["apiVersion"], "kind": obj["kind"]}
    if faults := list(type_faults(stated, schema, "")):
        text = (
            faults[0] if len(faults) == 1 else "\n".join(["errors:", *(f"  {f}" for f in faults)])
        )
        raise ConfigurationError(f"failed to convert patch object to typed object: {text}")
    shape = MergeShape(schema)
    if atomic := list(_atomic_paths(stated, shape, "")):
        text = f"may not mutate atomic arrays, maps or structs: {', '.join(atomic)}"
        raise ConfigurationError(f"invalid ApplyConfiguration: {text}")
    result: Manifest = apply.merge(obj, stated, shape)
    return result


def _atomic_paths(value: Any, shape: MergeShape, path: str) -> Iterator[str]:
    """Yield the paths of all parts that a merge would replace whole."""
    if isinstance(value, dict):
        if shape.is_atomic_map:
            yield path
        for name, item in value.items():
            yield from _atomic_paths(item, shape.field(name), f"{path}.{name}")
    elif isinstance(value, list):
        if not shape.keys and not shape.is_set:
            yield path
        for index, item in enumerate(value):
            yield from _atomic_paths(item, shape.item(), f"{path}[{index}]")
