"""Devices of Dynamic Resource Allocation: the devices of nodes by class, and demands of claims.

A device class is planned like a resource of nodes. Its amount is the number of devices on the node
that match the class, less allocated devices. Its name is the extended resource that the class
backs, or else the implicit one that Kubernetes gives every class.

Bireme plans extended resources, and claims from a template for a number of devices of a class.
Selectors in a claim become a demand on the node, if they select all or none of the devices of the
class there. Allocated devices count too, because they become free. Other claims, and classes that
share devices with other classes, are left to kube-scheduler.

Nothing is watched before a gang names a claim or requests a resource that no node offers.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeVar

from bireme.core.gangs import Key, Task
from bireme.core.nodes import Node
from bireme.core.pod_constraints import NodeDemand
from bireme.core.reasons import Reason
from bireme.core.resources import Request, add, request_of
from bireme.kube import wire
from bireme.kube.claim_demands import Demands, ResolvedClaims
from bireme.kube.device_classes import DeviceClasses, DeviceId, Selection, texts_of
from bireme.kube.device_selectors import is_short
from bireme.kube.volume_objects import PodClaims

_K = TypeVar("_K")
_V = TypeVar("_V")
# Tenants write the selectors in claims: bound their cost, so that one tenant does not delay the
# decisions for all others.
_MAX_SELECTORS: Final = 16
"""Different selectors in the templates of a namespace."""


@dataclass(frozen=True, slots=True)
class _Allocation:
    """The devices of one claim, and its pod; ``pod`` is empty for none or several."""

    devices: tuple[DeviceId, ...]
    pod: str
    is_extended: bool
    """Created for a pod with an extended resource, whose request counts the devices already."""


@dataclass(slots=True)
class Devices:
    """Cache of slices, classes, templates and claims; it resolves device claims to demands.

    The first six attributes are as in :class:`bireme.kube.volumes.Volumes`.
    """

    on_change: Callable[[], None]
    on_wanted: Callable[[], None] = lambda: None
    is_wanted: bool = False
    is_known: bool = False
    revision: int = 0
    offers_revision: int = 0
    templates: dict[Key, wire.V1DeviceClaim] = field(default_factory=dict)
    claims: dict[Key, _Allocation] = field(default_factory=dict)
    _classes: DeviceClasses = field(default_factory=DeviceClasses)
    _selectors: dict[str, Counter[str]] = field(default_factory=dict)
    """The selectors in the templates of each namespace."""
    _by_plugin: frozenset[str] = frozenset()
    """Resources that some node offers by a device plug-in."""

    # --- watched objects ---

    def put_slice(self, key: Key, manifest: wire.V1ResourceSlice) -> None:
        if self._classes.slices.get(key[1]) != manifest.spec:
            self._classes.slices[key[1]] = manifest.spec
            self._classes.facts.pop(key[1], None)
            self._offers_changed()

    def delete_slice(self, key: Key) -> None:
        if self._classes.slices.pop(key[1], None) is not None:
            self._classes.facts.pop(key[1], None)
            self._offers_changed()

    def put_class(self, key: Key, manifest: wire.V1DeviceClass) -> None:
        if self._classes.classes.get(key[1]) != manifest.spec:
            self._classes.classes[key[1]] = manifest.spec
            self._offers_changed()

    def delete_class(self, key: Key) -> None:
        if self._classes.classes.pop(key[1], None) is not None:
            self._offers_changed()

    def put_rule(self, key: Key, manifest: wire.V1DeviceTaintRule) -> None:
        if self._classes.rules.get(key[1]) != manifest.spec:
            self._classes.rules[key[1]] = manifest.spec
            self._offers_changed()

    def delete_rule(self, key: Key) -> None:
        if self._classes.rules.pop(key[1], None) is not None:
            self._offers_changed()

    def put_template(self, key: Key, manifest: wire.V1ResourceClaimTemplate) -> None:
        self._count_selectors(key)
        self._put(self.templates, key, manifest.spec.spec.devices)
        self._count_selectors(key, 1)

    def delete_template(self, key: Key) -> None:
        self._count_selectors(key)
        self._drop(self.templates, key)

    def _count_selectors(self, key: Key, times: int = -1) -> None:
        template, counted = self.templates.get(key), self._selectors.setdefault(key[0], Counter())
        for request in (template.requests if template else None) or ():
            for text in texts_of(request.exactly.selectors or () if request.exactly else ()):
                counted[text] += times
                if not counted[text]:
                    del counted[text]
        if not counted:
            del self._selectors[key[0]]

    def put_claim(self, key: Key, manifest: wire.V1ResourceClaim) -> None:
        status, notes = manifest.status, manifest.metadata.annotations
        results = (status.allocation.devices.results if status.allocation else None) or ()
        consumers = status.reserved_for or ()
        facts = _Allocation(
            tuple((r.driver, r.pool, r.device) for r in results if not r.admin_access),
            consumers[0].name if len(consumers) == 1 and consumers[0].resource == "pods" else "",
            notes is not None and notes.is_extended == "true",
        )
        self._put(self.claims, key, facts)

    def delete_claim(self, key: Key) -> None:
        self._drop(self.claims, key)

    def want(self) -> None:
        """Start to watch these objects."""
        if not self.is_wanted:
            self.is_wanted = True
            self.on_wanted()

    def all_listed(self) -> None:
        """Record that every collection has been listed."""
        self.is_known = True
        self._offers_changed()

    def _put(self, cache: dict[_K, _V], key: _K, facts: _V) -> None:
        if cache.get(key) != facts:
            cache[key] = facts
            self._notify()

    def _drop(self, cache: dict[_K, _V], key: _K) -> None:
        if cache.pop(key, None) is not None:
            self._notify()

    def _offers_changed(self) -> None:
        self._classes.clear()
        self.offers_revision += 1
        self._notify()

    def _notify(self) -> None:
        self.revision += 1
        if self.is_known:
            self.on_change()

    # --- capacity of nodes and its usage ---

    def offers(self, nodes: Iterable[Node]) -> dict[str, dict[str, int]]:
        """Return the devices of each node by class: node to resource to amount."""
        if not self.is_known:
            return {}
        offers: dict[str, Counter[str]] = {}
        names = self._classes.by_resource()
        for resource, name in names.items():
            for node_name in self._classes.of_class(name).nodes.values():
                offers.setdefault(node_name, Counter())[resource] += 1
        by_plugin = set()
        resources = set(names)
        for node in nodes:
            offered = {r for r in resources if node.allocatable.get(r)}
            by_plugin |= offered
            offer = offers.setdefault(node.name, Counter())
            for resource in offered:  # kube-scheduler counts the device plug-in's amount there
                del offer[resource]
            for resource in resources - offered:  # 0, not unknown
                offer.setdefault(resource, 0)
        self._by_plugin = frozenset(by_plugin)
        return {node_name: dict(offer) for node_name, offer in offers.items()}

    def usage(self, is_planned: Callable[[Key], bool]) -> Iterator[tuple[str, Request]]:
        """Yield (node, request) of allocated devices.

        Devices of pods for which ``is_planned`` (namespace, name) is true are left out.
        """
        nodes_by_resource = {
            r: self._classes.of_class(name).nodes for r, name in self._classes.by_resource().items()
        }
        for key, claim in self.claims.items():
            if claim.is_extended or not claim.devices:
                continue
            if claim.pod and is_planned((key[0], claim.pod)):
                continue
            for device in claim.devices:
                for resource, node_of in nodes_by_resource.items():
                    if device in node_of:
                        yield node_of[device], ((resource, 1),)

    # --- demands of a gang's claims ---

    def asks(self, tasks: Iterable[Task]) -> bool:
        """Return whether ``tasks`` request an extended resource that a class backs."""
        if not self.is_known:
            return False
        names = self._classes.resources().values()
        return any(name in names for task in tasks for name, _ in task.request)

    def fold(self, namespace: str, tasks: Sequence[tuple[Task, PodClaims]]) -> ResolvedClaims:
        """Return the tasks with the demands of their device claims added to their own."""
        plain = tuple(task for task, _ in tasks)
        if any(used.devices for _, used in tasks):
            self.want()
            if not self.is_known:
                message = "the operator has not read ResourceSlices and related objects yet"
                return ResolvedClaims(plain, (Reason.CLAIM_NOT_READY, message))
        elif not self.asks(plain):
            return ResolvedClaims(plain)
        resolved, faults = [], []
        reasons: list[str] = []
        for task, used in tasks:
            parts = [self._of_claim(namespace, claim) for claim in used.devices]
            parts += [self._of_extended(name) for name, _ in task.request]
            request = dict(task.request)
            demands = dict.fromkeys(task.constraints.demands)
            for part in parts:
                request = add(request, part.request)
                demands.update(dict.fromkeys(part.nodes))
                faults.append(part.fault)
                reasons += part.reasons
            constraints = replace(task.constraints, demands=tuple(demands))
            resolved.append(replace(task, request=request_of(request), constraints=constraints))
        fault = next(filter(None, faults), "")
        return ResolvedClaims(
            tuple(resolved),
            (Reason.CLAIM_NOT_READY, fault) if fault else None,
            tuple(dict.fromkeys(reasons)),
        )

    def _of_extended(self, name: str) -> Demands:
        """Return the reason why an extended resource of a class is not planned, if any."""
        of_class = self._classes.by_resource().get(name)
        reason = self._classes.of_class(of_class).reason if of_class is not None else ""
        return Demands(reasons=(reason,)) if reason else Demands()

    def _of_claim(self, namespace: str, claim: wire.V1PodResourceClaim) -> Demands:
        """Return the demands of one claim of a pod."""
        source = f"resource claim {claim.name}"
        if claim.resource_claim_name is not None:
            named = claim.resource_claim_name
            if (namespace, named) not in self.claims:
                return Demands(f'resourceclaim "{named}" not found')
            return Demands(reasons=(f"{source}, which several pods may share",))
        if claim.resource_claim_template_name is None:
            return Demands(reasons=(f"{source}, which is not made from a template",))
        template = self.templates.get((namespace, claim.resource_claim_template_name))
        if template is None:
            named = claim.resource_claim_template_name
            return Demands(f'resourceclaimtemplate "{named}" not found')
        if template.constraints:
            return Demands(reasons=(f"{source}, whose constraints compare devices",))
        request: dict[str, int] = {}
        nodes: list[NodeDemand] = []
        for device_request in template.requests or ():
            demands = self._of_request(namespace, source, device_request)
            if demands.fault or demands.reasons:
                return demands
            request = add(request, demands.request)
            nodes += demands.nodes
        return Demands(request=request_of(request), nodes=tuple(nodes))

    def _of_request(
        self, namespace: str, source: str, device_request: wire.V1DeviceRequest
    ) -> Demands:
        exactly = device_request.exactly
        if exactly is None:
            return Demands(reasons=(f"{source}, which lists alternatives",))
        name = exactly.device_class_name
        if name not in self._classes.classes:
            return Demands(f"{source}: device class {name} does not exist")
        odd = exactly.capacity is not None or bool(exactly.derived_attributes)
        if exactly.allocation_mode not in (None, "ExactCount") or exactly.admin_access or odd:
            return Demands(reasons=(f"{source}, which asks for more than a number of devices",))
        matched = self._classes.of_class(name)
        if matched.reason:
            return Demands(reasons=(matched.reason,))
        resource, count = self._classes.resources()[name], exactly.count or 1
        if resource in self._by_plugin:
            reason = f"{source}, for {resource}, which some nodes offer without claims"
            return Demands(reasons=(reason,))
        class_texts = self._classes.expressions(name)
        texts = tuple(text for text in texts_of(exactly.selectors or ()) if text not in class_texts)
        nodes: tuple[NodeDemand, ...] = ()
        if texts:
            selected = self._of_selectors(namespace, name, texts)
            if selected is None:
                return Demands(reasons=(f"{source}, whose selectors Bireme cannot evaluate",))
            for node, number in selected.in_part.items():
                if number >= count:
                    reason = f"{source}, which selects some devices of node {node} and not others"
                    return Demands(reasons=(reason,))
            nodes = (NodeDemand(f"devices of class {name} for {source}", selected.whole),)
        return Demands(request=((resource, count),), nodes=nodes)

    def _of_selectors(self, namespace: str, name: str, texts: tuple[str, ...]) -> Selection | None:
        """Return the selection of a claim's selectors in a class; None if it is unknown."""
        is_much = len(self._selectors.get(namespace, ())) > _MAX_SELECTORS
        if is_much or not all(map(is_short, texts)):
            return None
        selection = self._classes.selection(name, texts)
        return selection if selection.is_known else None
