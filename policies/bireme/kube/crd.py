"""Generate the CustomResourceDefinitions from the API models.

pydantic writes general JSON schema, but the API server accepts structural schemas only: no
references, no ``title``, no ``null``, a type for every part. This module converts the one into the
other, and raises an error with the path for anything that has no structural form or no size limit.

Run ``python -m bireme.kube.crd --write`` after a change of :mod:`bireme.kube.api`; ``--check``
fails when that was forgotten.
"""

import argparse
import ast
import difflib
import inspect
import itertools
import sys
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal

import yaml
from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from bireme.kube import names
from bireme.kube.api.base import Resource
from bireme.kube.api.cluster_claim import ClusterClaim
from bireme.kube.api.node_pool_scaler import NodePoolScaler
from bireme.kube.api.pod_group import PodGroup
from bireme.kube.api.queues import QueueResource
from bireme.kube.api.scheduling_policy import SchedulingPolicy
from bireme.kube.api.ticket import Ticket
from bireme.kube.api.training_job import TrainingJob

Schema = dict[str, Any]


@dataclass(frozen=True)
class Column:
    """A column of ``kubectl get``; ``wide`` ones appear with ``-o wide`` only."""

    name: str
    type: Literal["string", "integer", "number", "date"]
    path: str
    wide: bool = False

    def to_schema(self) -> Schema:
        """Return the entry of ``additionalPrinterColumns``."""
        priority = {"priority": 1} if self.wide else {}
        return {"name": self.name, "type": self.type, "jsonPath": self.path, **priority}


_REASON: Final = Column("REASON", "string", ".status.reason")
_AGE: Final = Column("AGE", "date", ".metadata.creationTimestamp")
_MESSAGE: Final = Column("MESSAGE", "string", ".status.message", wide=True)


def _condition_column(name: str, condition: str) -> Column:
    return Column(name, "string", f'.status.conditions[?(@.type=="{condition}")].status')


@dataclass(frozen=True)
class ServedKind:
    """A kind as the API server serves it: model, scope and columns of ``kubectl get``.

    ``selectable`` are paths of fields that a field selector may name.
    """

    model: type[Resource]
    scope: Literal["Namespaced", "Cluster"]
    columns: tuple[Column, ...]
    selectable: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return str(self.model.model_fields["kind"].default)

    @property
    def plural(self) -> str:
        return names.PLURALS[self.name]


KINDS: Final = (
    ServedKind(
        TrainingJob,
        "Namespaced",
        (
            Column("PHASE", "string", ".status.phase"),
            Column("QUEUE", "string", ".status.queue"),
            Column("PRIORITY", "number", ".status.priority.score"),
            Column("READY", "string", ".status.ready"),
            Column("GPUS", "number", ".status.gpus"),
            Column("POSITION", "integer", ".status.queuePosition"),
            _REASON,
            Column("NODES", "integer", ".status.placement.nodes", wide=True),
            Column("RESTARTS", "integer", ".status.restarts", wide=True),
            Column("PROGRESS", "number", ".status.progress.percentage", wide=True),
            Column("LOSS", "number", ".status.progress.loss", wide=True),
            _MESSAGE,
            _AGE,
        ),
        selectable=(names.PLAN_MODE_PATH,),
    ),
    ServedKind(
        PodGroup,
        "Namespaced",
        (
            Column("PHASE", "string", ".status.phase"),
            Column("QUEUE", "string", ".status.queue"),
            Column("MINMEMBER", "integer", ".spec.minMember"),
            _REASON,
            _MESSAGE,
            _AGE,
        ),
    ),
    ServedKind(
        QueueResource,
        "Cluster",
        (
            Column("STATE", "string", ".spec.state"),
            Column("USERPRIORITY", "integer", ".spec.userPriority"),
            Column("ADMITTED", "integer", ".status.admitted"),
            Column("PENDING", "integer", ".status.pending"),
            _AGE,
        ),
    ),
    ServedKind(
        SchedulingPolicy,
        "Cluster",
        (
            Column("STAGE", "string", ".status.stage"),
            Column("CHECKPOINT", "string", ".spec.checkpoint.name"),
            _condition_column("LOADED", "Loaded"),
            _condition_column("DEGRADED", "Degraded"),
            Column("DECISIONS", "integer", ".status.decisions"),
            Column("FALLBACKS", "integer", ".status.fallbacks"),
            Column("AGREEMENT", "number", ".status.shadow.agreement", wide=True),
            Column("REGRET", "number", ".status.shadow.regret", wide=True),
            _AGE,
        ),
    ),
    ServedKind(
        NodePoolScaler,
        "Cluster",
        (
            Column("MODE", "string", ".spec.mode"),
            Column("NODES", "integer", ".status.nodes"),
            Column("FLOOR", "integer", ".status.floor"),
            Column("TOMORROW", "string", ".status.tomorrow"),
            Column("MODEL", "string", ".status.model.name"),
            Column("SKILL", "number", ".status.model.skill"),
            Column("WHY", "string", ".status.why"),
            Column("MAX", "integer", ".spec.max", wide=True),
            Column("REPLICAS", "integer", ".status.replicas", wide=True),
            Column("NEEDED", "integer", ".status.needed", wide=True),
            _AGE,
        ),
    ),
    ServedKind(
        ClusterClaim,
        "Cluster",
        (
            Column("NAMESPACE", "string", ".spec.namespace"),
            Column("HOLDER", "string", ".spec.holder"),
            Column("RENEWED", "date", ".spec.renewTime"),
            Column("TRANSITIONS", "integer", ".spec.transitions", wide=True),
            _AGE,
        ),
    ),
    ServedKind(Ticket, "Namespaced", (Column("USER", "string", ".spec.user"), _AGE)),
)


DIRECTORY: Final = Path(__file__).parents[3] / "charts" / "bireme" / "files" / "crds"
_HEADER: Final = "# Generated by `python -m bireme.kube.crd --write` from bireme/kube/api.\n"

_STRUCTURAL_KEYS: Final = {
    *("type", "description", "default", "enum", "format", "pattern", "required"),
    *("minimum", "maximum", "minLength", "maxLength"),
    *("minItems", "maxItems", "minProperties", "maxProperties"),
    *("x-kubernetes-list-type", "x-kubernetes-list-map-keys", "x-kubernetes-map-type"),
    *("x-kubernetes-int-or-string", "x-kubernetes-validations"),
}
_LIMITS: Final = {"string": "maxLength", "array": "maxItems"}


class _Plain(yaml.SafeDumper):
    """YAML without anchors, so that a CRD reads top to bottom."""

    def ignore_aliases(self, _data: object) -> bool:
        return True


class Documented(GenerateJsonSchema):
    """JSON schema with the docstring below a field as its description.

    pydantic's own ``use_attribute_docstrings`` does so too, but at every import of the models. To
    read their source doubled the import time of the models.
    """

    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        """Return the schema of one model with the descriptions of its fields."""
        result = super().model_schema(schema)
        model: type[BaseModel] = schema["cls"]
        for name, text in _attribute_docstrings(model).items():
            result["properties"][model.model_fields[name].alias or name]["description"] = text
        return result


def _attribute_docstrings(model: type[BaseModel]) -> dict[str, str]:
    """Return the docstring of each field, including inherited fields."""
    docstrings: dict[str, str] = {}
    for owner in reversed(model.__mro__[: model.__mro__.index(BaseModel)]):
        source = ast.parse(textwrap.dedent(inspect.getsource(owner)))
        (class_node,) = (node for node in source.body if isinstance(node, ast.ClassDef))
        for field, statement in itertools.pairwise(class_node.body):
            match field, statement:
                case (
                    ast.AnnAssign(target=ast.Name(id=name)),
                    ast.Expr(value=ast.Constant(value=str(text))),
                ) if name in model.model_fields:
                    docstrings[name] = inspect.cleandoc(text)
    return docstrings


class SchemaError(ValueError):
    """A model has no structural schema; the message has the path and the remedy."""


def structural(node: Schema, definitions: Mapping[str, Schema], path: str = "") -> Schema:
    """Return the structural form of one JSON schema node.

    Raises:
        SchemaError: the node has no structural form.
    """
    node = _resolve(node, definitions, path)
    schema: Schema = {}
    for key, value in node.items():
        if key in _STRUCTURAL_KEYS:
            schema[key] = value
        elif key == "properties":
            schema[key] = {
                name: structural(child, definitions, f"{path}.{name}")
                for name, child in value.items()
            }
        elif key == "items":
            schema[key] = structural(value, definitions, f"{path}[]")
        elif key == "additionalProperties":
            schema.update(_additional(value, definitions, path))
        elif key == "const":
            schema["enum"] = [value]
        elif key != "title":
            raise SchemaError(f"{path}: {key} has no structural form; model it without")
    return _finish(schema, path)


def _resolve(node: Schema, definitions: Mapping[str, Schema], path: str) -> Schema:
    """Return the node with references resolved and ``null`` removed.

    An absent field needs no ``null``: the API server drops nulls of fields that are not nullable.
    """
    visited: set[str] = set()
    while "$ref" in node or "anyOf" in node:
        if "$ref" in node:
            name = node["$ref"].removeprefix("#/$defs/")
            if name in visited or path.count(".") > 32:
                raise SchemaError(f"{path}: {name} contains itself; give it a bounded form")
            visited.add(name)
            inner = definitions[name]
        else:
            choices = [choice for choice in node["anyOf"] if choice != {"type": "null"}]
            if len(choices) != 1:
                raise SchemaError(f"{path}: a choice of types has no structural form; use one type")
            inner = choices[0]
        node = {**inner, **{key: node[key] for key in node if key not in ("$ref", "anyOf")}}
    return node


def _additional(value: Any, definitions: Mapping[str, Schema], path: str) -> Schema:
    if value is False:  # pruning drops unknown fields, and clients warn about them
        return {}
    if value is True:
        return {"x-kubernetes-preserve-unknown-fields": True}
    return {"additionalProperties": structural(value, definitions, f"{path}[*]")}


def _finish(schema: Schema, path: str) -> Schema:
    """Return the schema with structural defaults.

    Raises:
        SchemaError: a part has no size limit.
    """
    if "default" in schema:
        schema |= _default(schema.pop("default"), schema)
    if "description" in schema:
        schema["description"] = " ".join(schema["description"].split())
    limit = "maxProperties" if "additionalProperties" in schema else None
    limit = _LIMITS.get(schema.get("type", ""), limit)
    if limit and not schema.keys() & {limit, "enum", "format"}:
        raise SchemaError(f"{path}: no {limit}; bound it with Field(max_length=...)")
    return schema


def _default(value: object, schema: Schema) -> Schema:
    """Return the default of a field; ``{}`` for an object, because its fields have defaults."""
    if "properties" in schema and value is not None:
        return {"default": {}}
    return {} if value in (None, [], {}) else {"default": value}


@cache
def definition(kind: ServedKind) -> Schema:
    """Return the CustomResourceDefinition of ``kind`` as a manifest."""
    source = kind.model.model_json_schema(mode="validation", schema_generator=Documented)
    definitions = source.pop("$defs", {})
    source["properties"] = {**source["properties"], "metadata": {"type": "object"}}
    for name in ("apiVersion", "kind"):  # the API server checks these two itself
        source["properties"][name] = {"type": "string", "maxLength": 253}
    singular = kind.name
    selectable = {"selectableFields": [{"jsonPath": path} for path in kind.selectable]}
    subresources: Schema = {"status": {}} if "status" in kind.model.model_fields else {}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{kind.plural}.{names.GROUP}"},
        "spec": {
            "group": names.GROUP,
            "scope": kind.scope,
            "names": {
                "kind": singular,
                "listKind": f"{singular}List",
                "plural": kind.plural,
                "singular": singular.lower(),
                "shortNames": [names.SHORT_NAMES[kind.name]],
                "categories": ["bireme"],  # never "all": kubectl delete all must not reach jobs
            },
            "versions": [
                {
                    "name": names.VERSION,
                    "served": True,
                    "storage": True,
                    **({"subresources": subresources} if subresources else {}),
                    "additionalPrinterColumns": [c.to_schema() for c in kind.columns],
                    **(selectable if kind.selectable else {}),
                    "schema": {"openAPIV3Schema": structural(source, definitions)},
                }
            ],
        },
    }


@cache
def render() -> Mapping[str, str]:
    """Return the YAML text of every definition by file name."""
    return {
        f"{kind.plural}.yaml": _HEADER
        + yaml.dump(definition(kind), Dumper=_Plain, sort_keys=False, width=100)
        for kind in KINDS
    }


def stale(directory: Path) -> str:
    """Return a unified diff from the files in ``directory`` to the generated ones; "" if equal."""
    generated = dict(render())
    on_disk = {path.name: path.read_text() for path in sorted(directory.glob("*.yaml"))}
    return "".join(
        line
        for name in sorted(generated | on_disk)
        for line in difflib.unified_diff(
            on_disk.get(name, "").splitlines(keepends=True),
            generated.get(name, "").splitlines(keepends=True),
            f"{name} (on disk)",
            f"{name} (from the models)",
        )
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the definitions, or check them; return 1 if they are stale."""
    parser = argparse.ArgumentParser(prog="python -m bireme.kube.crd", description=__doc__)
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument("--write", action="store_true", help="write the YAML files")
    action.add_argument("--check", action="store_true", help="fail when the files are stale")
    parser.add_argument("--directory", type=Path, default=DIRECTORY, help="default: %(default)s")
    options = parser.parse_args(arguments)
    if options.write:
        options.directory.mkdir(parents=True, exist_ok=True)
        for name, text in render().items():
            (options.directory / name).write_text(text)
        return 0
    difference = stale(options.directory)
    if difference:
        sys.stderr.write(difference[:4000])
        sys.stderr.write("\nCRDs are stale: run `python -m bireme.kube.crd --write`\n")
    return 1 if difference else 0


if __name__ == "__main__":
    raise SystemExit(main())
