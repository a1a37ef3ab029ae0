"""Hours from Prometheus: one range query, evaluated at the end of each hour.

So a query such as ``sum(avg_over_time(pool_demand[1h]))`` gives the mean of the hour that is
over. The answer is believed no further than it was asked for: one series, at the times of the
question, of bounded size, within bounded time. Values that are no finite numbers count as not
recorded and are noted.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import urlencode

import aiohttp
import msgspec
import numpy as np
from yarl import URL

from bireme.core.errors import BiremeError
from bireme.core.resources import FloatArray
from bireme.core.times import HOUR

MOST_POINTS: Final = 11_000
"""Prometheus refuses to give more points of a series at once."""
MOST_BYTES: Final = 2 * 1024 * 1024
TIMEOUT_SECONDS: Final = 30.0
_SHOWN: Final = 200


class PrometheusError(BiremeError):
    """Prometheus cannot be reached, refuses, or answers something else than was asked."""


class _Series(msgspec.Struct):
    values: list[tuple[float, str]] = []
    metric: dict[str, str] = {}


class _Data(msgspec.Struct, rename="camel"):
    result_type: str = ""
    result: list[msgspec.Raw] = []


class _Answer(msgspec.Struct):
    status: str = ""
    data: _Data = msgspec.field(default_factory=_Data)
    error: str = ""
    warnings: list[str] = []


async def hourly(
    url: str, query: str, start: float, hours: int, timeout_seconds: float = TIMEOUT_SECONDS
) -> tuple[FloatArray, tuple[str, ...]]:
    """``query`` for each of the ``hours`` from ``start`` (POSIX seconds) on, shape (hours,).

    Hours without a value are NaN; the notes say what was odd.

    Args:
        url: Of the server, without ``/api/v1``.
        query: PromQL with exactly one series as its result.
        timeout_seconds: For the whole of it.

    Raises:
        PrometheusError: see there; the text says what to do.
        ValueError: more hours than Prometheus gives at once.
    """
    if not 1 <= hours <= MOST_POINTS:
        raise ValueError(f"hours is {hours}; Prometheus gives 1 to {MOST_POINTS}")
    asked = {
        "query": query,
        "start": str(int(start) + HOUR),
        "end": str(int(start) + HOUR * hours),
        "step": str(HOUR),
        "timeout": f"{timeout_seconds:g}s",
    }
    status, body = await _post(url, asked, timeout_seconds)
    answer = _opened(status, body)
    notes = [f"Prometheus warns: {text[:_SHOWN]}" for text in answer.warnings[:3]]
    pairs = _only_series(answer.data)
    return _placed(pairs, int(start), hours, notes), tuple(notes)


async def _post(url: str, asked: Mapping[str, str], seconds: float) -> tuple[int, bytes]:
    """Status and body; a form, since queries may be longer than an address may be."""
    timeout = aiohttp.ClientTimeout(total=seconds)
    headers = {
        "Accept-Encoding": "identity",
        "Content-Type": "application/x-www-form-urlencoded",
        "User-Agent": "bireme",
    }
    try:
        target = URL(f"{url.rstrip('/')}/api/v1/query_range")
        async with (
            aiohttp.ClientSession(timeout=timeout, auto_decompress=False) as session,
            session.post(
                target, data=urlencode(asked).encode(), headers=headers, allow_redirects=False
            ) as response,
        ):
            body = bytearray()
            async for chunk in response.content.iter_chunked(64 * 1024):
                body += chunk
                if len(body) > MOST_BYTES:
                    raise PrometheusError(
                        f"Prometheus answers with more than {MOST_BYTES // 2**20} MiB; "
                        "aggregate the query to one series"
                    )
            return response.status, bytes(body)
    except TimeoutError as error:
        raise PrometheusError(
            f"Prometheus gave no answer within {seconds:g} s; simplify the query, or record it"
        ) from error
    except (aiohttp.ClientError, OSError, ValueError) as error:
        raise PrometheusError(
            f"Prometheus cannot be asked: {error or type(error).__name__}; check "
            "history.prometheus.url and whether the network allows it"
        ) from error


def _opened(status: int, body: bytes) -> _Answer:
    try:
        answer = msgspec.json.decode(body, type=_Answer)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        shown = body[:_SHOWN].decode(errors="replace")
        raise PrometheusError(
            f"what answers at history.prometheus.url is no Prometheus: HTTP {status}, {shown!a}"
        ) from error
    if status != 200 or answer.status != "success":
        raise PrometheusError(
            f"Prometheus refuses the query: HTTP {status}, {answer.error[:_SHOWN] or 'no reason'}"
        )
    return answer


def _only_series(data: _Data) -> Sequence[tuple[float, str]]:
    if data.result_type != "matrix":
        raise PrometheusError(f"Prometheus answers with {data.result_type[:32]!a}, not a matrix")
    if len(data.result) != 1:
        remedy = "aggregate it, as in sum(...)" if data.result else "check its names and labels"
        raise PrometheusError(f"the query has {len(data.result)} series, not one; {remedy}")
    try:
        return msgspec.json.decode(data.result[0], type=_Series).values
    except msgspec.DecodeError as error:
        raise PrometheusError(f"Prometheus answers with a series that is none: {error}") from error


def _placed(
    pairs: Sequence[tuple[float, str]], start: int, hours: int, notes: list[str]
) -> FloatArray:
    """Each value in the hour that ends at its time."""
    values = np.full(hours, np.nan)
    odd = []
    for at, text in pairs:
        hour, rest = divmod(at - start - HOUR, HOUR)
        if rest or not 0 <= hour < hours:
            raise PrometheusError(f"Prometheus answers for {at:.0f}, which was not asked for")
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            odd.append(text)
        else:
            values[int(hour)] = value
    if odd:
        notes.append(f"{len(odd)} values are no finite numbers, first {odd[0][:32]!a}")
    return values
