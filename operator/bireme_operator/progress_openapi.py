"""The OpenAPI document of the progress endpoint, for clients in other languages and for tests.

It says what is taken and how each refusal looks; docs/progress.md says why.
"""

from importlib.metadata import version
from typing import Any, Final

from bireme.kube.progress_access import path

OPENAPI_PATH: Final = "/openapi.json"

_NUMBER: Final = {"type": ["number", "null"]}
_METRIC: Final = {
    "type": "object",
    "required": ["name", "value"],
    "properties": {
        "name": {"type": "string"},
        "value": {"type": ["string", "number"], "description": "a finite number"},
    },
}
_BODY: Final = {
    "type": "object",
    "required": ["trainerStatus"],
    "properties": {
        "trainerStatus": {
            "type": "object",
            "properties": {
                "progressPercentage": _NUMBER,
                "estimatedRemainingSeconds": _NUMBER,
                "metrics": {"type": ["array", "null"], "maxItems": 64, "items": _METRIC},
            },
        }
    },
}
_REFUSAL: Final = {
    "type": "object",
    "required": ["status", "message"],
    "properties": {"status": {"type": "integer"}, "message": {"type": "string"}},
}
_REFUSALS: Final = {
    "400": "The body is no report, or a number in it is none",
    "401": "No token for this endpoint, or none that the API server accepts",
    "403": "The pod is no live member of the job",
    "404": "No such TrainingJob in the namespace of the pod",
    "408": "The body came too slowly",
    "413": "The body is too large",
    "429": "Too many reports; Retry-After says when",
    "503": "This replica does not lead, or cannot ask the API server",
}


def _json(schema: dict[str, Any]) -> dict[str, Any]:
    return {"content": {"application/json": {"schema": schema}}}


def _named(name: str) -> dict[str, Any]:
    return {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}


_REPORT: Final = {
    "summary": "Say how far a running job is",
    "security": [{"podToken": []}],
    "parameters": [_named("namespace"), _named("name")],
    "requestBody": {"required": True, **_json(_BODY)},
    "responses": {
        "200": {"description": "Taken", **_json({"type": "object"})},
        **{code: {"description": said, **_json(_REFUSAL)} for code, said in _REFUSALS.items()},
    },
}

DOCUMENT: Final[dict[str, Any]] = {
    "openapi": "3.1.0",
    "info": {"title": "Bireme progress endpoint", "version": version("bireme")},
    "components": {
        "securitySchemes": {
            "podToken": {
                "type": "http",
                "scheme": "bearer",
                "description": "the projected ServiceAccount token of a pod of the job",
            }
        }
    },
    "paths": {path(("{namespace}", "{name}")): {"post": _REPORT}},
}
