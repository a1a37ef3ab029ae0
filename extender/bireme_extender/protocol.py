"""The extender protocol on the wire: what kube-scheduler asks and how it wants to be answered.

The Go types carry no JSON tags, so keys are PascalCase. Traps that shaped this module: a list may
be null; whole nodes instead of names come from a scheduler without ``nodeCacheCapable``; a reply
may only name nodes that were asked about; a score must be a JSON integer, because ``7.0`` makes
the scheduler drop the whole reply without a word.
"""

from typing import Final

import msgspec

from bireme.kube import wire
from bireme.kube.wire import UNDECODABLE

__all__ = ["MALFORMED", "ExtenderArgs", "decode", "encode_names", "encode_refusal", "encode_scores"]

MALFORMED: Final = UNDECODABLE
"""What :func:`decode` raises."""

REASONED_NODES: Final = 16
"""Up to so many nodes each get the reason of a refusal; beyond, only the first does. Nodes that a
reply leaves out count as unresolvable all the same, and texts are what costs the scheduler."""


_encode = msgspec.json.Encoder().encode
_names_decoder = msgspec.json.Decoder(list[str])
_NULL: Final = msgspec.Raw(b"null")


class _NodeMeta(msgspec.Struct, gc=False):
    name: str = ""


class _NamedNode(msgspec.Struct, gc=False):
    metadata: _NodeMeta = msgspec.field(default_factory=_NodeMeta)


class _NodeList(msgspec.Struct):
    items: list[_NamedNode] | None = None


class ExtenderArgs(msgspec.Struct, rename="pascal"):
    """The body of a filter or prioritize request.

    The names stay undecoded: for a planned pod only one of them matters, and decoding 5000 takes
    longer than everything else together.
    """

    pod: wire.V1Pod | None = None
    nodes: _NodeList | None = None
    node_names: msgspec.Raw = _NULL

    @property
    def has_names(self) -> bool:
        """Whether names came at all; null counts as none."""
        return bytes(self.node_names) != b"null"

    @property
    def has_only_nodes(self) -> bool:
        """Whether whole nodes came instead of names: the scheduler will read no names back."""
        return self.nodes is not None and not self.has_names

    def asks_about(self, node: str) -> bool:
        """Whether ``node`` is among the names; node names need no escaping in JSON."""
        if self.has_names:
            return _encode(node) in bytes(self.node_names)
        return node in self.asked

    @property
    def asked(self) -> list[str]:
        """The names asked about, possibly with duplicates; of both lists, ``NodeNames`` counts.

        Raises:
            one of MALFORMED: the names are no list of texts.
        """
        if self.has_names:
            return _names_decoder.decode(self.node_names)
        items = self.nodes.items if self.nodes is not None else None
        return [node.metadata.name for node in items or ()]


_decoder = msgspec.json.Decoder(ExtenderArgs)

_REPLY: Final = (
    b'{"Nodes":null,"NodeNames":%b,"FailedNodes":{},"FailedAndUnresolvableNodes":%b,"Error":""}'
)


def decode(body: bytes) -> ExtenderArgs:
    """The request in ``body``.

    Raises:
        one of MALFORMED: it is no JSON, or a field has a type that no request has.
    """
    return _decoder.decode(body)


def encode_names(names: list[str]) -> bytes:
    """A filter reply that lets ``names`` pass."""
    return _REPLY % (_encode(names), b"{}")


def encode_refusal(asked: list[str], reason: str) -> bytes:
    """A filter reply that lets nothing pass.

    The nodes are "unresolvable": evicting pods would not help, so the scheduler must not try.
    """
    told = asked if len(asked) <= REASONED_NODES else asked[:1]
    return _REPLY % (b"[]", _encode(dict.fromkeys(told, reason)))


def encode_scores(scores: list[tuple[str, int]]) -> bytes:
    """A prioritize reply: a bare array of host and integer score; absent hosts get nothing."""
    return _encode([{"Host": host, "Score": score} for host, score in scores])
