"""Pages of lists, bounded in bytes: tenants choose how large the objects are.

Of 500 TrainingJobs the API server may make a page of more than 650 MiB. A page that turns out to be
too large is asked for again with fewer objects.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from bireme.kube import wire
from bireme.kube.client import JSON, AnswerTooLargeError, ApiClient, Params

MAX_PAGE_BYTES: Final = 8 * 1024**2
"""An object has 1.5 MiB at most, which is what etcd takes in one write by default."""


@dataclass(slots=True)
class PageSize:
    """How many objects to ask for at once: ``most``, or fewer while they are large."""

    most: int
    now: int = field(init=False)

    def __post_init__(self) -> None:
        self.now = self.most

    def shrink(self) -> bool:
        """Ask for fewer after a page that was too large; return False if it was of one object."""
        was, self.now = self.now, max(1, self.now // 4)
        return was > 1

    def took(self, size_bytes: int) -> None:
        """Ask for more again after a page that was small."""
        if size_bytes < MAX_PAGE_BYTES // 4:
            self.now = min(self.most, 2 * self.now)


async def read(
    client: ApiClient,
    path: str,
    size: PageSize,
    *,
    token: str = "",
    params: Params | None = None,
    accept: str = JSON,
) -> wire.ListPage:
    """Return the page of a list that ``token`` continues, or the first.

    Raises:
        ApiError: refused, or one object alone is too large.
    """
    while True:
        asked: dict[str, str | int | Sequence[str]] = {**(params or {}), "limit": size.now}
        if token:
            asked["continue"] = token
        try:
            body = await client.get(path, params=asked, accept=accept, most_bytes=MAX_PAGE_BYTES)
        except AnswerTooLargeError:
            if size.shrink():
                continue
            raise
        size.took(len(body))
        return wire.page(body)
