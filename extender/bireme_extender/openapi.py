"""The OpenAPI document of the extender: the two verbs, which no framework routes, beside the rest.

What a pod may look like is taken from the types that read it, so that the document says neither
more nor less than what is understood.
"""

from typing import Any, Final

import msgspec

from bireme.kube import wire

_REFERENCE: Final = "#/components/schemas/{name}"

_FILTER_SCHEMA: Final = {
    "type": "object",
    "properties": {
        "Nodes": {"type": "null"},
        "NodeNames": {"type": "array", "items": {"type": "string"}},
        "FailedNodes": {"type": "object", "additionalProperties": {"type": "string"}},
        "FailedAndUnresolvableNodes": {
            "type": "object",
            "additionalProperties": {"type": "string"},
        },
        "Error": {"type": "string"},
    },
}
_SCORES_SCHEMA: Final = {
    "type": "array",
    "items": {
        "type": "object",
        "properties": {
            "Host": {"type": "string"},
            "Score": {"type": "integer", "minimum": 0, "maximum": 10},
        },
    },
}


def with_verbs(document: dict[str, Any]) -> dict[str, Any]:
    """``document`` of the other routes, with the verbs in it."""
    (pod,), types = msgspec.json.schema_components((wire.Pod,), ref_template=_REFERENCE)
    args = _args(pod)
    document.setdefault("components", {}).setdefault("schemas", {}).update(types)
    document["paths"] |= {
        "/filter": {"post": _operation("Nodes that may take the pod", args, _FILTER_SCHEMA)},
        "/prioritize": {"post": _operation("Scores of the best nodes", args, _SCORES_SCHEMA)},
    }
    return document


def _args(pod: dict[str, Any]) -> dict[str, Any]:
    names = {"type": ["array", "null"], "items": {"type": "string"}}
    listed = {"type": "object", "properties": {"metadata": {"type": "object"}}}
    items = {"type": ["array", "null"], "items": listed}
    nodes = {
        "type": ["object", "null"],
        "properties": {"items": items},
        "description": "a NodeList; names are wanted",
    }
    either = {"anyOf": [pod, {"type": "null"}], "description": "a Kubernetes Pod"}
    return {
        "type": "object",
        "properties": {"Pod": either, "Nodes": nodes, "NodeNames": names},
    }


def _operation(summary: str, args: dict[str, Any], reply: dict[str, Any]) -> dict[str, Any]:
    def content(schema: dict[str, Any]) -> dict[str, Any]:
        return {"content": {"application/json": {"schema": schema}}}

    return {
        "summary": summary,
        "requestBody": {"required": True, **content(args)},
        "responses": {
            "200": {"description": summary, **content(reply)},
            **{
                code: {"description": text}
                for code, text in (
                    ("400", "The body is no ExtenderArgs"),
                    ("405", "Another method than POST"),
                    ("408", "The body came too slowly"),
                    ("413", "The body is too long"),
                    ("503", "The cache is behind the API server, or too many large bodies at once"),
                )
            },
        },
    }
