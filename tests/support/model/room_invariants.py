"""Who makes room for whom: what must hold of every stop and every resize, over dictionaries."""

from collections.abc import Callable, Iterator, Mapping
from itertools import takewhile

from tests.support.model.standing import Case, least_gpus, size
from tests.support.model.truth import Places, Thing, used_by
from tests.support.model.views import Move


def kept(case: Case) -> list[Move]:
    """The holds of jobs for which others make room, or are leaving already."""
    return [move for move in case.of("hold") if move["why"] == "WaitingForPreemption"]


def only_those_stop_that_may(case: Case) -> Iterator[str]:
    """A job is left alone at first, and for good after so many evictions."""
    for move in case.of("stop"):
        job, rules = case.job(move["job"]), case.settings
        if max(0.0, case.now - job["started"]) < rules.min_runtime_seconds:
            yield f"{move['job']} is stopped before its minimum run time"
        if job["evictions"] >= rules.eviction_budget:
            yield f"{move['job']} is stopped once more after {job['evictions']} evictions"


def only_the_lower_make_room(case: Case) -> Iterator[str]:
    """A stop is for a waiting job that goes before, has the higher claim and is longer overdue.

    Unless its queue takes its guarantee back from one that holds more than its own.
    """
    beneficiaries = {move["job"] for move in kept(case)}
    for move in case.of("stop"):
        name, other = move["for"], move["job"]
        if name not in beneficiaries:
            yield f"{other} is stopped for {name}, which does not wait for it"
        elif not _ranks_above(case, name, other) and not _may_reclaim(case, name, other):
            yield f"{other} is stopped for {name}, which has no right to its places"


def _ranks_above(case: Case, name: str, other: str) -> bool:
    late = case.overdue_seconds(other)
    return (
        case.claim(name) > case.claim(other)
        and case.rank(name) < case.rank(other)
        and (case.job(name)["displaced"] or late <= case.overdue_seconds(name))
    )


def _may_reclaim(case: Case, name: str, other: str) -> bool:
    """What a reclaim needs at least: a guarantee that holds the gang, a victim's that is passed."""
    ours = case.path(case.job(name)["queue"])
    theirs = case.path(case.job(other)["queue"])
    apart = [queue for queue in ours if queue not in theirs]
    if not apart or least_gpus(case.job(name)) > case.guaranteed(apart[-1]):
        return False
    return not any(
        0 < case.held(queue) <= case.guaranteed(queue) for queue in theirs if queue not in ours
    )


def room_that_is_made_is_enough(case: Case) -> Iterator[str]:
    """I2, I5: what is kept for jobs fits, all of it, once those that must have left."""
    held = list(case.after(leavers_gone=True).values())
    own = [(case.job(move["job"]), move["kept"]) for move in kept(case)]
    yield from case.excess([*held, *own], own)
    for move in case.of("stop"):
        if move["for"] not in {other["job"] for other in kept(case)}:
            yield f"{move['job']} is stopped for nobody"


def every_stop_is_needed(case: Case) -> Iterator[str]:
    """Nobody stops for a job that fits beside it once those have left that leave for it or anyway.

    So leave those that make room for a job before it. Asked only where nothing but room decides: no
    guarantee, no limit in the way, no reservation.
    """
    if any(queue["guaranteed"] for queue in case.seen["queue"].values()):
        return
    for hold in kept(case):
        before = case.before(hold)
        is_alone = all("kept" not in m or m in kept(before) for m in before.of("hold"))
        if not is_alone or before.limit_in_the_way(hold["job"]):
            continue
        made = [move for move in before.moves if move["do"] in ("stop", "resize")]
        own = takewhile(lambda move: move["do"] in ("stop", "resize"), reversed(before.moves))
        for move in own:
            gone = {other["job"]: other.get("places", {}) for other in made if other is not move}
            if move["do"] == "stop" and case.fits(hold["job"], used_by(_beside(before, gone))):
                yield f"{move['job']} is stopped for {move['for']}, which fits beside it"


def _beside(case: Case, gone: Mapping[str, Places]) -> dict[str, Thing]:
    """Who holds places if of those that make room only ``gone`` do, and what they have left."""
    jobs = case.seen["job"]
    held = {n: j for n, j in jobs.items() if j["places"] and j["phase"] != "leaving"}
    taken = [(m["job"], m["places"]) for m in case.of("start")]
    taken += [(m["job"], m["kept"]) for m in kept(case)]
    return held | {name: {**jobs[name], "places": p} for name, p in [*taken, *gone.items()]}


def sizes_stay_between_least_and_most(case: Case) -> Iterator[str]:
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


def replica_0_stays(case: Case) -> Iterator[str]:
    """A shrink empties the node last on which the others find replica 0."""
    for move in case.of("resize"):
        job = case.job(move["job"])
        for task, before in job["places"].items():
            after = move["places"].get(task, {})
            if job["anchor"] in before and after and job["anchor"] not in after:
                yield f"{move['job']} loses {task} on {job['anchor']}"


def nobody_grows_while_others_wait(case: Case) -> Iterator[str]:
    """Capacity that somebody waits for is lent to nobody."""
    waits = [move["job"] for move in case.of("hold") if move["position"] is not None]
    for move in case.of("resize"):
        if size(move["places"]) > size(case.job(move["job"])["places"]) and waits:
            yield f"{move['job']} grows while {waits} wait"


def only_the_lower_shrink(case: Case) -> Iterator[str]:
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
            or _may_reclaim(case, other["job"], move["job"])
            for other in kept(case)
        ]
        if shrinks and not any(rights):
            yield f"{move['job']} shrinks for nobody of a higher claim"


CHECKS: tuple[Callable[[Case], Iterator[str]], ...] = (
    only_those_stop_that_may,
    only_the_lower_make_room,
    room_that_is_made_is_enough,
    every_stop_is_needed,
    sizes_stay_between_least_and_most,
    replica_0_stays,
    nobody_grows_while_others_wait,
    only_the_lower_shrink,
)
