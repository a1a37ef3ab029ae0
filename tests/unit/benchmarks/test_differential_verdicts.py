"""The comparison itself: what is the same passes, and every difference is reported."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from benchmarks.differential.course import Change, Course, differences, of_history, tied_starts
from benchmarks.differential.runner import Seen
from benchmarks.differential.scenarios import Scenario, Submission
from benchmarks.differential.simulations import as_planned, as_seen, is_unambiguous, trace_of
from benchmarks.differential.verdicts import verdict_on
from testbed.controlplane.nodes import fake_nodes
from testbed.history.builder import HistoryBuilder
from testbed.scenario.manifests import annotations, queue, task, training_job

Mutation = Callable[[list[Change]], list[Change]]


def a_submission(
    name: str, at: float, run_seconds: float = 4.0, workers: int = 4, gpus: int = 1, **spec: str
) -> Submission:
    asked = task(replicas=workers, gpus=gpus, fake=annotations(f"{run_seconds:g}s"))
    return Submission(at, run_seconds, training_job(name, asked, queue="one", **spec))


def a_scenario(*submissions: Submission) -> Scenario:
    """Two nodes of four GPUs and one queue."""
    nodes = tuple(fake_nodes(2, gpus=4, racks=1))
    return Scenario(0, nodes, (queue("one"),), submissions, until_seconds=40.0)


FULL = a_scenario(
    a_submission("first", 0, 10),
    a_submission("second", 1),
    a_submission("urgent", 2, 3, priorityClassName="urgent"),
    a_submission("third", 3),
    a_submission("fourth", 4),
)
"""The urgent gang stops the second at 2 s, which follows it at 5 s, then the third at 9 s; at 10 s
the fourth follows the first."""


def seen_as(course: Course, mutation: Mutation = lambda changes: changes) -> Seen:
    """The course of a cluster, a little late, and changed by ``mutation``."""
    late = [replace(change, seconds=change.seconds + 0.3) for change in course.changes]
    return Seen(replace(course, changes=tuple(mutation(late))), until_seconds=40.0)


def renamed(changes: list[Change], names: dict[str, str], kind: str) -> list[Change]:
    """The gangs of one kind of changes exchanged."""
    return [replace(d, gang=names.get(d.gang, d.gang)) if d.kind == kind else d for d in changes]


def moved(changes: list[Change], gang: str, seconds: float) -> list[Change]:
    """All changes of a gang so much later."""
    later = [replace(d, seconds=d.seconds + seconds) if d.gang == gang else d for d in changes]
    return sorted(later, key=lambda change: change.seconds)


def on_other_nodes(changes: list[Change]) -> list[Change]:
    other = {"gpu-00": "gpu-01", "gpu-01": "gpu-00"}
    *rest, last = changes
    places = {(name, other[node]): count for (name, node), count in last.places.items()}
    return [*rest, replace(last, places=places)]


def test_a_cluster_that_does_what_the_simulator_does_is_the_same() -> None:
    verdict = verdict_on(FULL, seen_as(as_planned(FULL)))
    assert (verdict.word, list(verdict.lines)) == ("same", [])
    assert verdict.delays == pytest.approx([0.3] * 6)
    assert [change.gang for change in verdict.expected.changes if change.kind == "stop"] == [
        "second"
    ]


@pytest.mark.parametrize(
    ("mutation", "message"),
    [
        pytest.param(
            lambda changes: [d for d in changes if d.gang != "third"],
            "start of third (4 on gpu-01) at 9.0 s in the simulator, never in the cluster",
            id="a start that is missing",
        ),
        pytest.param(
            lambda changes: [*changes, Change(12.0, "resize", "third", {})],
            "resize of third at 12.0 s in the cluster, never in the simulator",
            id="a resize that nobody decided",
        ),
        pytest.param(
            lambda changes: renamed(changes, {"second": "first"}, "stop"),
            "stop of first at 2.3 s in the cluster, never in the simulator",
            id="the wrong victim",
        ),
        pytest.param(
            lambda changes: [d for d in changes if d.kind != "stop"],
            "but stop of second at 2.0 s in the simulator",
            id="a stop that is missing",
        ),
        pytest.param(on_other_nodes, "in the cluster, but start of", id="the wrong nodes"),
        pytest.param(
            lambda changes: renamed(changes, {"third": "fourth", "fourth": "third"}, "start"),
            "start of third (4 on gpu-00) at 10.3 s in the cluster, but start of third",
            id="two starts that changed places",
        ),
        pytest.param(
            lambda changes: moved(changes, "fourth", 2.5),
            "more than 2 s apart",
            id="a start long after its moment",
        ),
    ],
)
def test_whatever_else_a_cluster_does_is_reported(mutation: Mutation, message: str) -> None:
    verdict = verdict_on(FULL, seen_as(as_planned(FULL), mutation))
    assert verdict.word == "differs"
    assert message in "\n".join(verdict.lines)


def starts(*gangs: tuple[float, str]) -> Course:
    return Course(
        tuple(Change(at, "start", gang, {("worker", "n0"): 1}) for at, gang in gangs), {}, {}
    )


def test_starts_of_one_moment_come_in_any_order_and_those_of_two_do_not() -> None:
    tied = starts((1.0, "a"), (1.0, "b"), (2.0, "c"))
    assert tied_starts(tied) == 2
    assert differences(tied, starts((1.2, "b"), (1.3, "a"), (2.1, "c")), 2.0) == []
    (line,) = differences(tied, starts((1.2, "b"), (1.8, "c"), (1.9, "a")), 2.0)
    assert line == (
        "start of a after that of c in the cluster; in the simulator before, at 1.0 and 2.0 s"
    )


def test_a_start_that_waited_for_a_stop_is_due_when_that_has_ended() -> None:
    expected, seen = starts((3.2, "a")), starts((6.2, "a"))
    assert differences(expected, seen, 2.0)
    assert not differences(expected, replace(seen, stoppings=((3.5, 6.0),)), 2.0)
    for stop in ((3.5, 4.0), (5.5, 6.0)):  # one that ended long before, one of another gang later
        (line,) = differences(expected, replace(seen, stoppings=(stop,)), 2.0)
        assert line.endswith("more than 2 s apart")


def test_a_history_is_read_as_starts_stops_resizes_and_ends() -> None:
    story = HistoryBuilder()
    story.wait(10.0)
    began = story.seconds
    story.job("Pending")
    story.plan({"0-1": "n0"})
    story.plan({"0-1": "n0"})  # the same plan, written again
    story.job("Running")
    story.plan({"0-1": "n0", "2": "n1"})
    story.pod("0", "n0", "Running")
    story.job("Restarting", attempt=1)
    story.plan(None)
    story.job("Restarting", attempt=1)
    story.pod("0", "n0", "Failed", change="DELETED")
    story.plan({"0": "n1"}, attempt=1)
    story.pod("0", "n1", "Running", plan="1.1")
    story.pod("0", "n1", "Succeeded", plan="1.1")
    course = of_history(story.records, "ns", began)
    assert [(change.kind, dict(change.places)) for change in course.changes] == [
        ("start", {("worker", "n0"): 2}),
        ("resize", {("worker", "n0"): 2, ("worker", "n1"): 1}),
        ("stop", {}),
        ("start", {("worker", "n1"): 1}),
    ]
    assert course.arrivals == pytest.approx({"j": 0.1})
    assert course.ends == pytest.approx({"j": 1.3})
    (ending,), (stopping,) = course.endings, course.stoppings
    assert ending == pytest.approx((1.3, 1.3))
    assert stopping == pytest.approx((0.7, 1.0))
    assert of_history(story.records, "elsewhere", began).changes == ()


def test_a_trace_says_what_its_manifests_say() -> None:
    workers = task(replicas=3, gpus=2, minReplicas=1, maxReplicas=5)
    manifest = training_job(
        "grows",
        workers,
        rendezvous="torch",
        queue="one",
        priorityClassName="urgent",
        estimatedDuration="90s",
    )
    (job,) = trace_of(a_scenario(Submission(7.0, None, manifest))).jobs
    (asked,) = job.tasks
    assert (job.name, job.submitted, job.queue, job.priority) == ("grows", 7.0, "one", 1000)
    assert (job.is_elastic, job.estimated_seconds) == (True, 90.0)
    assert (asked.minimum, asked.replicas, asked.maximum) == (1, 3, 5)
    assert dict(asked.request)["nvidia.com/gpu"] == 2


def test_what_a_slow_cluster_rightly_decides_otherwise_is_late() -> None:
    """The first gang ends only after the wide one came, which goes before the narrow one."""
    others = (a_submission("narrow", 1, 4, 2, gpus=4), a_submission("wide", 5, 4, 8))
    scenario = a_scenario(a_submission("first", 0, 4, 8), *others)
    slow = a_scenario(a_submission("first", 0, 5.5, 8), *others)
    assert [change.gang for change in as_planned(scenario).starts] == ["first", "narrow", "wide"]
    verdict = verdict_on(scenario, seen_as(as_planned(slow)))
    assert [change.gang for change in verdict.seen.starts] == ["first", "wide", "narrow"]
    assert verdict.word == "late"
    assert "start of narrow after that of wide in the cluster" in verdict.lines[0]


def test_what_came_while_a_gang_was_being_stopped_is_no_difference_and_no_agreement() -> None:
    seen = seen_as(as_planned(FULL), on_other_nodes)
    slow = replace(seen.course, stoppings=((2.3, 3.5),))
    assert verdict_on(FULL, replace(seen, course=slow)).word == "overtaken"
    torn = replace(seen.course, endings=((8.9, 9.5),))
    assert verdict_on(FULL, replace(seen, course=torn)).word == "overtaken"
    quick = replace(seen.course, stoppings=((2.3, 2.9),))
    whole = replace(quick, endings=((9.0, 9.01),))
    assert verdict_on(FULL, replace(seen, course=whole)).word == "differs"


def test_as_seen_ends_gangs_when_the_cluster_did_also_those_that_start_after_them() -> None:
    course = as_planned(FULL)
    seen = replace(course, ends={name: end + 0.5 for name, end in course.ends.items()})
    assert as_seen(FULL, seen, 40.0).ends == pytest.approx(seen.ends)


def test_scenario_in_which_a_fraction_of_a_second_decides_has_no_right_answer() -> None:
    at_once = [a_submission(name, 0, 4, 8) for name in ("one", "other")]
    assert not is_unambiguous(a_scenario(*at_once))
    assert is_unambiguous(a_scenario(at_once[0], a_submission("other", 1, 4, 8)))
