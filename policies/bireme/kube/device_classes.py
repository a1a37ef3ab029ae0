"""Device classes: the devices of each class, and those that selectors of claims select in it."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from bireme.core.pod_constraints import Requirement, SelectorOperator, SelectorTerm
from bireme.kube import wire
from bireme.kube.device_selectors import Facts, is_true, read_by, selects

CLASS_PREFIX: Final = "deviceclass.resource.kubernetes.io/"
"""Prefix of the implicit extended resource of a device class."""
DeviceId = tuple[str, str, str]
"""Driver, pool and name of a device."""
_MAX_KINDS: Final = 32
"""Kinds of devices that a selector can distinguish by the attributes that it reads."""
_MAX_TEXTS: Final = 256
"""Selectors whose attributes of a slice are cached."""


@dataclass(frozen=True, slots=True)
class ClassDevices:
    """The devices that match some selectors; ``reason`` says why they are not planned."""

    nodes: Mapping[DeviceId, str]
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Selection:
    """The devices of a class that some selectors select.

    Attributes:
        whole: Matches the nodes on which they select all devices.
        in_part: Number of selected devices on nodes where they select only some.
        is_known: False if a selector cannot be evaluated for some device.
    """

    whole: tuple[SelectorTerm, ...] = ()
    in_part: Mapping[str, int] = field(default_factory=dict)
    is_known: bool = True


@dataclass(slots=True)
class DeviceClasses:
    """Cache of slices, classes and taint rules, and of the devices that match selectors.

    Attributes:
        facts: Attributes that selectors in claims read of the devices of each slice.
    """

    slices: dict[str, wire.V1ResourceSliceSpec] = field(default_factory=dict)
    classes: dict[str, wire.V1DeviceClassSpec] = field(default_factory=dict)
    rules: dict[str, wire.V1DeviceTaintRuleSpec] = field(default_factory=dict)
    facts: dict[str, dict[str, tuple[Facts, ...]]] = field(default_factory=dict)
    _matched: dict[tuple[str, ...], ClassDevices] = field(default_factory=dict)
    """By selectors; this and the next three are valid until slices, classes or rules change."""
    _devices: dict[str, ClassDevices] = field(default_factory=dict)
    _resources: dict[str, str] | None = None
    _selected: dict[tuple[str, tuple[str, ...]], Selection] = field(default_factory=dict)
    """By class and selectors."""

    def clear(self) -> None:
        """Forget all that follows from slices, classes and rules: one of them has changed."""
        self._matched, self._devices, self._resources = {}, {}, None
        self._selected.clear()

    def selection(self, name: str, texts: tuple[str, ...]) -> Selection:
        """Return the devices of class ``name`` that the selectors ``texts`` select."""
        if (name, texts) not in self._selected:
            self._selected[name, texts] = self._select(name, texts)
        return self._selected[name, texts]

    def resources(self) -> dict[str, str]:
        """Return the resource of each class; classes with the same selectors share one."""
        if self._resources is None:
            self._resources = {}
            by_selectors: dict[frozenset[str], list[str]] = {}
            for name in sorted(self.classes):
                by_selectors.setdefault(frozenset(self.expressions(name)), []).append(name)
            for names in by_selectors.values():
                resource_of = {name: self.classes[name].extended_resource_name for name in names}
                explicit = sorted({resource for resource in resource_of.values() if resource})
                shared = explicit[0] if explicit else f"{CLASS_PREFIX}{names[0]}"
                for name in names:
                    self._resources[name] = resource_of[name] or shared
        return self._resources

    def by_resource(self) -> dict[str, str]:
        """Return a class of each resource."""
        return {resource: name for name, resource in self.resources().items()}

    def _select(self, name: str, texts: tuple[str, ...]) -> Selection:
        node_of = self.of_class(name).nodes
        kinds: dict[str, set[tuple[str, Facts]]] = {text: set() for text in texts}
        all_of: Counter[str] = Counter()
        selected: Counter[str] = Counter()
        for slice_name, spec in self._whole_pools():
            facts = [self._facts_of(slice_name, spec, text) for text in texts]
            for number, device in enumerate(spec.devices or ()):
                node = node_of.get((spec.driver, spec.pool.name, device.name))
                if node is None:
                    continue
                all_of[node] += 1
                is_selected = True
                # As in kube-scheduler: the first false selector ends the evaluation.
                for text, of_slice in zip(texts, facts, strict=True):
                    kinds[text].add((spec.driver, of_slice[number]))
                    if len(kinds[text]) > _MAX_KINDS:
                        return Selection(is_known=False)
                    answer = is_true(text, spec.driver, of_slice[number])
                    if answer is None:
                        return Selection(is_known=False)
                    is_selected = is_selected and answer
                    if not is_selected:
                        break
                selected[node] += is_selected
        whole = tuple(sorted(n for n, number in selected.items() if 0 < number == all_of[n]))
        inside = Requirement("metadata.name", SelectorOperator.IN, whole)
        in_part = {n: number for n, number in sorted(selected.items()) if 0 < number < all_of[n]}
        return Selection((SelectorTerm(names=(inside,)),), in_part)

    def _facts_of(
        self, slice_name: str, spec: wire.V1ResourceSliceSpec, text: str
    ) -> tuple[Facts, ...]:
        """Return the attributes that ``text`` reads of each device of a slice."""
        cached = self.facts.setdefault(slice_name, {})
        if text not in cached:
            if len(cached) >= _MAX_TEXTS:
                cached.clear()
            cached[text] = tuple(
                read_by(text, spec.driver, device) for device in spec.devices or ()
            )
        return cached[text]

    def expressions(self, name: str) -> tuple[str, ...]:
        return texts_of(self.classes[name].selectors or ())

    def of_class(self, name: str) -> ClassDevices:
        """Return the devices of a class; with a reason if another class has some of them too."""
        cached = self._devices.get(name)
        if cached is None:
            cached = self._devices[name] = self._devices_of(name)
        return cached

    def _devices_of(self, name: str) -> ClassDevices:
        devices = self._matching(self.expressions(name))
        if devices.reason:
            return replace(devices, reason=f"devices of class {name}, {devices.reason}")
        resource = self.resources()
        for other in self.classes:
            is_alike = set(self.expressions(other)) == set(self.expressions(name))
            if is_alike and resource[other] == resource[name]:
                continue
            if resource[other] == resource[name]:
                return replace(
                    devices,
                    reason=f"devices of class {name}, whose resource name class {other} has too",
                )
            other_devices = self._matching(self.expressions(other))
            if devices.nodes.keys() & other_devices.nodes.keys():
                return replace(
                    devices,
                    reason=f"devices of class {name}, some of which are of class {other} too",
                )
        return devices

    def _matching(self, expressions: tuple[str, ...]) -> ClassDevices:
        """Return the devices for which all ``expressions`` are true."""
        cached = self._matched.get(expressions)
        if cached is None:
            cached = self._matched[expressions] = self._match(expressions)
        return cached

    def _match(self, expressions: tuple[str, ...]) -> ClassDevices:
        node_of: dict[DeviceId, str] = {}
        reason = ""
        for _, spec in self._whole_pools():
            for device in spec.devices or ():
                answers = [selects(text, spec.driver, device) for text in expressions]
                if None in answers:
                    reason = reason or "whose selectors Bireme cannot evaluate"
                elif all(answers) and not self._is_plain(spec, device):
                    reason = (
                        reason or "some of which are shared, divided, tainted or on several nodes"
                    )
                elif all(answers) and spec.node_name is not None:
                    node_of[spec.driver, spec.pool.name, device.name] = spec.node_name
        return ClassDevices(node_of, reason)

    def _is_plain(self, spec: wire.V1ResourceSliceSpec, device: wire.V1Device) -> bool:
        """Return whether a device belongs to one node and one pod, without further rules."""
        is_odd = (
            spec.node_name is None
            or device.consumes_counters
            or device.taints
            or device.allow_multiple_allocations
            or device.binds_to_node
            or device.binding_conditions
            or device.node_allocatable_resources is not None
        )
        return not is_odd and not any(_taints(rule, spec, device) for rule in self.rules.values())

    def _whole_pools(self) -> Iterator[tuple[str, wire.V1ResourceSliceSpec]]:
        """Yield name and spec of the newest slices of completely published pools."""
        pools: dict[tuple[str, str], list[tuple[str, wire.V1ResourceSliceSpec]]] = {}
        for name, spec in self.slices.items():
            pools.setdefault((spec.driver, spec.pool.name), []).append((name, spec))
        for slices in pools.values():
            newest = max(spec.pool.generation for _, spec in slices)
            current = [(name, spec) for name, spec in slices if spec.pool.generation == newest]
            if len(current) == current[0][1].pool.resource_slice_count:
                yield from current


def _taints(
    rule: wire.V1DeviceTaintRuleSpec, spec: wire.V1ResourceSliceSpec, device: wire.V1Device
) -> bool:
    """Return whether ``rule`` keeps pods from a device."""
    selected = rule.device_selector
    if selected is None or rule.taint.effect not in ("NoSchedule", "NoExecute"):
        return False
    pairs = (
        (selected.driver, spec.driver),
        (selected.pool, spec.pool.name),
        (selected.device, device.name),
    )
    return all(required is None or required == actual for required, actual in pairs)


def texts_of(selectors: Iterable[wire.V1DeviceSelector]) -> tuple[str, ...]:
    return tuple(selector.cel.expression for selector in selectors if selector.cel is not None)
