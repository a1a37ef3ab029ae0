"""``charts/bireme/values.schema.json``: its definitions of what the programs themselves read.

The file is written by hand but for those: settings come from their dataclasses, the default queue
from the CRD, the names of alerts from the rules. So Helm refuses what a program would refuse.
"""

import json
from collections.abc import Iterable, Mapping
from math import inf
from typing import Any, Final, get_type_hints

import yaml
from pydantic.alias_generators import to_camel

from bireme import policy_names
from bireme.core.bounds import Above, Address, Bound, Distinct, OneOf, Pairs, Within, bounds_of
from bireme.core.settings import SchedulingSettings
from bireme.kube.crd import KINDS, Schema, definition
from bireme.program_settings import ProgramSettings
from bireme.settings_source import section_settings
from bireme_extender.settings import ExtenderSettings
from bireme_operator.settings import OperatorSettings
from tools.docs.reference.tables import docstrings
from tools.docs.reference.values import CHART

PATH: Final = CHART / "values.schema.json"
SET_BY_CHART: Final[Mapping[type[Any], tuple[str, ...]]] = {
    OperatorSettings: (
        *("mode", "lease_namespace", "metrics_address"),
        *("progress_url", "progress_address", "progress_ca_config_map"),
    ),
    ExtenderSettings: ("extender_address", "metrics_address"),
}
"""Settings that the chart makes of other values, so that nobody would read them in these."""


def page() -> str:
    """Return the file with its generated definitions as the code has them now."""
    schema = json.loads(PATH.read_text())
    schema["definitions"] |= {
        "scheduling": _settings(SchedulingSettings),
        "program": _settings(ProgramSettings),
        "operatorSettings": _settings(OperatorSettings),
        "queueSpec": _queue_spec(),
        "alert": {"enum": sorted(_alerts())},
    }
    return json.dumps(schema, indent=2) + "\n"


def closed(properties: Mapping[str, Schema], **others: Any) -> Schema:
    """Return the schema of an object that has these properties and no other.

    Helm names the place of an unknown one; ``propertyNames`` lists those that are known.
    """
    return {
        "type": "object",
        **others,
        "properties": properties,
        "propertyNames": {"enum": list(properties)},
        "additionalProperties": False,
    }


# --- settings ---------------------------------------------------------------------------------

_TYPES: Final[Mapping[Any, Schema]] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    tuple[str, ...]: {"type": "array", "items": {"type": "string"}},
}
# A class of one's own, package.module:Class, or a learned policy, checkpoint:FOLDER.
_OWN_POLICY: Final = {"type": "string", "pattern": "^[^:]+:[^:]+$"}
_POLICIES: Final[Mapping[str, Iterable[str]]] = {
    "orderer": policy_names.class_paths("orderer"),
    "placer": policy_names.class_paths("placer"),
    "sizer": ["", *policy_names.class_paths("sizer")],
}


def _settings(cls: type[Any]) -> Schema:
    types, bounds, meanings = get_type_hints(cls), bounds_of(cls), docstrings(cls)
    properties = {}
    for name in section_settings(cls):
        if name in SET_BY_CHART.get(cls, ()):
            continue
        schema = dict(_TYPES[types[name]])
        if name in bounds:
            schema |= _bound(bounds[name])
        if cls is SchedulingSettings and name in _POLICIES:
            names = [*_POLICIES[name]]
            parametrised = f"^({'|'.join(filter(None, names))})\\?[^?]+$"
            schema = {
                "anyOf": [{"enum": names}, {**_TYPES[str], "pattern": parametrised}, _OWN_POLICY]
            }
        meaning = " ".join(meanings[name].split())
        properties[to_camel(name)] = {"description": meaning, **schema}
    return closed(properties)


def _bound(bound: Bound) -> Schema:
    match bound:
        case Within(least, most):
            return {"minimum": least} | ({"maximum": most} if most < inf else {})
        case Above(limit):
            return {"exclusiveMinimum": limit}
        case OneOf(choices):
            return {"enum": [*choices]}
        case Distinct():
            return {"minItems": 1, "uniqueItems": True}
        case Pairs():
            return {"type": ["array", "object"], "additionalProperties": {"type": "number"}}
        case Address():
            raise TypeError("the chart sets every address itself: name it in SET_BY_CHART")


# --- the default queue, and alerts ----------------------------------------------------------------


def _queue_spec() -> Schema:
    (kind,) = (kind for kind in KINDS if kind.name == "Queue")
    version = definition(kind)["spec"]["versions"][0]
    return _without_extensions(version["schema"]["openAPIV3Schema"]["properties"]["spec"])


def _without_extensions(schema: Schema) -> Schema:
    """Return a structural schema as JSON schema, its objects closed.

    Rules in CEL are left to the API server.
    """
    kept = {key: part for key, part in schema.items() if not key.startswith("x-kubernetes-")}
    if schema.get("x-kubernetes-int-or-string"):
        kept["type"] = ["integer", "string"]
    for key in ("items", "additionalProperties"):
        if isinstance(kept.get(key), dict):
            kept[key] = _without_extensions(kept[key])
    if "properties" in kept:
        parts = {name: _without_extensions(part) for name, part in kept.pop("properties").items()}
        return closed(parts, **{key: part for key, part in kept.items() if key != "type"})
    return kept


def _alerts() -> Iterable[str]:
    for path in (CHART / "rules").glob("*.yaml"):
        for group in yaml.safe_load(path.read_text())["groups"]:
            yield from (rule["alert"] for rule in group["rules"])
