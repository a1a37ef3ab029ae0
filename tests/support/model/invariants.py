"""What must hold of every decision, said slowly over dictionaries; each check has a name.

The numbers are those of the reliability plan: I1 gangs whole, I2 capacity, I3 nothing lost, I4
order, I5 nothing kept for nobody; I8 (equal snapshots, equal decisions) needs two decisions and is
asked by whoever makes them. Who makes room for whom is in
:mod:`tests.support.model.room_invariants`.
"""

from collections.abc import Callable, Iterator

from tests.support.model import room_invariants
from tests.support.model.standing import Case, gpus_on, least_gpus
from tests.support.model.truth import Places, added, is_open


def everybody_is_answered_once(case: Case) -> Iterator[str]:
    """I3: every waiting job is started or told why not; others move at most once."""
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


def gangs_start_whole(case: Case) -> Iterator[str]:
    """I1: a start has every task, each between its least and all its replicas."""
    for move in case.of("start"):
        yield from _not_whole(case, move["job"], move["places"])


def _not_whole(case: Case, name: str, places: Places) -> Iterator[str]:
    for task, known in case.job(name)["tasks"].items():
        size = sum(places.get(task, {}).values())
        if not known["least"] <= size <= known["replicas"]:
            yield f"{name} starts with {size} of {known['replicas']} {task}"


def nodes_hold_what_they_offer(case: Case) -> Iterator[str]:
    """I2: whoever starts or grows has room before anybody has left, on nodes that are open."""
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


def queues_stay_within_their_limits(case: Case) -> Iterator[str]:
    """Nobody starts or grows past the limit of its queue or of one above."""
    taken: list[tuple[str, int]] = []
    for move in case.of("start", "resize"):
        job = case.job(move["job"])
        gpus = gpus_on(job, move["places"]) - gpus_on(job, job["places"])
        if gpus > 0:
            if queue := case.over_limit(move["job"], gpus, taken):
                yield f"{move['job']} passes the limit of {queue}"
            taken.append((job["queue"], gpus))


def a_verdict_is_true(case: Case) -> Iterator[str]:
    """I3: configuration faults, ``NeverFits`` and ``OverQueueLimit`` are said where they hold."""
    for move in case.of("start", "hold"):
        name, why = move["job"], move.get("why", "")
        fault = case.queue_fault(case.job(name)["queue"])
        if fault or why in ("QueueNotFound", "QueueInvalid"):
            if why != fault:
                yield f"{name} is told {why or 'to start'} and its queue is {fault or 'sound'}"
            continue
        fits = case.fits(name, {})
        above_all = _is_beyond_limit(case, name)
        if fits is not None and (why == "NeverFits") != (above_all or not fits):
            yield f"{name} is told {why or 'to start'}; it fits an empty cluster: {fits}"
        if why == "OverQueueLimit" and not case.before(move).limit_in_the_way(name):
            yield f"{name} is told {why}, which is not so"


def _is_beyond_limit(case: Case, name: str) -> bool:
    job = case.job(name)
    limits = [case.seen["queue"][queue]["limit"] for queue in case.path(job["queue"])]
    gpus = least_gpus(job)
    return any(limit is not None and gpus > max(0, limit) for limit in limits)


def the_first_in_line_starts_if_it_can(case: Case) -> Iterator[str]:
    """I4: whoever is held first, for capacity, did not fit beside those that started before."""
    for move in case.of("hold"):
        if move["position"] == 1 and move["why"] == "WaitingForCapacity":
            before = case.before(move)
            is_limited = before.limit_in_the_way(move["job"])
            if not is_limited and case.fits(move["job"], before.used()):
                yield f"{move['job']} is first in line, fits, and is told to wait"


def turns_come_in_order(case: Case) -> Iterator[str]:
    """I4: lost nodes first, then the longest overdue, then the combined priority."""
    turns = [
        move["job"]
        for move in case.of("start", "hold")
        if not case.queue_fault(case.job(move["job"])["queue"])
    ]
    hurried = [n for n in turns if case.job(n)["displaced"] or case.overdue_seconds(n) > 0]
    hurried.sort(key=lambda n: (not case.job(n)["displaced"], -case.overdue_seconds(n), n))
    if turns[: len(hurried)] != hurried:
        yield f"{turns} have their turns, and {hurried} go before all others"
    queues = case.seen["queue"].values()
    rest = [name for name in turns if name not in hurried]
    is_plain = not any(queue["guaranteed"] or queue["weight"] for queue in queues)
    if is_plain and rest != sorted(rest, key=case.rank):
        yield f"{rest} have their turns, by priority {sorted(rest, key=case.rank)}"


def whoever_goes_ahead_says_of_whom(case: Case) -> Iterator[str]:
    """I4: starts before the blocked job name nobody, those after it name it."""
    blocked = ""
    for move in case.of("start", "hold"):
        if move["do"] == "start" and move["passed"] != blocked:
            yield f"{move['job']} starts ahead of {move['passed']!r}, blocked is {blocked!r}"
        if move["do"] == "hold" and move["why"] == "WaitingForCapacity" and "kept" in move:
            if blocked:
                yield f"places are kept for {blocked} and for {move['job']}"
            blocked = move["job"]


def nobody_takes_reserved_places(case: Case) -> Iterator[str]:
    """I4, I5: at its start a reservation fits beside all that are still there, and what is kept.

    Whoever is expected to end before is gone then; beside a closed one, only those count who
    started after it, for all others will be gone.
    """
    held = case.after(leavers_gone=True)
    kept = [(case.job(m["job"]), m["kept"]) for m in room_invariants.kept(case)]
    for move in case.of("hold"):
        if "kept" not in move or move["why"] == "WaitingForPreemption":
            continue
        if move["kept_from"] < case.now:
            yield f"{move['job']} is promised places in the past"
        own = (case.job(move["job"]), move["kept"])
        later = {m["job"] for m in case.of("start")} - {m["job"] for m in case.before(move).moves}
        if move["closed"]:
            beside = [held[name] for name in sorted(later)]
        else:
            stays = {n for n in held if not _is_gone(case, n, move["kept_from"])}
            beside = [*(held[name] for name in sorted(stays)), *kept]
        for words in case.excess([own, *beside], [own]):
            yield f"in what is kept for {move['job']}, {words}"


def _is_gone(case: Case, name: str, at: float) -> bool:
    """Whether a job that runs, or is started now, is expected to have ended at ``at``."""
    job = case.job(name)
    if job["phase"] != "waiting":
        return case.expected_end(name) <= at
    return job["estimate"] is not None and case.now + job["estimate"] <= at


CHECKS: tuple[Callable[[Case], Iterator[str]], ...] = (
    everybody_is_answered_once,
    gangs_start_whole,
    nodes_hold_what_they_offer,
    queues_stay_within_their_limits,
    a_verdict_is_true,
    the_first_in_line_starts_if_it_can,
    turns_come_in_order,
    whoever_goes_ahead_says_of_whom,
    nobody_takes_reserved_places,
    *room_invariants.CHECKS,
)


def violations(case: Case) -> Iterator[str]:
    """Every check that ``case`` breaks, by name, and how."""
    for check in CHECKS:
        yield from (f"{check.__name__}: {words}" for words in check(case))
