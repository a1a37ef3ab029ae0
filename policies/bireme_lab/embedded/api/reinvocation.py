"""The second run of mutating admission, for policies that another's change concerns.

Source: ``k8s.io/apiserver/pkg/admission/plugin/policy/mutating/reinvocationcontext.go``.
"""

from dataclasses import dataclass, field
from typing import TypeAlias

from bireme_lab.embedded.api.errors import Object

Invocation: TypeAlias = tuple[str, str, str]
"""Names of policy and binding, and namespace and name of the parameter."""


@dataclass(slots=True)
class Reinvocation:
    """The policies of one request that run once more.

    Attributes:
        is_second: The run is the second one.
        is_due: A policy has changed the object, so that there is a second run.
    """

    is_second: bool = False
    is_due: bool = False
    _eligible: set[Invocation] = field(default_factory=set)
    _chosen: set[Invocation] = field(default_factory=set)
    _last: Object | None = None

    def begin(self, obj: Object) -> None:
        """Begin a run; a change since the last one concerns every eligible policy."""
        if self.is_second and obj != self._last:
            self.require()

    def end(self, obj: Object) -> None:
        self._last = obj

    def may_run(self, invocation: Invocation) -> bool:
        return not self.is_second or invocation in self._chosen

    def make_eligible(self, invocation: Invocation) -> None:
        self._eligible.add(invocation)

    def require(self) -> None:
        """Have every policy that is eligible by now run once more."""
        self._chosen |= self._eligible
        self._eligible = set()
        self.is_due = True
