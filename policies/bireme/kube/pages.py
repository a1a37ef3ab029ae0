"""Pages of lists, bounded in bytes: tenants choose the size of the objects.

A page of 500 TrainingJobs may have more than 650 MiB. A page that is too large is requested again
with fewer objects.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from bireme.kube import envelopes
from bireme.kube.client import JSON, AnswerTooLargeError, ApiClient, Params

MAX_PAGE_BYTES: Final = 8 * 1024**2
"""An object has at most 1.5 MiB, etcd's default limit of one write."""


@dataclass(slots=True)
class PageSize:
    """Number of objects per page: ``limit``, or fewer while they are large."""

    limit: int
    now: int = field(init=False)

    def __post_init__(self) -> None:
        self.now = self.limit

    def shrink(self) -> bool:
        """Reduce the size after a too large page; return False if the page had one object."""
        previous, self.now = self.now, max(1, self.now // 4)
        return previous > 1

    def record(self, size_bytes: int) -> None:
        """Increase the size after a small page."""
        if size_bytes < MAX_PAGE_BYTES // 4:
            self.now = min(self.limit, 2 * self.now)


async def read(
    client: ApiClient,
    path: str,
    size: PageSize,
    *,
    token: str = "",
    params: Params | None = None,
    accept: str = JSON,
) -> envelopes.ListPage:
    """Return the next page of a list after ``token``, or the first page.

    Raises:
        ApiError: refused, or one object alone is too large.
    """
    while True:
        query: dict[str, str | int | Sequence[str]] = {**(params or {}), "limit": size.now}
        if token:
            query["continue"] = token
        try:
            body = await client.get(path, params=query, accept=accept, max_bytes=MAX_PAGE_BYTES)
        except AnswerTooLargeError:
            if size.shrink():
                continue
            raise
        size.record(len(body))
        return envelopes.page(body)
