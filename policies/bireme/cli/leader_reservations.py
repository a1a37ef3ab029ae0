"""The places that the leader reserves for waiting gangs (:mod:`bireme.cli.leader`)."""

import argparse
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from bireme.cli import leader
from bireme.cli.cluster import ClusterReader

_VERSION: Final = "reservations.bireme.dev/v1"

ReservedDevices = Mapping[str, Mapping[str, Mapping[str, int]]]
"""Devices by gang, as ``namespace/name``, by node and by resource."""


class _Reservation(msgspec.Struct, frozen=True):
    namespace: str
    name: str
    nodes: dict[str, dict[str, int]]


class _Reservations(msgspec.Struct, frozen=True, rename="camel"):
    api_version: str
    reservations: list[_Reservation]


async def fetch(
    reader: ClusterReader, options: argparse.Namespace, namespaces: Sequence[str]
) -> ReservedDevices:
    """Return the devices reserved for ``namespaces``, or for all that the caller may read.

    Raises ConsoleError and UsageError as :func:`bireme.cli.leader.fetch`.
    """
    otherwise = "open a record: bireme ui RECORD"
    request = leader.Request("reservations", "see reservations", otherwise, namespaces=namespaces)
    text = await leader.fetch(reader, options, request)
    answer = leader.decode(text, _Reservations, _VERSION)
    return {
        f"{reservation.namespace}/{reservation.name}": reservation.nodes
        for reservation in answer.reservations
    }
