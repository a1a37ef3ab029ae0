"""Plays a script on two clusters at once: each step when both have come to rest after the last."""

import asyncio
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Final

from testbed.parity.comparison import ValueDifference, compare_answers, compare_states
from testbed.parity.played_cluster import PlayedCluster
from testbed.parity.scripts.script import Script, ScriptStep

MAX_REST_SECONDS: Final = 25.0
"""Longest wait for both clusters to come to the same state after a step."""
_READS: Final = ("GET",)


@dataclass(frozen=True, slots=True)
class StepDifferences:
    """The differences after one step of a script."""

    seed: int
    number: int
    step: ScriptStep
    differences: tuple[ValueDifference, ...]

    def __str__(self) -> str:
        lines = (f"    {each}" for each in self.differences)
        return "\n".join((f"seed {self.seed}, step {self.number}, {self.step}", *lines))


@dataclass(eq=False)
class Lockstep:
    """Two clusters that scripts are played on."""

    real: PlayedCluster
    embedded: PlayedCluster
    _differences: list[StepDifferences] = field(default_factory=list)

    @property
    def worlds(self) -> tuple[PlayedCluster, PlayedCluster]:
        return self.real, self.embedded

    async def play(self, script: Script) -> list[StepDifferences]:
        """Return what differs, by step; a difference of states ends the script."""
        self._differences = []
        async with AsyncExitStack() as stack:
            await asyncio.gather(
                *(stack.enter_async_context(world.script(script)) for world in self.worlds)
            )
            for number, step in enumerate(script.steps):
                if not await self._play(script, number, step):
                    break
        return self._differences

    async def await_no_namespaces(self) -> None:
        """Return when the namespaces of all scripts are gone."""
        await asyncio.gather(*(world.await_no_namespaces() for world in self.worlds))

    async def _play(self, script: Script, number: int, step: ScriptStep) -> bool:
        """Return whether both clusters have come to the same state after a step."""
        real, embedded = await asyncio.gather(*(world.play(step) for world in self.worlds))
        differences = compare_answers(real, embedded)
        is_accepted = max(real.status, embedded.status) < HTTPStatus.BAD_REQUEST
        is_write = is_accepted and step.method not in _READS
        of_states = await self._rest(script.namespace) if is_write else []
        if differences or of_states:
            each = StepDifferences(script.seed, number, step, (*differences, *of_states))
            self._differences.append(each)
        return not of_states and (is_accepted or real.status == embedded.status)

    async def _rest(self, namespace: str) -> list[ValueDifference]:
        """Wait until both clusters are at rest in the same state; return what differs then."""
        deadline = asyncio.get_running_loop().time() + MAX_REST_SECONDS
        while True:
            await asyncio.gather(*(world.rest(namespace, deadline) for world in self.worlds))
            differences = compare_states(*(world.state(namespace) for world in self.worlds))
            if not differences or asyncio.get_running_loop().time() > deadline:
                return differences
