"""ResourceQuotas: the charges of the pods of a task, and the usage of each quota.

The rules are those of the API server's quota evaluator for pods (``pkg/quota/v1/evaluator/core``):
a quota counts a pod that all of its scopes match, by requests, limits and number. A dry run
charges nothing, and the API server refuses pods one by one, so half a gang could be created. So the
core checks whole gangs against :class:`bireme.core.quotas.Quota`.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from bireme.core.gangs import Key, Task
from bireme.core.quotas import Quota
from bireme.core.resources import CPU, EPHEMERAL_STORAGE, MEMORY, PODS, Request, add, request_of
from bireme.kube import pods, wire
from bireme.kube.quantities import QuantityError, parse_quantity

_PLAIN = (CPU, MEMORY, EPHEMERAL_STORAGE)
Counted: TypeAlias = tuple[tuple[str, Request], ...]
"""Names of quotas, each with the amounts that one pod uses."""


@dataclass(frozen=True, slots=True)
class PodCharges:
    """Properties of a pod that quotas match, besides its request and its PriorityClass."""

    limits: Request = ()
    has_deadline: bool = False
    """The pod itself sets activeDeadlineSeconds."""
    is_best_effort: bool = False


NO_CHARGES = PodCharges()


def charges_of(spec: wire.V1PodSpec) -> PodCharges:
    """Return the properties of a pod of this spec that quotas match."""
    limits = pods.limits_of_spec(spec)
    resources = {name for name, _ in (*pods.request_of_spec(spec), *limits)}
    return PodCharges(
        limits, spec.active_deadline_seconds is not None, not resources & {CPU, MEMORY}
    )


@dataclass(frozen=True, slots=True)
class _Rules:
    """The part of a quota that determines which pods and amounts it counts."""

    name: str
    hard: dict[str, int]
    scopes: tuple[wire.V1ScopeRequirement, ...]

    def counts(self, class_name: str | None, charges: PodCharges) -> bool:
        return all(_matches(scope, class_name, charges) for scope in self.scopes)


class ResourceQuotas:
    """ResourceQuotas by namespace; ``on_change`` is called after every change."""

    def __init__(self, on_change: Callable[[], None]) -> None:
        self._on_change = on_change
        self._quotas: dict[str, dict[str, tuple[_Rules, dict[str, int]]]] = {}
        # By namespace: the same object until the rules of its quotas change.
        self._rules: dict[str, tuple[_Rules, ...]] = {}

    def put(self, key: Key, quota: wire.V1ResourceQuota) -> None:
        spec, status = quota.spec, quota.status
        rules = _Rules(key[1], _amounts(spec.hard), _scopes(spec))
        self._quotas.setdefault(key[0], {})[key[1]] = rules, _amounts(status.used)
        self._renew(key[0])

    def delete(self, key: Key) -> None:
        self._quotas.get(key[0], {}).pop(key[1], None)
        self._renew(key[0])

    def _renew(self, namespace: str) -> None:
        rules = tuple(rules for rules, _ in self._quotas[namespace].values())
        if not rules:
            del self._quotas[namespace]
            self._rules.pop(namespace, None)
        elif self._rules.get(namespace) != rules:
            self._rules[namespace] = rules
        self._on_change()

    @property
    def namespaces(self) -> Iterable[str]:
        """The namespaces with quotas."""
        return self._quotas

    def rules(self, namespace: str) -> object:
        """Return an object that is replaced when the quotas of ``namespace`` change; None without.

        A change of their usage alone does not replace it.
        """
        return self._rules.get(namespace)

    def charges(
        self, namespace: str, task: Task, class_name: str | None, charges: PodCharges
    ) -> Counted:
        """Return the charges of one pod of ``task`` in the quotas of ``namespace``."""
        rules = self._rules.get(namespace, ())
        if not rules:
            return ()
        amounts = _quota_amounts(task.request, charges.limits)
        return tuple(
            (quota.name, used)
            for quota in rules
            if quota.counts(class_name, charges)
            if (used := request_of({n: a for n, a in amounts.items() if n in quota.hard}))
        )

    def with_promised(self, promised: Mapping[Key, Mapping[str, int]]) -> dict[Key, Quota]:
        """Return all quotas; ``promised`` is the usage of pods that do not exist yet."""
        return {
            (namespace, name): Quota(
                namespace, name, rules.hard, add(used, promised.get((namespace, name), {}))
            )
            for namespace, quotas in self._quotas.items()
            for name, (rules, used) in quotas.items()
        }


def _quota_amounts(request: Request, limits: Request) -> dict[str, int]:
    """Return the amounts of one pod by the resource names of quotas."""
    amounts: dict[str, int] = {}
    for name, amount in request:
        if name == PODS:
            amounts |= {"pods": amount, "count/pods": amount}
            continue
        amounts[f"requests.{name}"] = amount
        if name in _PLAIN or name.startswith("hugepages-"):
            amounts[name] = amount
    return amounts | {f"limits.{name}": amount for name, amount in limits}


def resource_of(name: str) -> str:
    """Return the resource that a quota calls ``name``: cpu for ``requests.cpu``."""
    return name.removeprefix("requests.").removeprefix("limits.")


def _amounts(quantities: wire.Quantities | None) -> dict[str, int]:
    amounts: dict[str, int] = {}
    for name, value in (quantities or {}).items():
        try:
            amounts[name] = parse_quantity(resource_of(name), value, rounding="down")
        except QuantityError:
            continue  # a resource that pods do not use, or an amount above all limits
    return amounts


def _scopes(spec: wire.V1ResourceQuotaSpec) -> tuple[wire.V1ScopeRequirement, ...]:
    # A scope without an operator means Exists.
    plain = (wire.V1ScopeRequirement(name, "Exists") for name in spec.scopes or ())
    more = spec.scope_selector.match_expressions if spec.scope_selector is not None else None
    return (*plain, *(more or ()))


def _matches(scope: wire.V1ScopeRequirement, class_name: str | None, charges: PodCharges) -> bool:
    match scope.scope_name:
        case "Terminating":
            return charges.has_deadline
        case "NotTerminating":
            return not charges.has_deadline
        case "BestEffort":
            return charges.is_best_effort
        case "NotBestEffort":
            return not charges.is_best_effort
        case "PriorityClass":
            values = scope.values or ()
            return {
                "In": class_name in values,
                "NotIn": class_name not in values,
                "Exists": bool(class_name),
                "DoesNotExist": not class_name,
            }.get(scope.operator, False)
    # CrossNamespacePodAffinity: the API server checks it when a pod is created.
    return False
