"""Draws the script of a seed."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Final

from testbed.controlplane.api import JSON, JSON_PATCH, MERGE_PATCH
from testbed.parity.scripts import objects
from testbed.parity.scripts.changes import CHANGES, OPERATIONS
from testbed.parity.scripts.edits import Edit
from testbed.parity.scripts.faults import BODIES, FAULTS
from testbed.parity.scripts.queries import DELETIONS, READS, WRITES
from testbed.parity.scripts.script import NAMESPACE_PREFIX, SHARED, Script, ScriptStep, path_of
from testbed.scenario.manifests import Manifest

MAX_STEPS: Final = 14
_APPLY: Final = "application/apply-patch+yaml"
_STRATEGIC: Final = "application/strategic-merge-patch+json"
_KINDS: Final = (
    *("TrainingJob",) * 5,
    *("Pod", "Pod", "PodGroup", "Job", "Job", "Queue", "Queue", "PriorityClass"),
)


@dataclass(eq=False)
class _Drawing:
    """The script so far; what it creates may have been refused."""

    seed: int
    chance: Random = field(init=False)
    namespace: str = field(init=False)
    names: dict[str, list[str]] = field(default_factory=dict)
    manifests: dict[tuple[str, str], Manifest] = field(default_factory=dict)
    steps: list[ScriptStep] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.chance = Random(self.seed)  # noqa: S311  # no secrets
        self.namespace = f"{NAMESPACE_PREFIX}{self.seed}"

    @property
    def own_queue(self) -> str:
        """The name of the first queue that the script may create."""
        return f"{self.namespace}-q0"

    # --- names -----------------------------------------------------------------------------------

    def new_name(self, kind: str) -> str:
        """Return a name for another object of a kind; those of shared ones have the seed."""
        names = self.names.setdefault(kind, [])
        letter = kind[0].lower()
        prefix = f"{self.namespace}-{letter}" if kind in SHARED else letter
        if kind == "PriorityClass" and not names:
            name = f"{self.own_queue}-class"
        else:
            name = f"{prefix}{len(names)}"
        names.append(name)
        return name

    def some_name(self, kind: str) -> str:
        """Return the name of an object, which now and then does not exist."""
        names = self.names.get(kind)
        return self.chance.choice(names) if names and self.chance.random() < 0.9 else "nothing"

    def some_kind(self) -> str:
        """Return a kind, mostly one of which the script has objects."""
        if self.names and self.chance.random() < 0.85:
            return self.chance.choice(sorted(self.names))
        return self.chance.choice(_KINDS)

    # --- steps -----------------------------------------------------------------------------------

    def add(self, step: ScriptStep) -> None:
        self.steps.append(step)

    def path(self, kind: str, name: str = "", query: str = "") -> str:
        path = path_of(kind, self.namespace, name)
        return f"{path}?{query}" if query else path

    def create(self) -> None:
        kind = self.chance.choice(_KINDS)
        name = self.new_name(kind)
        manifest = objects.make(kind, self.chance, name, "p0", self.own_queue)
        self.manifests[kind, name] = manifest
        query = self.chance.choice(WRITES) if self.chance.random() < 0.4 else ""
        self.add(
            ScriptStep(f"create {kind} {name}", "POST", self.path(kind, query=query), manifest)
        )

    def create_again(self) -> None:
        if not self.manifests:
            return
        (kind, name), manifest = self.chance.choice(list(self.manifests.items()))
        self.add(ScriptStep(f"create {kind} {name} again", "POST", self.path(kind), manifest))

    def create_faulty(self) -> None:
        kind = self.chance.choice(_KINDS)
        manifest = objects.make(kind, self.chance, f"{self.namespace}-bad", "p0", "default")
        fault = self.chance.choice(FAULTS[kind])
        query = self.chance.choice(WRITES)
        path = self.path(kind, query=query)
        self.add(ScriptStep(f"create {kind} with {fault}", "POST", path, fault.apply(manifest)))

    def create_nonsense(self) -> None:
        kind, text = self.chance.choice(_KINDS), self.chance.choice(BODIES)
        self.add(ScriptStep(f"create {kind} of {text!r}", "POST", self.path(kind), text))

    def create_nowhere(self) -> None:
        kind = self.chance.choice(("TrainingJob", "Pod", "Job"))
        manifest = objects.make(kind, self.chance, "a0", "p0", "default")
        path = path_of(kind, "nowhere")
        self.add(ScriptStep(f"create {kind} in no namespace", "POST", path, manifest))

    def merge(self) -> None:
        self._patch(MERGE_PATCH)

    def merge_strategic(self) -> None:
        self._patch(_STRATEGIC)

    def _patch(self, content_type: str) -> None:
        kind = self.some_kind()
        name, edit = self.some_name(kind), self.chance.choice(CHANGES[kind])
        query = self.chance.choice(WRITES) if self.chance.random() < 0.3 else ""
        manifest = self.manifests.get((kind, name), {})
        try:
            body = _changed_part(edit.apply(manifest), edit.place)
        except (KeyError, IndexError, TypeError):
            body = {"metadata": {"labels": {"team": "b"}}}
        path = self.path(kind, name, query)
        self.add(ScriptStep(f"merge {edit} into {kind} {name}", "PATCH", path, body, content_type))

    def patch_json(self) -> None:
        kind = self.some_kind()
        name, operations = self.some_name(kind), self.chance.choice(OPERATIONS)
        words = f"patch {kind} {name} by {json.dumps(operations)[:70]}"
        self.add(ScriptStep(words, "PATCH", self.path(kind, name), operations, JSON_PATCH))

    def apply(self) -> None:
        kind = self.some_kind()
        name = self.some_name(kind)
        manifest = self.manifests.get((kind, name))
        if manifest is None:
            manifest = objects.make(kind, self.chance, name, "p0", "default")
        words = f"apply {kind} {name}"
        if self.chance.random() < 0.6:
            edit = self.chance.choice(CHANGES[kind])
            manifest, words = _edited(manifest, edit), f"{words} with {edit}"
        query = self.chance.choice(
            ("fieldManager=alice", "fieldManager=alice", "fieldManager=bob", "")
        )
        if query and self.chance.random() < 0.3:
            query += self.chance.choice(("&force=true", "&dryRun=All", "&fieldValidation=Strict"))
        self.add(ScriptStep(words, "PATCH", self.path(kind, name, query), manifest, _APPLY))

    def replace(self) -> None:
        """Add the replacement of an object by what is stored, with one change."""
        kind = self.some_kind()
        name, edit = self.some_name(kind), self.chance.choice(CHANGES[kind])
        manifest = self.manifests.get((kind, name), {"metadata": {"name": name}})
        try:
            body = _changed_part(edit.apply(manifest), edit.place)
        except (KeyError, IndexError, TypeError):
            body = {}
        path, words = self.path(kind, name), f"replace {kind} {name} with {edit}"
        self.add(ScriptStep(words, "PUT", path, body, JSON, "stored"))

    def replace_blindly(self) -> None:
        """Add a replacement that states no version."""
        kind = self.some_kind()
        name = self.some_name(kind)
        manifest = self.manifests.get((kind, name), {"metadata": {"name": name}})
        self.add(
            ScriptStep(f"replace {kind} {name} blindly", "PUT", self.path(kind, name), manifest)
        )

    def cordon(self) -> None:
        node, value = self.chance.choice(("gpu-00", "gpu-01")), self.chance.choice((True, None))
        body = {"spec": {"unschedulable": value}}
        words = f"{'cordon' if value else 'uncordon'} {node}"
        self.add(ScriptStep(words, "PATCH", self.path("Node", node), body, MERGE_PATCH))

    def delete(self) -> None:
        kind = self.some_kind()
        name, options = self.some_name(kind), self.chance.choice(DELETIONS)
        words = f"delete {kind} {name} with {options}"
        self.add(ScriptStep(words, "DELETE", self.path(kind, name), options))

    def delete_member(self) -> None:
        job = self.some_name("TrainingJob")
        path = self.path("Pod", f"{job}-worker-0")
        self.add(
            ScriptStep(f"delete a pod of {job}", "DELETE", path, self.chance.choice((None, {})))
        )

    def evict_member(self) -> None:
        job = self.some_name("TrainingJob")
        name = f"{job}-worker-0"
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
        path = self.path("Pod", f"{name}/eviction")
        self.add(ScriptStep(f"evict a pod of {job}", "POST", path, body))

    def read(self) -> None:
        kind, query = self.some_kind(), self.chance.choice(READS)
        self.add(ScriptStep(f"list {kind} by {query}", "GET", self.path(kind, query=query)))

    def get(self) -> None:
        kind = self.some_kind()
        name = self.chance.choice((self.some_name(kind), "nothing", "Bad_Name"))
        suffix = self.chance.choice(("", "", "", "/status", "/scale", "/nothing"))
        self.add(
            ScriptStep(f"get {kind} {name}{suffix}", "GET", self.path(kind, f"{name}{suffix}"))
        )

    def get_strange(self) -> None:
        path = self.chance.choice(
            (
                "/apis/bireme.dev/v1alpha1/nothing",
                "/apis/bireme.dev/v7/trainingjobs",
                "/apis/nothing.dev/v1/pods",
                "/api/v1/namespaces/nowhere/pods",
                "/api/v1/namespaces/nowhere",
                "/api/v2/pods",
                "/nothing",
                f"/api/v1/namespaces/{self.namespace}/pods/a/b/c",
                f"/api/v1/namespaces/{self.namespace}/nodes",
                "/api/v1/pods/a0",
            )
        )
        method = self.chance.choice(("GET", "GET", "GET", "POST", "PUT", "DELETE", "PATCH"))
        self.add(
            ScriptStep("ask for what is not served", method, path, None if method == "GET" else {})
        )


def _changed_part(manifest: Manifest, place: str) -> Manifest:
    """Return the part of a manifest that holds an edit: lists whole, fields alone."""
    first, *rest = place.split("/")
    value = manifest.get(first)
    if not rest or not isinstance(value, dict):
        return {first: value}
    return {first: _changed_part(value, "/".join(rest))}


def _edited(manifest: Manifest, edit: Edit) -> Manifest:
    try:
        return edit.apply(manifest)
    except (KeyError, IndexError, TypeError):
        return manifest


_ACTIONS: Final[tuple[tuple[Callable[[_Drawing], None], int], ...]] = (
    (_Drawing.create, 24),
    (_Drawing.create_again, 2),
    (_Drawing.create_faulty, 16),
    (_Drawing.create_nonsense, 2),
    (_Drawing.create_nowhere, 1),
    (_Drawing.merge, 12),
    (_Drawing.merge_strategic, 3),
    (_Drawing.patch_json, 4),
    (_Drawing.apply, 8),
    (_Drawing.replace, 6),
    (_Drawing.replace_blindly, 2),
    (_Drawing.cordon, 2),
    (_Drawing.delete, 6),
    (_Drawing.delete_member, 2),
    (_Drawing.evict_member, 1),
    (_Drawing.read, 7),
    (_Drawing.get, 4),
    (_Drawing.get_strange, 2),
)
_DRAWERS: Final = [draw for draw, _ in _ACTIONS]
_WEIGHTS: Final = [weight for _, weight in _ACTIONS]


def draw(seed: int) -> Script:
    """Return the script of a seed, which begins with two objects of some kind."""
    drawing = _Drawing(seed)
    for _ in range(2):
        drawing.create()
    for action in drawing.chance.choices(_DRAWERS, _WEIGHTS, k=MAX_STEPS - 2):
        action(drawing)
    return Script(seed, drawing.namespace, tuple(drawing.steps))
