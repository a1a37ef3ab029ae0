"""The progress endpoint over HTTP: training pods report their progress to it.

Only the leader keeps reports. A standby answers 503 with Retry-After: a Service gives the next
connection to another pod, and a fresher report follows a lost one.

The body has the form of Kubeflow Trainer (KEP-2779):

    {"trainerStatus": {"progressPercentage": 40, "estimatedRemainingSeconds": 90,
                       "metrics": [{"name": "loss", "value": "0.21"}], "lastUpdatedTime": "..."}}

It uses only the metrics that a decision may use: step, total_steps, loss, accuracy, checkpoint. It
clips numbers out of range, because an inexact report is better than none. It refuses a value that
is no finite number, by name. The time of a report is its arrival; the body's time is ignored.
"""

import asyncio
import math
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
import structlog
from aiohttp import web

from bireme.core.errors import error_text
from bireme.core.times import MAX_SECONDS
from bireme.kube.pod_builder import path
from bireme.kube.progress_reports import MAX_STEPS, ProgressReport
from bireme_operator.http_server import HttpServer, RequestRefused, keep_connection
from bireme_operator.metrics import OperatorMetrics
from bireme_operator.progress_auth import ProgressService

# --- the body: read and clipped -----------------------------------------------------------

MAX_BYTES: Final = 16_384
_MAX_METRICS: Final = 64
_LARGEST_LOSS: Final = 1e12

# Fields of a report by metric name, including the names of the Transformers trainer.
_NAMES: Final[Mapping[str, str]] = {
    "step": "step",
    "global_step": "step",
    "total_steps": "total_steps",
    "max_steps": "total_steps",
    "loss": "loss",
    "train_loss": "loss",
    "accuracy": "accuracy",
    "eval_accuracy": "accuracy",
    "checkpoint": "checkpoint_step",
    "checkpoint_step": "checkpoint_step",
}

_RANGES: Final[Mapping[str, tuple[float, float]]] = {
    "step": (0.0, MAX_STEPS),
    "total_steps": (0.0, MAX_STEPS),
    "loss": (-_LARGEST_LOSS, _LARGEST_LOSS),
    "accuracy": (0.0, 1.0),
    "checkpoint_step": (0.0, MAX_STEPS),
}


class PayloadError(ValueError):
    """Error in a body that is no report; the text names the field, its value and the remedy."""


class Metric(msgspec.Struct):
    name: str
    value: Annotated[str | float, msgspec.Meta(description="a finite number")]


class TrainerStatus(msgspec.Struct, rename="camel"):
    progress_percentage: float | None = None
    estimated_remaining_seconds: float | None = None
    # The bound informs clients; decode() checks it with a better message than msgspec's.
    metrics: (
        Annotated[list[Metric], msgspec.Meta(extra_json_schema={"maxItems": _MAX_METRICS})] | None
    ) = None


class Body(msgspec.Struct, rename="camel"):
    trainer_status: TrainerStatus


_DECODER: Final = msgspec.json.Decoder(Body)


def decode(body: bytes) -> ProgressReport:
    """Return the report in ``body``.

    Raises:
        PayloadError: the body is not JSON of that form, or contains an invalid number.
    """
    try:
        status = _DECODER.decode(body).trainer_status
    except (msgspec.DecodeError, RecursionError) as error:
        raise PayloadError(
            f"the body is not a report: {error}; send {{'trainerStatus': {{...}}}} as of KEP-2779"
        ) from error
    metrics = status.metrics or []
    if len(metrics) > _MAX_METRICS:
        raise PayloadError(f"metrics has {len(metrics)} entries; send at most {_MAX_METRICS}")
    percentage, remaining = status.progress_percentage, status.estimated_remaining_seconds
    report = ProgressReport(
        percentage=None if percentage is None else min(max(percentage, 0.0), 100.0),
        remaining_seconds=None if remaining is None else min(max(remaining, 0.0), MAX_SECONDS),
    )
    values = {
        field: min(max(_number(metric), _RANGES[field][0]), _RANGES[field][1])
        for metric in metrics
        if (field := _NAMES.get(metric.name))
    }
    return replace(report, **values)


def _number(metric: Metric) -> float:
    try:
        value = float(metric.value)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise PayloadError(
            f"metric {metric.name!r} is {ascii(metric.value)[:40]}; send a finite number, or leave "
            "it out"
        )
    return value


# --- its OpenAPI document -----------------------------------------------------------------

OPENAPI_PATH: Final = "/openapi.json"

# Derived from the types that decode a body, so the two always agree.
(_SCHEMA,), _TYPES = msgspec.json.schema_components(
    (Body,), ref_template="#/components/schemas/{name}"
)
_REFUSAL: Final = {
    "type": "object",
    "required": ["status", "message"],
    "properties": {"status": {"type": "integer"}, "message": {"type": "string"}},
}
_REFUSALS: Final = {
    "400": "The body is not a report, or a number in it is invalid",
    "401": "No token for this endpoint, or none that the API server accepts",
    "403": "The pod is no live member of the job",
    "404": "No such TrainingJob in the namespace of the pod",
    "408": "The body came too slowly",
    "413": "The body is too large",
    "429": "Too many reports; Retry-After has the pause in seconds",
    "503": "This replica does not lead, or cannot ask the API server",
}


def _json(schema: dict[str, Any]) -> dict[str, Any]:
    return {"content": {"application/json": {"schema": schema}}}


def _path_parameter(name: str) -> dict[str, Any]:
    return {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}


_REPORT: Final = {
    "summary": "Report the progress of a running job",
    "security": [{"podToken": []}],
    "parameters": [_path_parameter("namespace"), _path_parameter("name")],
    "requestBody": {"required": True, **_json(_SCHEMA)},
    "responses": {
        "200": {"description": "Taken", **_json({"type": "object"})},
        **{code: {"description": text, **_json(_REFUSAL)} for code, text in _REFUSALS.items()},
    },
}

DOCUMENT: Final[dict[str, Any]] = {
    "openapi": "3.1.0",
    "info": {"title": "Bireme progress endpoint", "version": version("bireme")},
    "components": {
        "schemas": _TYPES,
        "securitySchemes": {
            "podToken": {
                "type": "http",
                "scheme": "bearer",
                "description": "the projected ServiceAccount token of a pod of the job",
            }
        },
    },
    "paths": {path(("{namespace}", "{name}")): {"post": _REPORT}},
}


# --- the server ---------------------------------------------------------------------------

_log = structlog.get_logger(__name__)
_BODY_SECONDS: Final = 5.0
_STANDBY_SECONDS: Final = 1.0
# Interval between two checks of the certificate's files, which live for weeks.
_CHECK_SECONDS: Final = 60.0


class Certificate:
    """A TLS context that follows the files tls.crt and tls.key in ``folder``.

    ``clock`` is monotonic seconds.
    """

    def __init__(self, folder: Path, clock: Callable[[], float]) -> None:
        self.context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._files = (folder / "tls.crt", folder / "tls.key")
        self._clock = clock
        self._checked = clock()
        self._loaded = self._stamp()
        self._refused: tuple[int, ...] | None = None
        self.context.load_cert_chain(*self._files)

    def reload(self) -> None:
        """Load the files again if they have changed; new connections get the new certificate.

        Unreadable files may be halfway through a replacement, and are tried at every check; the old
        certificate is served meanwhile. One warning is logged per state of the files.
        """
        if self._clock() - self._checked < _CHECK_SECONDS:
            return
        self._checked = self._clock()
        stamp: tuple[int, ...] = ()
        try:
            if (stamp := self._stamp()) != self._loaded:
                self.context.load_cert_chain(*self._files)
                self._loaded = stamp
            self._refused = None
        except OSError as error:  # ssl.SSLError is one
            if stamp != self._refused:
                files = [str(file) for file in self._files]
                _log.warning(
                    "certificate not loaded; the old one serves",
                    files=files,
                    error=error_text(error),
                )
            self._refused = stamp

    def _stamp(self) -> tuple[int, ...]:
        return tuple(file.stat().st_mtime_ns for file in self._files)


@dataclass(slots=True)
class ProgressEndpoint:
    """The server; ``service`` gives the progress service of the term, or None on a standby."""

    service: Callable[[], ProgressService | None]
    metrics: OperatorMetrics
    _certificate: Certificate | None = None
    _server: HttpServer = field(default_factory=HttpServer)

    async def start(self, host: str, port: int, certificate: Certificate | None) -> int:
        """Listen on ``host:port``, with TLS if there is a certificate; return the port.

        Raises:
            OSError: the port is taken.
        """
        self._certificate = certificate
        app = web.Application(client_max_size=MAX_BYTES)
        app.router.add_post(path(("{namespace}", "{name}")), self._receive)
        app.router.add_get(OPENAPI_PATH, _describe)
        tls = certificate.context if certificate else None
        return await self._server.start(app, host, port, tls)

    async def stop(self) -> None:
        await self._server.stop()

    async def _receive(self, request: web.Request) -> web.Response:
        if self._certificate is not None:
            self._certificate.reload()
        try:
            await self._accept(request)
        except RequestRefused as refused:
            self.metrics.reports.labels(str(refused.status)).inc()
            return _refusal(refused)
        self.metrics.reports.labels("200").inc()
        return web.json_response({})

    async def _accept(self, request: web.Request) -> None:
        """Accept the report of ``request``; raise RequestRefused if it is not accepted."""
        service = self.service()
        if service is None:
            raise RequestRefused(503, "this replica does not lead; try again", _STANDBY_SECONDS)
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            raise RequestRefused(401, "send the projected token as 'Authorization: Bearer TOKEN'")
        key = (request.match_info["namespace"], request.match_info["name"])
        # Authenticate before reading the body, so that only members of gangs can fill memory.
        uid = await service.admit(key, token.strip(), request.remote or "")
        keep_connection(request)
        try:
            async with asyncio.timeout(_BODY_SECONDS):
                body = await request.read()
            service.accept(uid, decode(body))
        except TimeoutError as error:
            raise RequestRefused(408, f"the body took longer than {_BODY_SECONDS:g} s") from error
        except web.HTTPRequestEntityTooLarge as error:
            raise RequestRefused(413, f"the body is larger than {MAX_BYTES} bytes") from error
        except PayloadError as error:
            raise RequestRefused(400, str(error)) from error


async def _describe(_: web.Request) -> web.Response:
    return web.json_response(DOCUMENT)


def _refusal(refused: RequestRefused) -> web.Response:
    """Return the refusal as JSON; the connection closes, because its body may be unread."""
    headers = {"Connection": "close"}
    if refused.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    if refused.retry_after_seconds:
        headers["Retry-After"] = str(math.ceil(refused.retry_after_seconds))
    body = {"status": refused.status, "message": str(refused)}
    answer = web.json_response(body, status=refused.status, headers=headers)
    # Otherwise the rest of an unread body would be read as another request.
    answer.force_close()
    return answer
