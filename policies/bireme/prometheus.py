"""Questions to a Prometheus server: one series hour by hour, or the values of many at a moment.

:func:`hourly` sends one range query, evaluated at the end of each hour: a query such as
``sum(avg_over_time(pool_demand[1h]))`` gives the mean of the hour that is over. The answer must be
one series, at the requested times. Values that are not finite count as not recorded and are noted.
:func:`latest` requests a vector. The size and the time of an answer are bounded.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple
from urllib.parse import urlencode

import aiohttp
import msgspec
import numpy as np
from yarl import URL

from bireme.core.errors import BiremeError
from bireme.core.resources import FloatArray
from bireme.core.times import HOUR

# 56 days of hours are some 50 kB; a longer answer is not the one series of the query.
MAX_BYTES: Final = 2 * 1024 * 1024
TIMEOUT_SECONDS: Final = 30.0
_EXCERPT: Final = 200
# The field with the address of a NodePoolScaler's history, for messages.
_SETTING: Final = "history.prometheus.url"


class PrometheusError(BiremeError):
    """Prometheus cannot be reached, refuses, or gives an unexpected answer; see the text."""


class _Series(msgspec.Struct):
    values: list[tuple[float, str]] = []


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
    """Return the value of ``query`` in each of ``hours`` from ``start`` (POSIX seconds), and notes.

    Shape (hours,); hours without a value are NaN. ``url`` is the server's, without ``/api/v1``;
    ``query`` is PromQL with exactly one series as its result.

    Raises:
        PrometheusError: as the class says.
    """
    parameters = {
        "query": query,
        "start": str(int(start) + HOUR),
        "end": str(int(start) + HOUR * hours),
        "step": str(HOUR),
        "timeout": f"{timeout_seconds:g}s",
    }
    answer = await _query(
        f"{url.rstrip('/')}/api/v1/query_range", parameters, timeout_seconds, _SETTING
    )
    notes = [f"Prometheus warns: {text[:_EXCERPT]}" for text in answer.warnings[:3]]
    pairs = _only_series(answer.data)
    return _values_by_hour(pairs, int(start), hours, notes), tuple(notes)


class Sample(NamedTuple):
    """The value of one series, a finite number, and its labels."""

    labels: Mapping[str, str]
    value: float


class _Point(msgspec.Struct):
    value: tuple[float, str]
    metric: dict[str, str] = {}


async def latest(
    url: str, query: str, time: float, argument: str, timeout_seconds: float = TIMEOUT_SECONDS
) -> list[Sample]:
    """Return the series of ``query`` at the time ``time`` (POSIX seconds), in any order.

    ``argument`` is the option in which the user gave ``url``, for messages.

    Raises:
        PrometheusError: as the class says.
    """
    parameters = {"query": query, "time": f"{time:.3f}", "timeout": f"{timeout_seconds:g}s"}
    answer = await _query(f"{url.rstrip('/')}/api/v1/query", parameters, timeout_seconds, argument)
    if answer.data.result_type != "vector":
        kind = answer.data.result_type[:32]
        raise PrometheusError(f"Prometheus answers with {kind!a}, not a vector")
    return [_sample(raw_series) for raw_series in answer.data.result]


def _sample(raw_series: msgspec.Raw) -> Sample:
    try:
        point = msgspec.json.decode(raw_series, type=_Point)
        value = float(point.value[1])
    except (msgspec.DecodeError, UnicodeDecodeError, ValueError) as error:
        raise PrometheusError(f"Prometheus answers with a series that is none: {error}") from error
    if not math.isfinite(value):
        raise PrometheusError(
            f"Prometheus answers with {point.value[1][:32]!a}, which is no finite number"
        )
    return Sample(point.metric, value)


async def _query(url: str, parameters: Mapping[str, str], seconds: float, argument: str) -> _Answer:
    status, body = await _post(url, parameters, seconds, argument)
    return _parse(status, body, argument)


async def _post(
    url: str, parameters: Mapping[str, str], seconds: float, argument: str
) -> tuple[int, bytes]:
    timeout = aiohttp.ClientTimeout(total=seconds)
    # No compression, here and below: a short answer must not unpack to a long one.
    headers = {
        "Accept-Encoding": "identity",
        "Content-Type": "application/x-www-form-urlencoded",
        "User-Agent": "bireme",
    }
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout, auto_decompress=False) as session,
            # A form, since a query may be longer than an address.
            session.post(
                URL(url),
                data=urlencode(parameters).encode(),
                headers=headers,
                allow_redirects=False,
            ) as response,
        ):
            body = bytearray()
            async for chunk in response.content.iter_chunked(64 * 1024):
                body += chunk
                if len(body) > MAX_BYTES:
                    raise PrometheusError(
                        f"Prometheus answers with more than {MAX_BYTES // 2**20} MiB; "
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
            f"{argument} and whether the network allows it"
        ) from error


def _parse(status: int, body: bytes, argument: str) -> _Answer:
    try:
        answer = msgspec.json.decode(body, type=_Answer)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        excerpt = body[:_EXCERPT].decode(errors="replace")
        raise PrometheusError(
            f"what answers at {argument} is no Prometheus: HTTP {status}, {excerpt!a}"
        ) from error
    if status != 200 or answer.status != "success":
        raise PrometheusError(
            f"Prometheus refuses the query: HTTP {status}, {answer.error[:_EXCERPT] or 'no reason'}"
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
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise PrometheusError(f"Prometheus answers with a series that is none: {error}") from error


def _values_by_hour(
    pairs: Sequence[tuple[float, str]], start: int, hours: int, notes: list[str]
) -> FloatArray:
    """Return each value in the hour that ends at its time."""
    values = np.full(hours, np.nan)
    odd = []
    for time, text in pairs:
        hour, rest = divmod(time - start - HOUR, HOUR)
        if rest or not 0 <= hour < hours:
            raise PrometheusError(f"Prometheus answers for {time:.0f}, which was not asked for")
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
