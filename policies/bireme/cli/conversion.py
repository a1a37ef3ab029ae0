"""Parts of every conversion from other schedulers' kinds: notes about fields, new manifests."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partialmethod
from typing import Final

from bireme.cli.arguments import Json
from bireme.core.errors import BiremeError
from bireme.kube import names

# kubectl notes there what was applied, which is an object of another kind.
_OTHER_DOMAINS: Final = ("volcano.sh/", "kueue.x-k8s.io/", "kubectl.kubernetes.io/")


class Effect(StrEnum):
    """The fate of a field."""

    CHANGED = "changed"
    """It has another form, or another meaning."""
    LOST = "lost"
    """Bireme has nothing like it."""
    TO_DO = "to do"
    """A person must act before it works."""


@dataclass(frozen=True, slots=True)
class Note:
    """One remark about one field of one object."""

    subject: str
    field: str
    effect: Effect
    text: str


@dataclass(slots=True)
class Notes:
    """The notes about one object, in the order of its fields."""

    subject: str
    notes: list[Note] = field(default_factory=list)

    def add(self, effect: Effect, path: str, text: str) -> None:
        """Note the ``effect`` on the field at ``path``."""
        self.notes.append(Note(self.subject, path, effect, text))

    changed = partialmethod(add, Effect.CHANGED)
    lost = partialmethod(add, Effect.LOST)
    to_do = partialmethod(add, Effect.TO_DO)

    def lost_of(self, spec: Json, texts: Mapping[str, str]) -> None:
        """Note each field of the object's ``spec`` that ``texts`` names."""
        for key, text in texts.items():
            if spec.get(key):
                self.lost(f"spec.{key}", text)


class ConversionError(BiremeError):
    """A manifest cannot be converted; the message names the object, the field and the remedy."""


def copy_fields(spec: Json, *same: str, **renamed: str) -> Json:
    """Return the fields of ``spec`` that are set; ``renamed`` maps Bireme's names to Volcano's."""
    fields = {**{name: name for name in same}, **renamed}
    return {name: spec[key] for name, key in fields.items() if spec.get(key)}


def manifest(kind: str, metadata: Json, spec: Json) -> Json:
    return {"apiVersion": names.API_VERSION, "kind": kind, "metadata": metadata, "spec": spec}


def join_pod_group(pod: Json, group: str) -> None:
    """Let pods of a template join the PodGroup called ``group``: by label, scheduler and gate."""
    metadata = pod.setdefault("metadata", {})
    metadata["labels"] = {**(metadata.get("labels") or {}), names.POD_GROUP_LABEL: group}
    pod["spec"]["schedulerName"] = names.SCHEDULER_NAME
    gates = pod["spec"].setdefault("schedulingGates", [])
    gates.append({"name": names.PLAN_GATE})


def metadata(document: Json) -> Json:
    """Return name, namespace, and the labels and annotations that no other program owns."""
    metadata = document.get("metadata") or {}
    result: Json = {key: metadata[key] for key in ("name", "namespace") if metadata.get(key)}
    for key in ("labels", "annotations"):
        entries = {
            name: value
            for name, value in (metadata.get(key) or {}).items()
            if not any(domain in name for domain in _OTHER_DOMAINS)
        }
        if entries:
            result[key] = entries
    return result
