"""Devices by Dynamic Resource Allocation: what nodes have of each class, and what claims ask.

A device class is an amount that nodes offer, as a resource is: the devices of its slices on a node
that match its selectors, less those that claims have been allocated. Its name there is the extended
resource that it backs, or else the one that Kubernetes gives every class.

Planned are claims that are made for each pod and ask for so many devices of a class, and extended
resources. Selectors in a claim are a demand on the node where they select all or none of the
devices that the class has there, allocated ones included: what is allocated comes free. All else,
and classes that share devices with others, is left to kube-scheduler.

Nothing is watched before a gang names a claim or asks for a resource that no node offers.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeVar

from bireme.core.gangs import (
    Key,
    NodeDemand,
    Requirement,
    SelectorOperator,
    SelectorTerm,
    Task,
)
from bireme.core.nodes import Node
from bireme.core.reasons import Reason
from bireme.core.resources import Request, add, request_of
from bireme.kube import wire
from bireme.kube.device_selectors import Facts, is_short, is_true, read_by, selects
from bireme.kube.volume_objects import PodClaims
from bireme.kube.volumes import Demands, Folded

CLASS_PREFIX: Final = "deviceclass.resource.kubernetes.io/"
"""Prefix of the extended resource that every device class is without a name of its own."""
_K = TypeVar("_K")
_V = TypeVar("_V")
DeviceId = tuple[str, str, str]
"""Driver, pool and name of a device."""
# Selectors in claims are of tenants: one of them must not keep all others waiting for a decision.
_MAX_SELECTORS: Final = 16
"""Different selectors in the templates of a namespace."""
_MAX_KINDS: Final = 32
"""Kinds of devices that a selector tells apart by what it reads of them."""
_TEXTS_KEPT: Final = 256
"""Selectors of which it is kept what they read of a slice."""


@dataclass(frozen=True, slots=True)
class _Allocation:
    """The devices of one claim, and the pod that it is for; empty for none or several."""

    devices: tuple[DeviceId, ...]
    pod: str
    is_extended: bool
    """It was made for a pod that asks for an extended resource, which counts it already."""


@dataclass(frozen=True, slots=True)
class _ClassDevices:
    """The devices that match some selectors; ``left`` says why they are not planned."""

    nodes: Mapping[DeviceId, str]
    left: str = ""


@dataclass(frozen=True, slots=True)
class _Selected:
    """Which devices of a class some selectors select.

    Attributes:
        whole: Matches the nodes all of whose devices they select.
        in_part: How many they select on each node of which they select some.
        is_told: False where it is not known for all devices.
    """

    whole: tuple[SelectorTerm, ...] = ()
    in_part: Mapping[str, int] = field(default_factory=dict)
    is_told: bool = True


@dataclass(slots=True)
class Devices:
    """Cache of slices, classes, templates and claims, and what follows from them.

    ``on_change`` and ``on_wanted`` are called, and the other attributes mean, as in
    :class:`bireme.kube.volumes.Volumes`.
    """

    on_change: Callable[[], None]
    on_wanted: Callable[[], None] = lambda: None
    is_wanted: bool = False
    is_known: bool = False
    revision: int = 0
    offers_revision: int = 0
    slices: dict[str, wire.V1ResourceSliceSpec] = field(default_factory=dict)
    classes: dict[str, wire.V1DeviceClassSpec] = field(default_factory=dict)
    rules: dict[str, wire.V1DeviceTaintRuleSpec] = field(default_factory=dict)
    templates: dict[Key, wire.V1DeviceClaim] = field(default_factory=dict)
    claims: dict[Key, _Allocation] = field(default_factory=dict)
    _matched: dict[tuple[str, ...], _ClassDevices] = field(default_factory=dict)
    """By selectors; like the next two, of the slices and classes as they are."""
    _classes: dict[str, _ClassDevices] = field(default_factory=dict)
    _resources: dict[str, str] | None = None
    _selectors: dict[str, Counter[str]] = field(default_factory=dict)
    """The selectors in the templates of each namespace."""
    _facts: dict[str, dict[str, tuple[Facts, ...]]] = field(default_factory=dict)
    """What selectors in claims read of the devices of each slice."""
    _selected: dict[tuple[str, tuple[str, ...]], "_Selected"] = field(default_factory=dict)
    """By class and selectors; of the slices and classes as they are."""
    _by_plugin: frozenset[str] = frozenset()
    """Names that some node offers without Dynamic Resource Allocation."""

    # --- what is watched ---

    def put_slice(self, key: Key, manifest: wire.V1ResourceSlice) -> None:
        if self.slices.get(key[1]) != manifest.spec:
            self.slices[key[1]] = manifest.spec
            self._facts.pop(key[1], None)
            self._offers_changed()

    def delete_slice(self, key: Key) -> None:
        if self.slices.pop(key[1], None) is not None:
            self._facts.pop(key[1], None)
            self._offers_changed()

    def put_class(self, key: Key, manifest: wire.V1DeviceClass) -> None:
        if self.classes.get(key[1]) != manifest.spec:
            self.classes[key[1]] = manifest.spec
            self._offers_changed()

    def delete_class(self, key: Key) -> None:
        if self.classes.pop(key[1], None) is not None:
            self._offers_changed()

    def put_rule(self, key: Key, manifest: wire.V1DeviceTaintRule) -> None:
        if self.rules.get(key[1]) != manifest.spec:
            self.rules[key[1]] = manifest.spec
            self._offers_changed()

    def delete_rule(self, key: Key) -> None:
        if self.rules.pop(key[1], None) is not None:
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
        for asked in (template.requests if template else None) or ():
            for text in _texts(asked.exactly.selectors or () if asked.exactly else ()):
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
        """Have all this watched from now on."""
        if not self.is_wanted:
            self.is_wanted = True
            self.on_wanted()

    def all_listed(self) -> None:
        """Take note that every collection has been listed."""
        self.is_known = True
        self._offers_changed()

    def _put(self, known: dict[_K, _V], key: _K, facts: _V) -> None:
        if known.get(key) != facts:
            known[key] = facts
            self._changed()

    def _drop(self, known: dict[_K, _V], key: _K) -> None:
        if known.pop(key, None) is not None:
            self._changed()

    def _offers_changed(self) -> None:
        self._matched, self._classes, self._resources = {}, {}, None
        self._selected.clear()
        self.offers_revision += 1
        self._changed()

    def _changed(self) -> None:
        self.revision += 1
        if self.is_known:
            self.on_change()

    # --- what nodes offer, and what is used of it ---

    def resources(self) -> dict[str, str]:
        """Return the resource by which each class is counted: one for classes that select alike."""
        if self._resources is None:
            self._resources = {}
            alike: dict[frozenset[str], list[str]] = {}
            for name in sorted(self.classes):
                alike.setdefault(frozenset(self._expressions(name)), []).append(name)
            for names in alike.values():
                own = {name: self.classes[name].extended_resource_name for name in names}
                given = sorted({each for each in own.values() if each})
                shared = given[0] if given else f"{CLASS_PREFIX}{names[0]}"
                for name in names:
                    self._resources[name] = own[name] or shared
        return self._resources

    def _by_resource(self) -> dict[str, str]:
        """Return a class of each resource."""
        return {resource: name for name, resource in self.resources().items()}

    def offers(self, nodes: Iterable[Node]) -> dict[str, dict[str, int]]:
        """Return the devices of each node by class: node to resource to amount."""
        if not self.is_known:
            return {}
        found: dict[str, Counter[str]] = {}
        names = self._by_resource()
        for resource, name in names.items():
            for where in self._of_class(name).nodes.values():
                found.setdefault(where, Counter())[resource] += 1
        by_plugin = set()
        resources = set(names)
        for node in nodes:
            offered = {r for r in resources if node.allocatable.get(r)}
            by_plugin |= offered
            offer = found.setdefault(node.name, Counter())
            for resource in offered:  # there kube-scheduler counts what the device plug-in offers
                del offer[resource]
            for resource in resources - offered:  # every node is known to offer none
                offer.setdefault(resource, 0)
        self._by_plugin = frozenset(by_plugin)
        return {where: dict(offer) for where, offer in found.items()}

    def usage(self, is_planned: Callable[[Key], bool]) -> Iterator[tuple[str, Request]]:
        """Yield (node, request) of allocated devices.

        Left out are those of pods that count as planned until they are on their node, by
        namespace and name.
        """
        found = {r: self._of_class(name).nodes for r, name in self._by_resource().items()}
        for key, claim in self.claims.items():
            if claim.is_extended or not claim.devices:
                continue
            if claim.pod and is_planned((key[0], claim.pod)):
                continue
            for device in claim.devices:
                for resource, devices in found.items():
                    if device in devices:
                        yield devices[device], ((resource, 1),)

    # --- what a gang's claims ask ---

    def asks(self, tasks: Iterable[Task]) -> bool:
        """Return whether ``tasks`` ask for an extended resource that a class backs."""
        if not self.is_known:
            return False
        names = self.resources().values()
        return any(name in names for task in tasks for name, _ in task.request)

    def fold(self, namespace: str, tasks: Sequence[tuple[Task, PodClaims]]) -> Folded:
        """Return the tasks with what their claims ask of devices added to what they ask."""
        plain = tuple(task for task, _ in tasks)
        if any(used.devices for _, used in tasks):
            self.want()
            if not self.is_known:
                words = "the operator has not read ResourceSlices and what belongs to them yet"
                return Folded(plain, (Reason.CLAIM_NOT_READY, words))
        elif not self.asks(plain):
            return Folded(plain)
        folded, faults = [], []
        left: list[str] = []
        for task, used in tasks:
            found = [self._of_claim(namespace, claim) for claim in used.devices]
            found += [self._of_extended(name) for name, _ in task.request]
            request = dict(task.request)
            demands = dict.fromkeys(task.constraints.demands)
            for each in found:
                request = add(request, each.request)
                demands.update(dict.fromkeys(each.nodes))
                faults.append(each.fault)
                left += each.left
            constraints = replace(task.constraints, demands=tuple(demands))
            folded.append(replace(task, request=request_of(request), constraints=constraints))
        fault = next(filter(None, faults), "")
        return Folded(
            tuple(folded),
            (Reason.CLAIM_NOT_READY, fault) if fault else None,
            tuple(dict.fromkeys(left)),
        )

    def _of_extended(self, name: str) -> Demands:
        """Return what it takes to plan an extended resource, if a class backs it."""
        of_class = self._by_resource().get(name)
        words = self._of_class(of_class).left if of_class is not None else ""
        return Demands(left=(words,)) if words else Demands()

    def _of_claim(self, namespace: str, claim: wire.V1PodResourceClaim) -> Demands:
        """Return what one claim of a pod asks."""
        source = f"resource claim {claim.name}"
        if claim.resource_claim_name is not None:
            named = claim.resource_claim_name
            if (namespace, named) not in self.claims:
                return Demands(f'resourceclaim "{named}" not found')
            return Demands(left=(f"{source}, which is not made for each pod",))
        if claim.resource_claim_template_name is None:
            return Demands(left=(f"{source}, which is not made from a template",))
        template = self.templates.get((namespace, claim.resource_claim_template_name))
        if template is None:
            named = claim.resource_claim_template_name
            return Demands(f'resourceclaimtemplate "{named}" not found')
        if template.constraints:
            return Demands(left=(f"{source}, whose devices must be alike or unlike",))
        request: dict[str, int] = {}
        nodes: list[NodeDemand] = []
        for asked in template.requests or ():
            found = self._of_request(namespace, source, asked)
            if found.fault or found.left:
                return found
            request = add(request, found.request)
            nodes += found.nodes
        return Demands(request=request_of(request), nodes=tuple(nodes))

    def _of_request(self, namespace: str, source: str, asked: wire.V1DeviceRequest) -> Demands:
        exactly = asked.exactly
        if exactly is None:
            return Demands(left=(f"{source}, which has alternatives",))
        name = exactly.device_class_name
        if name not in self.classes:
            return Demands(f"{source}: device class {name} does not exist")
        odd = exactly.capacity is not None or bool(exactly.derived_attributes)
        if exactly.allocation_mode not in (None, "ExactCount") or exactly.admin_access or odd:
            return Demands(left=(f"{source}, which asks for more than so many devices",))
        matched = self._of_class(name)
        if matched.left:
            return Demands(left=(matched.left,))
        resource, count = self.resources()[name], exactly.count or 1
        if resource in self._by_plugin:
            words = f"{source}, for {resource}, which some nodes offer without claims"
            return Demands(left=(words,))
        own = self._expressions(name)
        texts = tuple(text for text in _texts(exactly.selectors or ()) if text not in own)
        nodes: tuple[NodeDemand, ...] = ()
        if texts:
            selected = self._of_selectors(namespace, name, texts)
            if selected is None:
                return Demands(left=(f"{source}, whose selectors cannot be told here",))
            for node, number in selected.in_part.items():
                if number >= count:
                    words = f"{source}, which selects some devices of node {node} and not others"
                    return Demands(left=(words,))
            nodes = (NodeDemand(f"devices of class {name} for {source}", selected.whole),)
        return Demands(request=((resource, count),), nodes=nodes)

    def _of_selectors(
        self, namespace: str, name: str, texts: tuple[str, ...]
    ) -> "_Selected | None":
        """Return what selectors of a claim select of a class; None where that cannot be told."""
        is_much = len(self._selectors.get(namespace, ())) > _MAX_SELECTORS
        if is_much or not all(map(is_short, texts)):
            return None
        if (name, texts) not in self._selected:
            self._selected[name, texts] = self._select(name, texts)
        found = self._selected[name, texts]
        return found if found.is_told else None

    def _select(self, name: str, texts: tuple[str, ...]) -> "_Selected":
        own = self._of_class(name).nodes
        kinds: dict[str, set[tuple[str, Facts]]] = {text: set() for text in texts}
        all_of: Counter[str] = Counter()
        selected: Counter[str] = Counter()
        for at_slice, at in self._whole_pools():
            facts = [self._facts_of(at_slice, at, text) for text in texts]
            for number, device in enumerate(at.devices or ()):
                node = own.get((at.driver, at.pool.name, device.name))
                if node is None:
                    continue
                all_of[node] += 1
                is_selected = True
                # As in kube-scheduler: the first that is false ends it.
                for text, of_slice in zip(texts, facts, strict=True):
                    kinds[text].add((at.driver, of_slice[number]))
                    if len(kinds[text]) > _MAX_KINDS:
                        return _Selected(is_told=False)
                    answer = is_true(text, at.driver, of_slice[number])
                    if answer is None:
                        return _Selected(is_told=False)
                    is_selected = is_selected and answer
                    if not is_selected:
                        break
                selected[node] += is_selected
        whole = tuple(sorted(n for n, number in selected.items() if 0 < number == all_of[n]))
        inside = Requirement("metadata.name", SelectorOperator.IN, whole)
        in_part = {n: number for n, number in sorted(selected.items()) if 0 < number < all_of[n]}
        return _Selected((SelectorTerm(names=(inside,)),), in_part)

    def _facts_of(
        self, at_slice: str, at: wire.V1ResourceSliceSpec, text: str
    ) -> tuple[Facts, ...]:
        """Return what ``text`` reads of each device of a slice."""
        known = self._facts.setdefault(at_slice, {})
        if text not in known:
            if len(known) >= _TEXTS_KEPT:
                known.clear()
            known[text] = tuple(read_by(text, at.driver, device) for device in at.devices or ())
        return known[text]

    # --- which devices a class has ---

    def _expressions(self, name: str) -> tuple[str, ...]:
        return _texts(self.classes[name].selectors or ())

    def _of_class(self, name: str) -> _ClassDevices:
        """Return the devices of a class; not planned where they are another class's too."""
        known = self._classes.get(name)
        if known is None:
            known = self._classes[name] = self._apart(name)
        return known

    def _apart(self, name: str) -> _ClassDevices:
        own = self._matching(self._expressions(name))
        if own.left:
            return replace(own, left=f"devices of class {name}, {own.left}")
        resource = self.resources()
        for other in self.classes:
            is_alike = set(self._expressions(other)) == set(self._expressions(name))
            if is_alike and resource[other] == resource[name]:
                continue
            if resource[other] == resource[name]:
                return replace(own, left=f"devices of class {name}, which {other} names alike")
            theirs = self._matching(self._expressions(other))
            if own.nodes.keys() & theirs.nodes.keys():
                return replace(
                    own, left=f"devices of class {name}, some of which are of class {other} too"
                )
        return own

    def _matching(self, expressions: tuple[str, ...]) -> _ClassDevices:
        """Return the devices of which all ``expressions`` are true."""
        known = self._matched.get(expressions)
        if known is None:
            known = self._matched[expressions] = self._match(expressions)
        return known

    def _match(self, expressions: tuple[str, ...]) -> _ClassDevices:
        found: dict[DeviceId, str] = {}
        left = ""
        for _, at in self._whole_pools():
            for device in at.devices or ():
                answers = [selects(text, at.driver, device) for text in expressions]
                if None in answers:
                    left = left or "whose selectors cannot be told here"
                elif all(answers) and not self._is_plain(at, device):
                    left = left or "some of which are shared, divided, tainted or of several nodes"
                elif all(answers) and at.node_name is not None:
                    found[at.driver, at.pool.name, device.name] = at.node_name
        return _ClassDevices(found, left)

    def _is_plain(self, at: wire.V1ResourceSliceSpec, device: wire.V1Device) -> bool:
        """Return whether a pod of one node has the device to itself, without further rules."""
        is_odd = (
            at.node_name is None
            or device.consumes_counters
            or device.taints
            or device.allow_multiple_allocations
            or device.binds_to_node
            or device.binding_conditions
            or device.node_allocatable_resources is not None
        )
        return not is_odd and not any(_taints(rule, at, device) for rule in self.rules.values())

    def _whole_pools(self) -> Iterator[tuple[str, wire.V1ResourceSliceSpec]]:
        """Yield the newest slices of the pools of which all have been published, by name."""
        pools: dict[tuple[str, str], list[tuple[str, wire.V1ResourceSliceSpec]]] = {}
        for name, each in self.slices.items():
            pools.setdefault((each.driver, each.pool.name), []).append((name, each))
        for some in pools.values():
            newest = max(each.pool.generation for _, each in some)
            current = [(name, each) for name, each in some if each.pool.generation == newest]
            if len(current) == current[0][1].pool.resource_slice_count:
                yield from current


def _taints(
    rule: wire.V1DeviceTaintRuleSpec, at: wire.V1ResourceSliceSpec, device: wire.V1Device
) -> bool:
    """Return whether ``rule`` keeps pods from a device."""
    selected = rule.device_selector
    if selected is None or rule.taint.effect not in ("NoSchedule", "NoExecute"):
        return False
    pairs = (
        (selected.driver, at.driver),
        (selected.pool, at.pool.name),
        (selected.device, device.name),
    )
    return all(wanted is None or wanted == own for wanted, own in pairs)


def _texts(selectors: Iterable[wire.V1DeviceSelector]) -> tuple[str, ...]:
    return tuple(each.cel.expression for each in selectors if each.cel is not None)
