"""Where jobs and queues stand, worked out from dictionaries, by the formulas in the documents.

Nothing of the core is used: who is overdue, what the combined priority and the claim are, what a
queue holds and is guaranteed, whether a job would fit, are all said here a second time.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from bireme.core.settings import SchedulingSettings
from tests.support.model.truth import Places, Thing, Things, asked, is_open, used_by
from tests.support.model.views import Move


@dataclass(frozen=True)
class Case:
    """A decision, and all that was known when it was made. The queues of ``seen`` are a tree."""

    seen: Things
    moves: Sequence[Move]
    now: float
    settings: SchedulingSettings

    def of(self, *kinds: str) -> list[Move]:
        """The moves of some kinds, in order."""
        return [move for move in self.moves if move["do"] in kinds]

    def job(self, name: str) -> Thing:
        """A job as it was seen."""
        return self.seen["job"][name]

    def before(self, move: Move) -> "Case":
        """The same, decided only up to ``move``."""
        at = next(i for i, other in enumerate(self.moves) if other is move)
        return Case(self.seen, self.moves[:at], self.now, self.settings)

    # --- time -----------------------------------------------------------------------------------

    def overdue_seconds(self, name: str) -> float:
        """How far a job is past its wait bound; of one that holds places, when it started."""
        return max(0.0, self.waited_seconds(name) - self._bound_seconds(name))

    def waited_seconds(self, name: str) -> float:
        """How long a job has waited, over all its times in the queue."""
        job = self.job(name)
        waits = job["phase"] == "waiting"
        return max(0.0, float(job["waited"]) + (self.now - job["queued"] if waits else 0.0))

    def expected_end(self, name: str) -> float:
        """When a job that holds places should be gone."""
        job = self.job(name)
        if job["phase"] == "leaving" or job["estimate"] is None:
            return self.now
        return max(self.now, float(job["started"] + job["estimate"]))

    # --- the combined priority ----------------------------------------------------------------

    def claim(self, name: str) -> float:
        """The part of the combined priority that neither waiting nor width raises."""
        job, rules = self.job(name), self.settings
        urgency = max(0, job["priority"])
        user = rules.user_weight * self._queue_of(name)["priority"] / 100
        own = rules.job_weight * urgency / (urgency + rules.job_priority_half)
        return round(float(user + own), 9)

    def rank(self, name: str) -> tuple[float | str, ...]:
        """Where a job comes in the order by combined priority; the lowest goes first."""
        job, rules = self.job(name), self.settings
        tasks = job["tasks" if job["phase"] == "waiting" else "planned"]
        width = sum(task["replicas"] for task in tasks.values())
        urgency, waited = max(0, job["priority"]), self.waited_seconds(name)
        parts = (
            rules.user_weight * self._queue_of(name)["priority"] / 100,
            rules.job_weight * urgency / (urgency + rules.job_priority_half),
            rules.wait_weight * min(1.0, waited / self._bound_seconds(name)),
            rules.parallelism_weight * width / (width + rules.parallelism_half),
        )
        came = job["queued" if job["phase"] == "waiting" else "started"]
        ties = (not job["interrupted"], -job["priority"], came - job["waited"], -width, name)
        return (-round(sum(parts), 9), *ties)

    def _queue_of(self, name: str) -> Thing:
        return self.seen["queue"].get(self.job(name)["queue"], {"priority": 50, "bound": None})

    def _bound_seconds(self, name: str) -> float:
        return float(self._queue_of(name)["bound"] or self.settings.wait_bound_seconds)

    # --- queues ---------------------------------------------------------------------------------

    def path(self, queue: str) -> list[str]:
        """A queue and those above it; one whose parents go in a circle is alone."""
        found = [queue]
        while parent := self.seen["queue"].get(found[-1], {}).get("parent", ""):
            if parent in found:
                return [queue]
            if parent not in self.seen["queue"]:
                break
            found.append(parent)
        return found

    def queue_fault(self, queue: str) -> str:
        """Why no job of a queue can start, by its reason; empty when some can."""
        if queue not in self.seen["queue"]:
            return "QueueNotFound"
        seen, at = {queue}, queue
        while parent := self.seen["queue"][at]["parent"]:
            if parent in seen or parent not in self.seen["queue"]:
                return "QueueInvalid"
            seen.add(parent)
            at = parent
        return ""

    def held(self, queue: str, beside: Iterable[tuple[str, int]] = ()) -> int:
        """GPUs that a queue holds with all below it; ``beside`` are more, by queue."""
        own = [(job["queue"], gpus_on(job, job["places"])) for job in self.seen["job"].values()]
        return sum(gpus for name, gpus in [*own, *beside] if queue in self.path(name))

    def guaranteed(self, queue: str) -> int:
        """GPUs that a queue with all below it is guaranteed."""
        below = [n for n in self.seen["queue"] if n != queue and self.path(n)[1:2] == [queue]]
        known = self.seen["queue"].get(queue, {"guaranteed": 0, "limit": None})
        most = max(known["guaranteed"], sum(self.guaranteed(name) for name in below))
        return int(most if known["limit"] is None else min(most, known["limit"]))

    def over_limit(self, name: str, gpus: int, started: Iterable[tuple[str, int]] = ()) -> str:
        """The queue whose limit ``gpus`` more for a job would pass; empty when none."""
        for queue in self.path(self.job(name)["queue"]) if gpus else ():
            limit = self.seen["queue"].get(queue, {}).get("limit")
            if limit is not None and self.held(queue, started) + gpus > limit:
                return queue
        return ""

    def limit_in_the_way(self, name: str) -> str:
        """The queue whose limit the least of a job would pass, after all starts and keeps."""
        taken = [
            (self.job(m["job"])["queue"], gpus_on(self.job(m["job"]), m[key]))
            for m in self.of("start", "hold")
            for key in ("places", "kept")
            if key in m and m.get("why") != "WaitingForCapacity"
        ]
        return self.over_limit(name, least_gpus(self.job(name)), taken)

    # --- places ---------------------------------------------------------------------------------

    def after(self, *, leavers_gone: bool) -> dict[str, tuple[Thing, Places]]:
        """Who holds which places once all moves are made, by job."""
        stopped = {move["job"] for move in self.of("stop")}
        found = {}
        for name, job in self.seen["job"].items():
            is_going = name in stopped or job["phase"] == "leaving"
            if job["places"] and not (leavers_gone and is_going):
                found[name] = (job, job["places"])
        for move in self.of("start", "resize"):
            found[move["job"]] = (self.job(move["job"]), move["places"])
        return found

    def excess(
        self, held: Iterable[tuple[Thing, Places]], added: Iterable[tuple[Thing, Places]]
    ) -> Iterator[str]:
        """Where ``held`` is more than a node offers, of what ``added``, a part of it, asks."""
        used: dict[tuple[str, str], int] = {}
        for job, places in held:
            for node, what, amount in asked(job, places):
                used[node, what] = used.get((node, what), 0) + amount
        new = {(node, what) for each in added for node, what, amount in asked(*each) if amount}
        for node, what in sorted(new):
            offers = self.seen["node"].get(node, {"offers": {}})["offers"].get(what, 0)
            if used[node, what] > offers:
                yield f"{node} holds {used[node, what]} of {offers} {what}"

    def fits(self, name: str, used: Mapping[tuple[str, str], int]) -> bool | None:
        """Whether the least of a job fits beside ``used``; None where that is hard to say."""
        job = self.job(name)
        if len(job["tasks"]) > 1:
            return None
        (task,) = job["tasks"].values()
        room = 0
        for node, known in self.seen["node"].items():
            if is_open(known):
                free = {what: n - used.get((node, what), 0) for what, n in known["offers"].items()}
                counts = [free[what] // n for what, n in task["asks"].items() if n]
                room += max(0, min(counts))
        return bool(room >= task["least"])

    def used(self) -> dict[tuple[str, str], int]:
        """What is used once the moves are made, before anybody leaves."""
        jobs = {n: {**job, "places": p} for n, (job, p) in self.after(leavers_gone=False).items()}
        return used_by(jobs)


def gpus_on(job: Thing, places: Places) -> int:
    """GPUs that a job holds on ``places``."""
    return sum(amount for _, what, amount in asked(job, places) if what == "gpu")


def least_gpus(job: Thing) -> int:
    """GPUs of the smallest size a job may start with."""
    return int(sum(task["least"] * task["asks"]["gpu"] for task in job["tasks"].values()))


def size(places: Places) -> int:
    """Replicas over all tasks."""
    return sum(sum(spread.values()) for spread in places.values())


def size_bounds(job: Thing) -> tuple[int, int]:
    """The fewest and the most replicas that a job which runs may have."""
    tasks = job["planned"].values()
    return sum(task["least"] for task in tasks), sum(task["most"] for task in tasks)
