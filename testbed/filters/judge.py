"""kube-scheduler's own filter plugins, asked about pods on nodes (``testbed/controlplane/go``)."""

import subprocess
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Self

import msgspec

from testbed.controlplane.binaries import JUDGE, build
from testbed.scenario.manifests import Manifest


class Refusal(msgspec.Struct, frozen=True):
    """What one plugin has against a node."""

    plugin: str
    words: str


class Verdict(msgspec.Struct, frozen=True):
    """The pod with the API server's defaults, and what each node's refusals are; none: taken."""

    pod: Manifest
    refusals: Mapping[str, tuple[Refusal, ...]]


class Answer(msgspec.Struct, frozen=True):
    """What the judge said to one question.

    Attributes:
        plugins: All that can refuse a pod in the default profile, in the order they are asked.
        pods: Those of the cluster, with the API server's defaults.
    """

    plugins: tuple[str, ...] = ()
    pods: tuple[Manifest, ...] = ()
    tried: tuple[Verdict, ...] = ()
    error: str = ""


class Judge:
    """The running program; as a context manager it ends with the block."""

    def __init__(self) -> None:
        program = build(JUDGE) / "judge"
        self._process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.communicate()

    def ask(self, objects: Sequence[Manifest], tried: Sequence[Manifest]) -> Answer:
        """Ask about every pod of ``tried``, each alone, on every node among ``objects``.

        Raises:
            ValueError: an object is none that the API server would take.
        """
        given, taken = self._process.stdin, self._process.stdout
        assert given is not None
        assert taken is not None
        given.write(msgspec.json.encode({"objects": objects, "tried": tried}) + b"\n")
        given.flush()
        answer = msgspec.json.decode(taken.readline(), type=Answer)
        if answer.error:
            raise ValueError(answer.error)
        return answer
