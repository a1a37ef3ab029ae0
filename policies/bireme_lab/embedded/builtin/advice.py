"""Warnings of the API server about objects that it takes: values with surprising effects."""

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from bireme_lab.embedded.api import kinds
from bireme_lab.embedded.api.errors import Object

_LABEL_WORDS: Final = (
    "which can result in surprising behavior; a DNS label is recommended: [must not contain dots]"
)


def _of_pod(obj: Object) -> Iterator[str]:
    if "." in _name(obj):
        yield f"metadata.name: this is used in the Pod's hostname, {_LABEL_WORDS}"


def _of_job(obj: Object) -> Iterator[str]:
    if "." in _name(obj):
        yield f"metadata.name: this is used in Pod names and hostnames, {_LABEL_WORDS}"
    template = (obj.get("spec") or {}).get("template") or {}
    grace = (template.get("spec") or {}).get("terminationGracePeriodSeconds")
    if grace is not None and grace < 0:
        place = "spec.template.spec.terminationGracePeriodSeconds"
        yield f"{place}: must be >= 0; negative values are invalid and will be treated as 1"


def _name(obj: Object) -> str:
    return str((obj.get("metadata") or {}).get("name") or "")


ADVICE: Final[Mapping[str, Callable[[Object], Iterator[str]]]] = {
    kinds.PODS: _of_pod,
    kinds.JOBS: _of_job,
}
"""By resource path, the warnings about a new object."""
