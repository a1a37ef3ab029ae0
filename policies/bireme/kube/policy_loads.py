"""Loading what SchedulingPolicies name, beside the event loop and each spec once.

Files are read in a thread, one policy after another. What is loaded stays as it is whatever
becomes of the files; only another spec is loaded anew. What could not be loaded is tried again
after a pause, because a folder may come later than the object that names it.
"""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from bireme.core.errors import told
from bireme.kube.scheduling_policies import PolicyFacts
from bireme.tasks import Tasks

RETRY_SECONDS: Final = 30.0

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Outcome(Generic[T]):
    """What came of loading a policy: ``value``, or the ``fault`` in words."""

    demand: tuple[str, int]
    value: T | None = None
    fault: str = ""


class PolicyLoads(Generic[T]):
    """Outcomes of ``load`` for the policies that are wanted; ``on_done`` follows each new one.

    ``load`` is called in a thread and may raise anything.
    """

    def __init__(
        self, load: Callable[[PolicyFacts], T], on_done: Callable[[PolicyFacts, Outcome[T]], None]
    ) -> None:
        self._load = load
        self._on_done = on_done
        self._wanted: dict[str, PolicyFacts] = {}
        self._outcomes: dict[str, Outcome[T]] = {}
        self._due: set[str] = set()
        self._tasks = Tasks()
        self._retry: asyncio.TimerHandle | None = None

    def want(self, policies: Iterable[PolicyFacts]) -> None:
        """Have these loaded, in this order, and forget all others."""
        self._wanted = {policy.uid: policy for policy in policies}
        self._outcomes = {u: found for u, found in self._outcomes.items() if u in self._wanted}
        self._start()

    def outcome(self, policy: PolicyFacts) -> Outcome[T] | None:
        """What came of this very spec; None while it is being loaded, or is not wanted."""
        found = self._outcomes.get(policy.uid)
        return found if found is not None and found.demand == policy.demand else None

    async def close(self) -> None:
        """Load nothing more."""
        if self._retry is not None:
            self._retry.cancel()
        await self._tasks.close()

    def _start(self) -> None:
        if not self._tasks:
            self._tasks.start(self._run())

    async def _run(self) -> None:
        while policy := self._next():
            self._due.discard(policy.uid)
            outcome = await asyncio.to_thread(self._tried, policy)
            if policy.uid in self._wanted:
                self._outcomes[policy.uid] = outcome
                self._on_done(policy, outcome)
            if outcome.fault:
                self._try_again_later()

    def _next(self) -> PolicyFacts | None:
        wanted = self._wanted.values()
        return next((p for p in wanted if self.outcome(p) is None or p.uid in self._due), None)

    def _tried(self, policy: PolicyFacts) -> Outcome[T]:
        try:
            if policy.fault:
                return Outcome(policy.demand, fault=policy.fault)
            return Outcome(policy.demand, self._load(policy))
        except Exception as error:  # noqa: BLE001  # code of the user's own may raise anything
            return Outcome(policy.demand, fault=told(error))

    def _try_again_later(self) -> None:
        if self._retry is not None:
            self._retry.cancel()
        self._retry = asyncio.get_running_loop().call_later(RETRY_SECONDS, self._again)

    def _again(self) -> None:
        """Until a new outcome is there, the fault stands."""
        self._due = {uid for uid, outcome in self._outcomes.items() if outcome.fault}
        self._start()
