"""A script: requests in their order, with all that they need to be sent to any cluster."""

from dataclasses import dataclass
from typing import Any, Final, Literal

from testbed.controlplane.api import JSON

BIREME: Final = "/apis/bireme.dev/v1alpha1"
CORE: Final = "/api/v1"
SHARED: Final = {
    "Node": f"{CORE}/nodes",
    "Queue": f"{BIREME}/queues",
    "PriorityClass": "/apis/scheduling.k8s.io/v1/priorityclasses",
    "Namespace": f"{CORE}/namespaces",
}
"""Paths of kinds of the whole cluster."""
OWNED: Final = {
    "TrainingJob": (BIREME, "trainingjobs"),
    "PodGroup": (BIREME, "podgroups"),
    "Job": ("/apis/batch/v1", "jobs"),
    "Pod": (CORE, "pods"),
}
"""Prefixes and plurals of kinds of a namespace."""
DEFAULT_QUEUE: Final = "default"
NAMESPACE_PREFIX: Final = "parity-"


@dataclass(frozen=True, slots=True)
class ScriptStep:
    """One request.

    Attributes:
        words: The subject of the step, for its reader.
        body: A value to send as JSON; text is sent as it is, and None is no body.
        basis: ``stored`` merges the body into the object as it is stored before it is sent.
    """

    words: str
    method: str
    path: str
    body: Any = None
    content_type: str = JSON
    basis: Literal["", "stored"] = ""

    def __str__(self) -> str:
        return f"{self.words}: {self.method} {self.path}"


@dataclass(frozen=True, slots=True)
class Script:
    """The steps of one seed."""

    seed: int
    namespace: str
    steps: tuple[ScriptStep, ...]


def path_of(kind: str, namespace: str, name: str = "") -> str:
    """Return the path of an object, or of all objects of a kind that a script may see."""
    if kind in SHARED:
        base = SHARED[kind]
    else:
        prefix, plural = OWNED[kind]
        base = f"{prefix}/namespaces/{namespace}/{plural}"
    return f"{base}/{name}" if name else base
