"""The invariants of every decision, over dictionaries; each check has a name.

Numbers are those of the reliability plan: I1 gangs whole, I2 capacity, I3 nothing lost, I4 order,
I5 nothing kept in vain; I8 (equal snapshots, equal decisions) is checked by the caller. Nothing of
the core is used: all it computes is computed here a second time, from the documents.
"""

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile

from bireme.core.settings import SchedulingSettings
from testbed.model.cluster import Places, Thing, Things, added, asked, is_open, used_by
from testbed.model.rules import most_evictions, overcommitted, wrong_sizes
from testbed.model.snapshots import Move


@dataclass(frozen=True)
class DecisionCase:
    """A decision, and all that was known when it was made. The queues of ``seen`` are a tree."""

    seen: Things
    moves: Sequence[Move]
    now: float
    settings: SchedulingSettings

    def of(self, *kinds: str) -> list[Move]:
        return [move for move in self.moves if move["do"] in kinds]

    def job(self, name: str) -> Thing:
        return self.seen["job"][name]

    def before(self, move: Move) -> "DecisionCase":
        """Return the same, decided only up to ``move``."""
        at = next(i for i, other in enumerate(self.moves) if other is move)
        return DecisionCase(self.seen, self.moves[:at], self.now, self.settings)

    # --- time -----------------------------------------------------------------------------------

    def overdue_seconds(self, name: str) -> float:
        """Return how far a job is past its wait bound; of one with places, when it started."""
        return max(0.0, self.waited_seconds(name) - self._overdue_after_seconds(name))

    def late_in_line(self, name: str) -> float:
        """Return how far a job of the line is past its bound; 0 for one that is not in the line.

        Jobs that lost a node go before the line, by how late they are. Of jobs with places, only
        the one that passed its bound before all others is in it for sure.
        """
        in_line = {move["job"] for move in self.moves if move.get("overdue")}
        if (job := self.job(name))["phase"] == "waiting":
            is_early = job["displaced"] or name in in_line
        else:
            is_early = name == self.first_past_its_bound()
        return self.overdue_seconds(name) if is_early else 0.0

    def first_past_its_bound(self, beside: Container[str] = ()) -> str:
        """Return the job that passed its bound first, whether it waits or runs; "" for none.

        Several that passed it at one moment are told apart by their arrival.
        """
        due = [
            (
                (self.now if job["phase"] == "waiting" else job["started"]) - late,
                self.arrival(name),
                name,
            )
            for name, job in self.seen["job"].items()
            if name not in beside and job["phase"] != "leaving" and not self._is_lost(job)
            if (late := self.overdue_seconds(name)) > 0
        ]
        return min(due, default=(0.0, 0.0, ""))[-1]

    def _is_lost(self, job: Thing) -> bool:
        """A waiting job that lost a node goes before the line; one with no place holds nothing."""
        if job["phase"] == "waiting":
            return bool(job["displaced"])
        nodes = {node for spread in job["places"].values() for node in spread}
        return not nodes & self.seen["node"].keys()

    def waited_seconds(self, name: str) -> float:
        """Return how long a job has waited, over all its times in the queue."""
        job = self.job(name)
        waits = job["phase"] == "waiting"
        return max(0.0, float(job["waited"]) + (self.now - job["queued"] if waits else 0.0))

    def arrival(self, name: str) -> float:
        """Return when a waiting job came, shifted by the time in which it ran."""
        job = self.job(name)
        return float(job["queued"] - job["waited"])

    def expected_end(self, name: str) -> float:
        job = self.job(name)
        if job["phase"] == "leaving" or job["estimate"] is None:
            return self.now
        return max(self.now, float(job["started"] + job["estimate"]))

    # --- the combined priority ----------------------------------------------------------------

    def claim(self, name: str) -> float:
        """Return the part of the combined priority that neither waiting nor width raises.

        Of equal ones the job with less service has the higher claim, or one that should end soon.
        """
        level = 0 if self._ends_soon(name) else self.service_level(name)
        return round(float(sum(self._fixed_parts(name))), 9) - level / (level + 1) * 1e-9

    def stop_claim(self, name: str) -> float:
        """Return the claim of a waiting job by which others stop.

        Service stops nobody for one that has not waited for long, unless it lost a node.
        """
        rules = self.settings
        delay = min(rules.service_preemption_delay_seconds, self._overdue_after_seconds(name))
        if self.job(name)["displaced"] or self.waited_seconds(name) >= delay:
            return self.claim(name)
        return round(float(sum(self._fixed_parts(name))), 9) - 0.99e-9

    def _ends_soon(self, name: str) -> bool:
        job = self.job(name)
        if job["phase"] == "waiting" or job["estimate"] is None:
            return False
        left = job["estimate"] - self._run_seconds(name)
        return bool(0 < left <= self.settings.preemption_cost_seconds)

    def service_level(self, name: str) -> int:
        """Return 1 from so many device-seconds on, and one more at every eightfold of them."""
        job = self.job(name)
        tasks = job["tasks" if job["phase"] == "waiting" else "planned"].values()
        gpus = sum(task["replicas"] * task["asks"]["gpu"] for task in tasks)
        served = self._run_seconds(name) * (gpus or sum(task["replicas"] for task in tasks))
        level = 0
        while served >= self.settings.service_threshold * 8**level:
            level += 1
        return level

    def user_priority(self, name: str) -> int:
        """Return the user priority of the queue of a job."""
        return int(self._queue_of(name)["priority"])

    def most_evictions(self, name: str) -> int:
        """Return how often the job may have been stopped by now."""
        return most_evictions(self.settings, self._run_seconds(name))

    def _run_seconds(self, name: str) -> float:
        job = self.job(name)
        has_places = job["phase"] != "waiting"
        return float(job["ran"] + (max(0.0, self.now - job["started"]) if has_places else 0.0))

    def rank(self, name: str) -> tuple[float | str, ...]:
        """Return the sort key by combined priority; the lowest goes first."""
        job, rules = self.job(name), self.settings
        tasks = job["tasks" if job["phase"] == "waiting" else "planned"]
        width = sum(task["replicas"] for task in tasks.values())
        level = self.service_level(name)
        own = (
            rules.wait_weight * min(1.0, self.waited_seconds(name) / self._bound_seconds(name)),
            rules.parallelism_weight * width / (width + rules.parallelism_half),
        )
        parts = (*self._fixed_parts(name), sum(own) / 20**level)
        came = job["queued" if job["phase"] == "waiting" else "started"]
        ties = (not job["interrupted"], -job["priority"], came - job["waited"], -width, name)
        return (-round(sum(parts), 9), level, *ties)

    def _fixed_parts(self, name: str) -> tuple[float, float]:
        rules, urgency = self.settings, max(0, self.job(name)["priority"])
        return (
            rules.user_weight * self._queue_of(name)["priority"] / 100,
            rules.job_weight * urgency / (urgency + rules.job_priority_half),
        )

    def _queue_of(self, name: str) -> Thing:
        return self.seen["queue"].get(self.job(name)["queue"], {"priority": 50, "bound": None})

    def _overdue_after_seconds(self, name: str) -> float:
        """The bound, but at least a multiple of what a job had run before, and of its estimate.

        32 times as long for a job that had run.
        """
        ran = float(self.job(name)["ran"])
        run = max(ran, self.job(name)["estimate"] or 0.0)
        bound = max(self._bound_seconds(name), self.settings.wait_bound_run_factor * run)
        return 32 * bound if ran else bound

    def _bound_seconds(self, name: str) -> float:
        return float(self._queue_of(name)["bound"] or self.settings.wait_bound_seconds)

    # --- queues ---------------------------------------------------------------------------------

    def path(self, queue: str) -> list[str]:
        """Return a queue and those above it; one whose parents go in a circle is alone."""
        found = [queue]
        while parent := self.seen["queue"].get(found[-1], {}).get("parent", ""):
            if parent in found:
                return [queue]
            if parent not in self.seen["queue"]:
                break
            found.append(parent)
        return found

    def queue_fault(self, queue: str) -> str:
        """Return the reason why no job of a queue can start; empty when some can."""
        if queue not in self.seen["queue"]:
            return "QueueNotFound"
        top = self.path(queue)[-1]
        return "QueueInvalid" if self.seen["queue"][top]["parent"] else ""

    def held(self, queue: str, beside: Iterable[tuple[str, int]] = ()) -> int:
        """Return GPUs that a queue holds with all below it; ``beside`` are more, by queue."""
        own = [(job["queue"], gpus_on(job, job["places"])) for job in self.seen["job"].values()]
        return sum(gpus for name, gpus in [*own, *beside] if queue in self.path(name))

    def guaranteed(self, queue: str) -> int:
        below = [n for n in self.seen["queue"] if n != queue and self.path(n)[1:2] == [queue]]
        known = self.seen["queue"].get(queue, {"guaranteed": 0, "limit": None})
        most = max(known["guaranteed"], sum(self.guaranteed(name) for name in below))
        return int(most if known["limit"] is None else min(most, known["limit"]))

    def over_limit(self, name: str, gpus: int, started: Iterable[tuple[str, int]] = ()) -> str:
        """Return the queue whose limit ``gpus`` more for a job would pass; empty when none."""
        # A job without GPUs passes no limit, not even one that is passed already.
        for queue in self.path(self.job(name)["queue"]) if gpus else ():
            limit = self.seen["queue"].get(queue, {}).get("limit")
            if limit is not None and self.held(queue, started) + gpus > limit:
                return queue
        return ""

    def limit_in_the_way(self, name: str) -> str:
        """Return the queue whose limit the least of a job would pass, after all moves."""
        taken = [
            (self.job(m["job"])["queue"], gpus_on(self.job(m["job"]), m[key]))
            for m in self.of("start", "hold")
            for key in ("places", "kept")
            if key in m and m.get("why") != "WaitingForCapacity"
        ]
        return self.over_limit(name, least_gpus(self.job(name)), taken)

    # --- places ---------------------------------------------------------------------------------

    def after(self, *, leavers_gone: bool) -> dict[str, tuple[Thing, Places]]:
        """Return jobs with their places once all moves are made."""
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
        """Yield where ``held`` is more than a node offers, of what its part ``added`` asks."""
        new = {(node, what) for each in added for node, what, amount in asked(*each) if amount}
        offers = {name: node["offers"] for name, node in self.seen["node"].items()}
        yield from overcommitted(offers, used_by(held), new)

    def fits(
        self, name: str, used: Mapping[tuple[str, str], int], *, when_ready: bool = False
    ) -> bool | None:
        """Return whether the least of a job fits beside ``used``; None where hard to say.

        With ``when_ready`` nodes that are not ready count as well.
        """
        job = self.job(name)
        # Tasks compete for nodes: to decide that takes a search as large as the core's own.
        if len(job["tasks"]) > 1:
            return None
        (task,) = job["tasks"].values()
        room = 0
        for node, known in self.seen["node"].items():
            if is_open({**known, "ready": known["ready"] or when_ready}):
                free = {what: n - used.get((node, what), 0) for what, n in known["offers"].items()}
                counts = [free[what] // n for what, n in task["asks"].items() if n]
                room += max(0, min(counts))
        return bool(room >= task["least"])

    def used(self) -> dict[tuple[str, str], int]:
        """Return what is used once the moves are made, before any job leaves."""
        return used_by(self.after(leavers_gone=False).values())


def gpus_on(job: Thing, places: Places) -> int:
    return sum(amount for _, what, amount in asked(job, places) if what == "gpu")


def least_gpus(job: Thing) -> int:
    return int(sum(task["least"] * task["asks"]["gpu"] for task in job["tasks"].values()))


def size(places: Places) -> int:
    return sum(sum(spread.values()) for spread in places.values())


def size_bounds(job: Thing) -> tuple[int, int]:
    tasks = job["planned"].values()
    return sum(task["least"] for task in tasks), sum(task["most"] for task in tasks)


def preemptors(case: DecisionCase) -> list[Move]:
    """Return the holds of jobs for which others make room, or are leaving already."""
    return [move for move in case.of("hold") if move["why"] == "WaitingForPreemption"]


def only_those_stop_that_may(case: DecisionCase) -> Iterator[str]:
    """A job is left alone at first, and after so many evictions until it has run longer.

    One that started in reserved places is not left alone at first. What a queue takes back by its
    guarantee, it takes back however often the other has made room.
    """
    for move in case.of("stop"):
        job, rules = case.job(move["job"]), case.settings
        is_new = max(0.0, case.now - job["started"]) < rules.min_runtime_seconds
        if is_new and not job["yields"]:
            yield f"{move['job']} is stopped before its minimum run time"
        if not job["preemptible"]:
            yield f"{move['job']} is stopped, and nobody may stop it"
        is_worn = job["evictions"] - job["returned"] >= case.most_evictions(move["job"])
        is_lent = _yields(case, move["job"], move["for"])
        if is_worn and not is_lent and not _may_reclaim(case, move["for"], move["job"]):
            yield f"{move['job']} is stopped once more after {job['evictions']} evictions"


def only_the_lower_make_room(case: DecisionCase) -> Iterator[str]:
    """A stop is for a waiting job that goes before, has the higher claim and is longer overdue.

    Unless its queue takes its guarantee back from one that holds more than its own, or the other
    started in reserved places and comes after it.
    """
    beneficiaries = {move["job"] for move in preemptors(case)}
    for move in case.of("stop"):
        name, other = move["for"], move["job"]
        if name not in beneficiaries:
            yield f"{other} is stopped for {name}, which does not wait for it"
        elif not (
            _ranks_above(case, name, other)
            or _yields(case, other, name)
            or _may_reclaim(case, name, other)
        ):
            yield f"{other} is stopped for {name}, which has no right to its places"


def _ranks_above(case: DecisionCase, name: str, other: str) -> bool:
    late = case.late_in_line(other)
    mine, theirs = case.job(name), case.job(other)
    is_below = theirs["priority"] < mine["priority"] or (
        case.user_priority(other) < case.user_priority(name)
    )
    return (
        case.stop_claim(name) > case.claim(other)
        and (theirs["resumable"] or is_below)
        and case.rank(name) < case.rank(other)
        and (case.job(name)["displaced"] or late <= case.late_in_line(name))
    )


def _yields(case: DecisionCase, other: str, name: str) -> bool:
    """Return whether ``other`` runs in reserved places that it gives back to ``name``."""
    job, waiting = case.job(other), case.job(name)
    if not job["yields"]:
        return False
    late = case.late_in_line(other)
    if waiting["displaced"] or case.late_in_line(name) > 0:
        return waiting["displaced"] or late < case.late_in_line(name)
    has_passed = job["started"] >= case.arrival(name) and case.claim(other) <= case.claim(name)
    return late == 0 and (has_passed or case.rank(name) < case.rank(other))


def _may_reclaim(case: DecisionCase, name: str, other: str) -> bool:
    """Return whether the guarantee holds the gang and the victim is beyond its own."""
    ours = case.path(case.job(name)["queue"])
    theirs = case.path(case.job(other)["queue"])
    apart = [queue for queue in ours if queue not in theirs]
    if not apart or least_gpus(case.job(name)) > case.guaranteed(apart[-1]):
        return False
    return not any(
        0 < case.held(queue) <= case.guaranteed(queue) for queue in theirs if queue not in ours
    )


def room_that_is_made_is_enough(case: DecisionCase) -> Iterator[str]:
    """I2, I5: what is kept for jobs fits, all of it, once those that must have left."""
    held = list(case.after(leavers_gone=True).values())
    own = [(case.job(move["job"]), move["kept"]) for move in preemptors(case)]
    yield from case.excess([*held, *own], own)
    for move in case.of("stop"):
        if move["for"] not in {other["job"] for other in preemptors(case)}:
            yield f"{move['job']} is stopped for nobody"


def every_stop_is_needed(case: DecisionCase) -> Iterator[str]:
    """No job stops for one that fits beside it once all others that leave are gone.

    Asked only where nothing but room decides: no guarantee, no limit in the way, no reservation.
    """
    if any(queue["guaranteed"] for queue in case.seen["queue"].values()):
        return
    for hold in preemptors(case):
        before = case.before(hold)
        is_alone = all("kept" not in m or m in preemptors(before) for m in before.of("hold"))
        if not is_alone or before.limit_in_the_way(hold["job"]):
            continue
        made = [move for move in before.moves if move["do"] in ("stop", "resize")]
        own = takewhile(lambda move: move["do"] in ("stop", "resize"), reversed(before.moves))
        for move in own:
            gone = {other["job"]: other.get("places", {}) for other in made if other is not move}
            if move["do"] == "stop" and case.fits(
                hold["job"], used_by(_beside(before, gone).values())
            ):
                yield f"{move['job']} is stopped for {move['for']}, which fits beside it"


def _beside(case: DecisionCase, gone: Mapping[str, Places]) -> dict[str, tuple[Thing, Places]]:
    """Return who holds places if of those that make room only ``gone`` do."""
    jobs = case.seen["job"]
    held = {n: (j, j["places"]) for n, j in jobs.items() if j["phase"] != "leaving"}
    taken = [(m["job"], m["places"]) for m in case.of("start")]
    taken += [(m["job"], m["kept"]) for m in preemptors(case)]
    return held | {name: (jobs[name], places) for name, places in [*taken, *gone.items()]}


def sizes_stay_between_least_and_most(case: DecisionCase) -> Iterator[str]:
    """I1: only steady elastic jobs change, each task within its bounds; no replica moves."""
    for move in case.of("resize"):
        name, job = move["job"], case.job(move["job"])
        if not job["elastic"] or job["tasks"] != job["planned"]:
            yield f"{name} is resized and is not elastic now"
        if case.now - job["resized"] < case.settings.resize_settle_seconds:
            yield f"{name} is resized again before it has settled"
        for task, known in job["planned"].items():
            before, after = job["places"].get(task, {}), move["places"].get(task, {})
            if not known["least"] <= sum(after.values()) <= known["most"]:
                yield f"{name} is given {sum(after.values())} {task}"
            changes = [after.get(n, 0) - before.get(n, 0) for n in {*before, *after}]
            if changes and min(changes) < 0 < max(changes):
                yield f"{name} has replicas of {task} moved"


def replica_0_stays(case: DecisionCase) -> Iterator[str]:
    """A shrink empties the node last on which the others find replica 0."""
    for move in case.of("resize"):
        job = case.job(move["job"])
        for task, before in job["places"].items():
            after = move["places"].get(task, {})
            if job["anchor"] in before and after and job["anchor"] not in after:
                yield f"{move['job']} loses {task} on {job['anchor']}"


def nobody_grows_while_others_wait(case: DecisionCase) -> Iterator[str]:
    """Capacity that a job waits for is not lent."""
    waits = [move["job"] for move in case.of("hold") if move["position"] is not None]
    for move in case.of("resize"):
        if size(move["places"]) > size(case.job(move["job"])["places"]) and waits:
            yield f"{move['job']} grows while {waits} wait"


def only_the_lower_shrink(case: DecisionCase) -> Iterator[str]:
    """Below the size it asked for, a job shrinks for a job of a higher claim or a guarantee."""
    for move in case.of("resize"):
        job = case.job(move["job"])
        asked = {task: known["replicas"] for task, known in job["planned"].items()}
        sizes = {task: sum(spread.values()) for task, spread in move["places"].items()}
        shrinks = any(
            sizes.get(task, 0) < min(asked[task], sum(spread.values()))
            for task, spread in job["places"].items()
        )
        rights = [
            case.claim(other["job"]) > case.claim(move["job"])
            or _yields(case, move["job"], other["job"])
            or _may_reclaim(case, other["job"], move["job"])
            for other in preemptors(case)
        ]
        if shrinks and not any(rights):
            yield f"{move['job']} shrinks for nobody of a higher claim"


def everybody_is_answered_once(case: DecisionCase) -> Iterator[str]:
    """I3: every waiting job starts or gets a reason; others move at most once."""
    waiting = sorted(n for n, job in case.seen["job"].items() if job["phase"] == "waiting")
    answered = sorted(move["job"] for move in case.of("start", "hold"))
    if answered != waiting:
        yield f"{waiting} wait and {answered} are answered"
    moved = [move["job"] for move in case.of("stop", "resize")]
    if len(set(moved)) < len(moved):
        yield f"{sorted(moved)} are moved more than once"
    for name in moved:
        if case.job(name)["phase"] != "running":
            yield f"{name} is moved and is {case.job(name)['phase']}"


def gangs_start_whole(case: DecisionCase) -> Iterator[str]:
    """I1: a start has every task, each between its least and all its replicas."""
    for move in case.of("start"):
        tasks = case.job(move["job"])["tasks"].items()
        bounds = {name: (task["least"], task["replicas"]) for name, task in tasks}
        sizes = {task: sum(spread.values()) for task, spread in move["places"].items()}
        yield from (f"{move['job']} {words}" for words in wrong_sizes(bounds, sizes))


def nodes_hold_what_they_offer(case: DecisionCase) -> Iterator[str]:
    """I2: a job that starts or grows has room before any has left, on nodes that are open."""
    for move in case.of("start", "resize"):
        before = case.job(move["job"])["places"]
        for spread in added(before, move["places"]).values():
            for node in spread:
                known = case.seen["node"].get(node)
                if known is None or not is_open(known):
                    yield f"{move['job']} is put on {node}, which is not open"
    moved = [(case.job(move["job"]), move["places"]) for move in case.of("start", "resize")]
    new = [(job, added(job["places"], places)) for job, places in moved]
    yield from case.excess(case.after(leavers_gone=False).values(), new)


def queues_stay_within_their_limits(case: DecisionCase) -> Iterator[str]:
    """No job starts or grows past the limit of its queue or of one above."""
    taken: list[tuple[str, int]] = []
    for move in case.of("start", "resize"):
        job = case.job(move["job"])
        gpus = gpus_on(job, move["places"]) - gpus_on(job, job["places"])
        if gpus > 0:
            if queue := case.over_limit(move["job"], gpus, taken):
                yield f"{move['job']} passes the limit of {queue}"
            taken.append((job["queue"], gpus))


def a_verdict_is_true(case: DecisionCase) -> Iterator[str]:
    """I3: configuration faults and verdicts on room are given where they hold."""
    for move in case.of("start", "hold"):
        name, why = move["job"], move.get("why", "")
        fault = case.queue_fault(case.job(name)["queue"])
        if fault or why in ("QueueNotFound", "QueueInvalid"):
            if why != fault:
                yield f"{name} is told {why or 'to start'} and its queue is {fault or 'sound'}"
            continue
        fits = case.fits(name, {})
        above_all = _is_beyond_limit(case, name)
        later = case.fits(name, {}, when_ready=True)
        if fits is not None and (why == "NeverFits") != (above_all or not later):
            yield f"{name} is told {why or 'to start'}; it fits an empty cluster: {later}"
        if fits is not None and (why == "NodesNotReady") != (
            not above_all and bool(later) and not fits
        ):
            yield f"{name} is told {why or 'to start'}; it fits ready nodes: {fits}"
        if why == "OverQueueLimit" and not case.before(move).limit_in_the_way(name):
            yield f"{name} is told {why}, which is not so"


def _is_beyond_limit(case: DecisionCase, name: str) -> bool:
    job = case.job(name)
    limits = [case.seen["queue"][queue]["limit"] for queue in case.path(job["queue"])]
    gpus = least_gpus(job)
    return any(limit is not None and gpus > max(0, limit) for limit in limits)


def the_first_in_line_starts_if_it_can(case: DecisionCase) -> Iterator[str]:
    """I4: the job held first, for capacity, did not fit beside those that started before."""
    if case.of("start") and any(node["avoided"] for node in case.seen["node"].values()):
        return  # who starts may have left places for better ones since, and it starts next
    for move in case.of("hold"):
        if move["position"] == 1 and move["why"] == "WaitingForCapacity":
            before = case.before(move)
            is_limited = before.limit_in_the_way(move["job"])
            if not is_limited and case.fits(move["job"], before.used()):
                yield f"{move['job']} is first in line, fits, and is told to wait"


def turns_come_in_order(case: DecisionCase) -> Iterator[str]:
    """I4: lost nodes first, then the line of the overdue, then the combined priority.

    Jobs that lost a node and are equally late go in the order of their arrival.
    """
    turns = [
        move["job"]
        for move in case.of("start", "hold")
        if not case.queue_fault(case.job(move["job"])["queue"])
    ]
    hurried = [n for n in turns if case.job(n)["displaced"] or case.late_in_line(n) > 0]
    hurried.sort(
        key=lambda n: (not case.job(n)["displaced"], -case.late_in_line(n), case.arrival(n), n)
    )
    if turns[: len(hurried)] != hurried:
        yield f"{turns} have their turns, and {hurried} go before all others"
    queues = case.seen["queue"].values()
    rest = [name for name in turns if name not in hurried]
    # With guarantees or weights the queues share out the turns, and priority is not all.
    is_plain = not any(queue["guaranteed"] or queue["weight"] for queue in queues)
    if is_plain and rest != sorted(rest, key=case.rank):
        yield f"{rest} have their turns, by priority {sorted(rest, key=case.rank)}"


def the_line_of_the_overdue_is_short(case: DecisionCase) -> Iterator[str]:
    """The first past its bound is in it, and others only as far as the share of the GPUs goes."""
    waits = {n for n, job in case.seen["job"].items() if job["phase"] == "waiting"}
    line = [move["job"] for move in case.moves if move.get("overdue")]
    first = case.first_past_its_bound(beside=_hopeless(case))
    if first in waits and first not in line:
        yield f"{first} passed its bound first, and is not in the line {line}"
    for name in line:
        if not case.overdue_seconds(name):
            yield f"{name} is in the line, and not past its bound"
    nodes = case.seen["node"].values()
    most = sum(node["offers"]["gpu"] for node in nodes if is_open(node))
    asked = [gpus for name in line if (gpus := least_gpus(case.job(name)))]
    # Cordoned nodes count for those that may use them, so what is open is a part of the capacity.
    is_all_open = all(is_open(node) for node in nodes)
    if is_all_open and len(asked) > 1 and sum(asked) > case.settings.overdue_share * most:
        yield f"the line {line} asks for {asked} of {most} GPUs"


def _hopeless(case: DecisionCase) -> set[str]:
    """Return the jobs that no room would help, as they are told; that this is true is checked."""
    return {move["job"] for move in case.of("hold") if move["position"] is None}


def starts_ahead_name_the_blocked_job(case: DecisionCase) -> Iterator[str]:
    """I4: starts before the blocked job name none, those after it name it."""
    blocked = ""
    for move in case.of("start", "hold"):
        if move["do"] == "start" and move["passed"] != blocked:
            yield f"{move['job']} starts ahead of {move['passed']!r}, blocked is {blocked!r}"
        if move["do"] == "hold" and move["why"] == "WaitingForCapacity" and "kept" in move:
            if blocked:
                yield f"places are kept for {blocked} and for {move['job']}"
            blocked = move["job"]


def nobody_takes_reserved_places(case: DecisionCase) -> Iterator[str]:
    """I4, I5: at its start a reservation fits beside all that are still there, and what is kept.

    Gangs expected to end before are gone then; beside a closed one, only those count that
    started after it, for all others will be gone. So will those that yield.
    """
    held = case.after(leavers_gone=True)
    kept = [(case.job(m["job"]), m["kept"]) for m in preemptors(case)]
    for move in case.of("hold"):
        if "kept" not in move or move["why"] == "WaitingForPreemption":
            continue
        if move["kept_from"] < case.now:
            yield f"{move['job']} is promised places in the past"
        own = (case.job(move["job"]), move["kept"])
        before = {m["job"] for m in case.before(move).moves}
        yielding = {m["job"] for m in case.of("start") if m["yields"]}
        running = (n for n, job in case.seen["job"].items() if job["phase"] == "running")
        yielding |= {name for name in running if _yields(case, name, move["job"])}
        later = {m["job"] for m in case.of("start")} - before - yielding
        if move["closed"]:
            beside = [held[name] for name in sorted(later)]
        else:
            stays = {n for n in held if not _is_gone(case, n, move["kept_from"])} - yielding
            beside = [*(held[name] for name in sorted(stays)), *kept]
        for words in case.excess([own, *beside], [own]):
            yield f"in what is kept for {move['job']}, {words}"


def _is_gone(case: DecisionCase, name: str, at: float) -> bool:
    """Return whether a job that runs, or is started now, is expected to have ended at ``at``."""
    job = case.job(name)
    if job["phase"] != "waiting":
        return case.expected_end(name) <= at
    return job["estimate"] is not None and case.now + job["estimate"] <= at


CHECKS: tuple[Callable[[DecisionCase], Iterator[str]], ...] = (
    everybody_is_answered_once,
    gangs_start_whole,
    nodes_hold_what_they_offer,
    queues_stay_within_their_limits,
    a_verdict_is_true,
    the_first_in_line_starts_if_it_can,
    turns_come_in_order,
    the_line_of_the_overdue_is_short,
    starts_ahead_name_the_blocked_job,
    nobody_takes_reserved_places,
    only_those_stop_that_may,
    only_the_lower_make_room,
    room_that_is_made_is_enough,
    every_stop_is_needed,
    sizes_stay_between_least_and_most,
    replica_0_stays,
    nobody_grows_while_others_wait,
    only_the_lower_shrink,
)


def violations(case: DecisionCase) -> Iterator[str]:
    for check in CHECKS:
        yield from (f"{check.__name__}: {words}" for words in check(case))


@dataclass(slots=True)
class Promises:
    """Promises of the decisions so far.

    Attributes:
        start: The job that is first in line with a reservation, and when it should start.
        first: The job that goes before all others; "" where there is none.
        ran: Jobs with places when it became the first, as (name, start).
    """

    start: tuple[str, float] | None = None
    first: str = ""
    ran: frozenset[tuple[str, float]] = frozenset()

    def void(self) -> None:
        """Forget the promises: something happened that none covers."""
        self.start, self.first = None, ""

    def broken(self, case: DecisionCase) -> Iterator[str]:
        """Yield the promises that ``case`` breaks; the next case is held against it."""
        yield from self._postponed(case)
        yield from self._kept_waiting(case)

    def _postponed(self, case: DecisionCase) -> Iterator[str]:
        """A reservation of the first in line moves to later only for estimates that were wrong."""
        before, self.start = self.start, None
        line = [m for m in case.of("start", "hold") if m["do"] == "start" or m["position"]]
        first = line[0] if line else {}
        # A closed reservation starts once all that run are gone, not at a time.
        if "kept" not in first or first["closed"] or len(case.job(first["job"])["tasks"]) > 1:
            return
        if _somebody_outran_its_estimate(case):
            return
        self.start = (first["job"], first["kept_from"])
        if before and before[0] == first["job"] and self.start[1] > max(before[1], case.now):
            yield f"{before[0]} was to start at {before[1]} and now at {self.start[1]}"

    def _kept_waiting(self, case: DecisionCase) -> Iterator[str]:
        """The first past its bound starts once all have left that ran when it became so.

        What runs in its places since then is stopped at once. It is the first once those have left,
        too, that run and passed their bound before it did.
        """
        holding = frozenset((n, j["started"]) for n, j in case.seen["job"].items() if j["places"])
        first = _first_in_line(case)
        if first != self.first:
            self.first, self.ran = first, holding
        self.ran &= holding
        leaves = any(job["phase"] == "leaving" for job in case.seen["job"].values())
        leaves |= any(move["for"] == first for move in case.of("stop"))
        if first in {move["job"] for move in case.of("start")}:
            self.first = ""
        elif first and not self.ran and not leaves:
            yield f"{first} goes before all others, and waits for jobs that came later"


def _somebody_outran_its_estimate(case: DecisionCase) -> bool:
    jobs = [job for job in case.seen["job"].values() if job["places"] and job["estimate"]]
    return any(job["started"] + job["estimate"] <= case.now for job in jobs)


def _first_in_line(case: DecisionCase) -> str:
    """Return the job that was displaced or is longest overdue, if it can run at all."""
    hopeless = _hopeless(case)
    line = sorted(
        (not job["displaced"], -case.overdue_seconds(name), name)
        for name, job in case.seen["job"].items()
        if job["phase"] == "waiting"
        and name not in hopeless
        and (job["displaced"] or case.overdue_seconds(name) > 0)
    )
    if not line or case.over_limit(line[0][2], least_gpus(case.job(line[0][2]))):
        return ""
    name = line[0][2]
    is_first = case.job(name)["displaced"] or case.first_past_its_bound(hopeless) == name
    return name if is_first else ""
