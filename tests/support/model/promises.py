"""What must hold from one decision to the next: promised starts, and the wait bound.

Both promises are made for as long as nothing from outside comes in between; whoever changes nodes,
queues, specs or clocks, or carries out what was decided on an old view, calls :meth:`void`.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from tests.support.model.standing import Case, least_gpus


@dataclass(slots=True)
class Promises:
    """What was promised by the decisions so far.

    Attributes:
        start: The job that is first in line with a reservation, and when it should start.
        first: The job that goes before all others; "" where there is none.
        ran: Who held places when it became the first, as (name, start).
    """

    start: tuple[str, float] | None = None
    first: str = ""
    ran: frozenset[tuple[str, float]] = frozenset()

    def void(self) -> None:
        """Something happened that no promise covers."""
        self.start, self.first = None, ""

    def broken(self, case: Case) -> Iterator[str]:
        """What ``case``, decided on all that is so, breaks; it is the next to be held against."""
        yield from self._postponed(case)
        yield from self._kept_waiting(case)

    def _postponed(self, case: Case) -> Iterator[str]:
        """A reservation of the first in line moves to later only for estimates that were wrong."""
        before, self.start = self.start, None
        line = [m for m in case.of("start", "hold") if m["do"] == "start" or m["position"]]
        first = line[0] if line else {}
        if "kept" not in first or first["closed"] or len(case.job(first["job"])["tasks"]) > 1:
            return
        if _somebody_outran_its_estimate(case):
            return
        self.start = (first["job"], first["kept_from"])
        if before and before[0] == first["job"] and self.start[1] > max(before[1], case.now):
            yield f"{before[0]} was to start at {before[1]} and now at {self.start[1]}"

    def _kept_waiting(self, case: Case) -> Iterator[str]:
        """Whoever is first past its bound starts once all have left that ran when it became so."""
        holding = frozenset((n, j["started"]) for n, j in case.seen["job"].items() if j["places"])
        first = _first_in_line(case)
        if first != self.first:
            self.first, self.ran = first, holding
        self.ran &= holding
        leaves = any(job["phase"] == "leaving" for job in case.seen["job"].values())
        if first in {move["job"] for move in case.of("start")}:
            self.first = ""
        elif first and not self.ran and not leaves:
            yield f"{first} goes before all others, and waits for jobs that came later"


def _somebody_outran_its_estimate(case: Case) -> bool:
    jobs = [job for job in case.seen["job"].values() if job["places"] and job["estimate"]]
    return any(job["started"] + job["estimate"] <= case.now for job in jobs)


def _first_in_line(case: Case) -> str:
    """The job that was displaced or is longest overdue, if nodes and limits are there for it."""
    hopeless = {m["job"] for m in case.of("hold") if m["position"] is None}
    line = sorted(
        (not job["displaced"], -case.overdue_seconds(name), name)
        for name, job in case.seen["job"].items()
        if job["phase"] == "waiting"
        and name not in hopeless
        and (job["displaced"] or case.overdue_seconds(name) > 0)
    )
    if not line or case.over_limit(line[0][2], least_gpus(case.job(line[0][2]))):
        return ""
    return line[0][2]
