"""The API server's version as a metric, which an alert compares with kube-scheduler's.

A standby shows it too. It is read at intervals, as clusters are upgraded under their operators.
"""

import asyncio
import re
from typing import Final

import msgspec
import structlog
from prometheus_client import Gauge

from bireme.kube.client import ApiClient, ApiError

_log = structlog.get_logger(__name__)
_AGAIN_SECONDS: Final = 300.0
_DIGITS: Final = re.compile("[0-9]+")


class _Version(msgspec.Struct):
    major: str
    minor: str


async def keep_showing(client: ApiClient, gauge: Gauge) -> None:
    """Set ``gauge`` to 1 for the present version, until cancelled; keep it in an outage."""
    while True:
        try:
            major, minor = parse(await client.get("/version"))
        except (ApiError, msgspec.DecodeError, ValueError) as error:
            _log.info("version of the API server not read", error=str(error))
        else:
            gauge.clear()
            gauge.labels(major, minor).set(1)
        await asyncio.sleep(_AGAIN_SECONDS)


def parse(answer: bytes) -> tuple[str, str]:
    """Return major and minor version in digits, like those of a stock kube-scheduler.

    Providers append text: EKS and GKE return ``37+``.

    Raises:
        ValueError: there are no digits.
        msgspec.DecodeError: ``answer`` is not that of ``/version``.
    """
    version = msgspec.json.decode(answer, type=_Version)
    major, minor = (_DIGITS.match(part) for part in (version.major, version.minor))
    if major is None or minor is None:
        raise ValueError(f"no version: {version}")
    return major[0], minor[0]
