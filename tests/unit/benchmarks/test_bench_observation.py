"""The observer keeps the first time of everything."""

import pytest

from benchmarks.timings.arena import Meta, ObservationError, Observed, Observer, PodSpec, Status


def a_pod(node: str | None = None, **status: object) -> Observed:
    return Observed(Meta(name="p"), PodSpec(node), Status(**status))  # type: ignore[arg-type]  # as the case needs


def test_a_pod_is_bound_once_and_ends_once() -> None:
    seen = Observer()
    for now, event, pod in (
        (1.0, "ADDED", a_pod()),
        (2.0, "MODIFIED", a_pod("n0")),
        (3.0, "MODIFIED", a_pod("n0", phase="Running")),
        (4.0, "MODIFIED", a_pod("n0", phase="Succeeded")),
        (5.0, "DELETED", a_pod("n0", phase="Succeeded")),
    ):
        seen.take_pod(event, pod, now)
    assert (seen.created, seen.bound, seen.ended) == ({"p": 1.0}, {"p": 2.0}, {"p": 4.0})


def test_an_unschedulable_pod_and_a_first_reason_are_noted() -> None:
    seen = Observer()
    seen.take_pod("MODIFIED", a_pod(conditions=[{"reason": "Unschedulable"}]), 2.0)
    seen.take_job("ADDED", Observed(Meta(name="j")), 1.0)
    for now, reason in ((2.0, "WaitingForCapacity"), (3.0, "Admitted")):
        seen.take_job("MODIFIED", Observed(Meta(name="j"), status=Status(reason=reason)), now)
    assert seen.unschedulable == {"p": 2.0}
    assert seen.reasons == {"j": (2.0, "WaitingForCapacity")}
    seen.forget()
    assert not any((seen.unschedulable, seen.reasons, seen.created))


async def test_a_wait_that_is_not_met_says_what_was_seen() -> None:
    seen = Observer()
    seen.take_pod("MODIFIED", a_pod("n0"), 1.0)
    await seen.until("one pod", lambda: len(seen.bound) == 1, 1)
    with pytest.raises(ObservationError, match=r"waited 0.01 s for two pods; seen: 1 bound"):
        await seen.until("two pods", lambda: len(seen.bound) == 2, 0.01)
