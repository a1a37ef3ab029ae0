"""What the API server's refusals and a broken connection look like to the rest of Bireme.

Every failure is one :class:`ApiError` with predicates, because callers are level-triggered and
only ask "again later, or never?". A write that the fence stopped is :class:`NotLeader` instead:
nothing is wrong with the server, this process merely has to stop.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import aiohttp
import msgspec

from bireme.kube.credentials import CredentialsError


class NotLeader(Exception):  # noqa: N818  # it says what is the case, like StopIteration
    """A write was stopped because this process does not hold the lease (any more)."""


class ApiError(Exception):
    """The API server refused, or could not be reached (``status`` 0).

    ``reason`` is the Status object's machine-readable word (``AlreadyExists``, ``Expired``, ...)
    or ``ConnectionFailed``, ``Timeout``, ``BadCertificate``, ``CredentialsUnusable``.
    """

    def __init__(
        self,
        status: int,
        reason: str,
        message: str,
        retry_after_seconds: float | None = None,
    ) -> None:
        super().__init__(f"{status} {reason}: {message}")
        self.status = status
        self.reason = reason
        self.message = message
        self.retry_after_seconds = retry_after_seconds

    @property
    def status_class(self) -> str:
        """``5xx`` and the like, but what happens every day as it is: 404, 409, 410, 429.

        ``none`` where no answer came, ``other`` for what HTTP does not know.
        """
        if self.status in {404, 409, 410, 429}:
            return str(self.status)
        if self.status == 0:
            return "none"
        return f"{self.status // 100}xx" if 300 <= self.status < 600 else "other"

    @property
    def is_conflict(self) -> bool:
        """A precondition (resourceVersion, uid, field manager) did not hold."""
        return self.status == 409 and not self.is_already_exists

    @property
    def is_already_exists(self) -> bool:
        """Created before, perhaps by a request of ours whose answer was lost."""
        return self.status == 409 and self.reason == "AlreadyExists"

    @property
    def is_not_found(self) -> bool:
        """No such object, or no such resource (its CRD is missing)."""
        return self.status == 404

    @property
    def is_gone(self) -> bool:
        """The resource version or continue token is too old: list again."""
        return self.status == 410

    @property
    def is_invalid(self) -> bool:
        """The object itself is refused: sending it again is pointless."""
        return self.status in {400, 413, 422}

    @property
    def is_forbidden(self) -> bool:
        """RBAC, quota or admission said no."""
        return self.status == 403

    @property
    def is_retryable(self) -> bool:
        """The same request may succeed later: overload, server trouble, no connection."""
        return self.status in {0, 429} or self.status >= 500

    @property
    def wants_new_credentials(self) -> bool:
        """Reading the token or the CA again may help."""
        return self.status == 401 or self.reason == "BadCertificate"


class _StatusDetails(msgspec.Struct, rename="camel"):
    retry_after_seconds: float | None = None


class _Status(msgspec.Struct, rename="camel"):
    reason: str = ""
    message: str = ""
    details: _StatusDetails | None = None


def from_answer(status: int, body: bytes, headers: Mapping[str, str]) -> ApiError:
    """The error an answer stands for; proxies in between answer without a Status object."""
    try:
        parsed = msgspec.json.decode(body, type=_Status)
    except msgspec.DecodeError:
        parsed = _Status(message=body[:200].decode(errors="replace"))
    retry_after = parsed.details.retry_after_seconds if parsed.details else None
    if (header := headers.get("Retry-After", "")).isdigit():
        retry_after = float(header)
    return ApiError(status, parsed.reason or "Unknown", parsed.message, retry_after)


@contextmanager
def connection_trouble() -> Iterator[None]:
    """Turn everything that can go wrong below HTTP into an ApiError of status 0."""
    try:
        yield
    except aiohttp.ClientConnectorCertificateError as error:
        raise ApiError(0, "BadCertificate", str(error)) from error
    except (TimeoutError, aiohttp.ServerTimeoutError) as error:
        raise ApiError(0, "Timeout", str(error) or "no answer in time") from error
    except CredentialsError as error:
        raise ApiError(0, "CredentialsUnusable", str(error)) from error
    except (aiohttp.ClientError, OSError) as error:
        raise ApiError(0, "ConnectionFailed", str(error) or type(error).__name__) from error
