"""The places that the leader keeps for gangs that wait (:mod:`bireme.cli.leader`)."""

import argparse
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from bireme.cli import leader
from bireme.cli.cluster import Reader

_VERSION: Final = "reservations.bireme.dev/v1"

Kept = Mapping[str, Mapping[str, Mapping[str, int]]]
"""Devices by gang, as ``namespace/name``, by node and by resource."""


class _Reservation(msgspec.Struct, frozen=True):
    namespace: str
    name: str
    nodes: dict[str, dict[str, int]]


class _Reservations(msgspec.Struct, frozen=True, rename="camel"):
    api_version: str
    reservations: list[_Reservation]


async def fetch(reader: Reader, options: argparse.Namespace, namespaces: Sequence[str]) -> Kept:
    """Return what is kept for gangs of ``namespaces``, or of all that the caller may read.

    Raises ConsoleError and UsageError as :func:`bireme.cli.leader.fetch`.
    """
    otherwise = "open a record: bireme ui RECORD"
    request = leader.Request("reservations", "see reservations", otherwise, namespaces=namespaces)
    text = await leader.fetch(reader, options, request)
    found = leader.decoded(text, _Reservations, _VERSION)
    return {f"{each.namespace}/{each.name}": each.nodes for each in found.reservations}
