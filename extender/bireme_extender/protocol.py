"""The extender protocol of kube-scheduler: decode its requests, encode the replies.

The Go types carry no JSON tags, so keys are PascalCase. Four properties of the protocol shape this
module: a list may be null; a scheduler without ``nodeCacheCapable`` sends whole nodes instead of
names; a reply may name only nodes of the request; a score must be a JSON integer, because ``7.0``
makes the scheduler drop the whole reply silently.
"""

from typing import Final

import msgspec

from bireme.kube import envelopes, wire

# Raised by decode.
MALFORMED: Final = envelopes.UNDECODABLE

# Up to this number of nodes, each gets the reason of a refusal; otherwise only the first does. A
# node outside of the reply is unresolvable too, and long texts slow the scheduler down.
REASONED_NODES: Final = 16


_encode = msgspec.json.Encoder().encode
_names_decoder = msgspec.json.Decoder(list[str])
_NULL: Final = msgspec.Raw(b"null")


class NodeName(msgspec.Struct, gc=False):
    name: str = ""


class NamedNode(msgspec.Struct, gc=False):
    metadata: NodeName = msgspec.field(default_factory=NodeName)


class NodeList(msgspec.Struct):
    items: list[NamedNode] | None = None


class ExtenderArgs(msgspec.Struct, rename="pascal"):
    """The body of a filter or prioritize request."""

    pod: wire.V1Pod | None = None
    nodes: NodeList | None = None
    # The names stay undecoded: for a planned pod only one of them matters, and decoding 5000 takes
    # longer than everything else together. A plain default would have no form in the JSON schema.
    node_names: msgspec.Raw = msgspec.field(default_factory=lambda: _NULL)

    @property
    def has_names(self) -> bool:
        """True if the request has names; null counts as none."""
        return self.node_names != _NULL

    @property
    def has_only_nodes(self) -> bool:
        """True if whole nodes were sent instead of names: the scheduler would ignore names."""
        return self.nodes is not None and not self.has_names

    def asks_about(self, node: str) -> bool:
        """Return whether ``node`` is among the names; node names need no escaping in JSON."""
        if self.has_names:
            return _encode(node) in bytes(self.node_names)
        return node in self.candidates

    @property
    def candidates(self) -> list[str]:
        """The names of the candidate nodes, possibly with duplicates; ``NodeNames`` comes first.

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


def decode(body: bytes | memoryview) -> ExtenderArgs:
    """Return the request in ``body``.

    Raises:
        one of MALFORMED: it is no JSON, or a field has the wrong type.
    """
    return _decoder.decode(body)


def encode_list(names: list[str]) -> bytes:
    """Encode names of nodes as a list, as the scheduler's encoder does."""
    return _encode(names)


def encode_passed(names: bytes) -> bytes:
    """Encode a filter reply that passes the encoded list ``names``."""
    return _REPLY % (names, b"{}")


def encode_refusal(candidates: list[str], reason: str) -> bytes:
    """Encode a filter reply that passes no node.

    The nodes are "unresolvable": evicting pods would not help, so the scheduler must not try.
    """
    with_reason = candidates if len(candidates) <= REASONED_NODES else candidates[:1]
    return _REPLY % (b"[]", _encode(dict.fromkeys(with_reason, reason)))


def encode_scores(scores: list[tuple[str, int]]) -> bytes:
    """Encode a prioritize reply: an array of host and integer score; absent hosts get nothing."""
    return _encode([{"Host": host, "Score": score} for host, score in scores])
