"""Reports of ``bireme why`` and ``bireme queue`` about gangs, from what stands on their objects."""

from typing import Any

import pytest

from bireme.cli.gangs import GangLine, in_line, line_of
from bireme.cli.queues import table
from bireme.cli.why import Explanation, remedy
from bireme.core.reasons import Attention, Reason
from bireme.kube import quantities

NOW = quantities.parse_timestamp("2026-11-22T12:00:00Z") or 0.0


def job(name: str, **status: Any) -> dict[str, Any]:
    about = {"name": name, "namespace": "team", "creationTimestamp": "2026-11-22T11:00:00Z"}
    return {"kind": "TrainingJob", "metadata": about, "spec": {"queue": "q"}, "status": status}


def waiting(name: str, position: int, **more: Any) -> dict[str, Any]:
    status = {"phase": "Pending", "reason": "WaitingForCapacity", "queuePosition": position}
    return job(name, **status, gpus=8, queuedTime="2026-11-22T11:30:00Z", **more)


def explained(manifest: dict[str, Any], *others: dict[str, Any], **more: Any) -> Explanation:
    everyone = [manifest, *others]
    return Explanation(line_of(manifest), in_line(everyone), more.get("queue"), NOW)


def test_the_dominant_reason_comes_first_with_what_helps() -> None:
    shown = explained(waiting("a", 1, message="asks 8 GPUs, 4 missing")).text().splitlines()
    assert shown[0] == "TrainingJob team/a: Pending, queue q, 8 GPUs"
    assert shown[2:4] == ["WaitingForCapacity", "  asks 8 GPUs, 4 missing"]
    assert shown[4].startswith("  What helps: time, as others end.")


def test_a_gang_that_waits_again_or_failed_says_why_its_last_run_ended() -> None:
    end = "replica 1 of worker: container train exited with 137 (OOMKilled, SIGKILL)"
    condition = {"type": "Running", "status": "False", "reason": "PodFailed", "message": end}
    again = explained(waiting("a", 1, message="asks 8 GPUs", conditions=[condition]))
    assert f"last run  PodFailed: {end}\n" in again.text()
    assert again.to_json()["lastStop"] == f"PodFailed: {end}"
    over = {"phase": "Failed", "reason": "PodFailed", "message": end, "conditions": [condition]}
    assert explained(job("a", **over)).text().count("OOMKilled") == 1
    on_again = job("a", phase="Running", conditions=[{**condition, "status": "True"}])
    assert "last run" not in explained(on_again).text()


def test_the_chain_tells_position_factors_and_who_is_ahead() -> None:
    factors = [
        {"name": "job", "value": 0.5, "weight": 0.35, "contribution": 0.175},
        {"name": "service", "value": 0.25, "weight": -0.5, "contribution": -0.125},
    ]
    own = waiting("c", 3, priority={"score": 0.05, "factors": factors})
    shown = explained(own, waiting("b", 2), waiting("a", 1)).text()
    assert "waits     30 min\norder     position 3 of 3\n" in shown
    assert "priority  0.05 = job 0.5 x 0.35 - service 0.25 x 0.5\n" in shown
    ahead = "ahead     1. team/a: 8 GPUs, waits 30 min, WaitingForCapacity\n          2. team/b:"
    assert ahead in shown


def test_only_the_first_five_ahead_are_named() -> None:
    others = [waiting(f"j{n}", n) for n in range(1, 9)]
    shown = explained(waiting("last", 9), *others).text()
    assert "5. team/j5" in shown
    assert "6. team/j6" not in shown
    assert "and 3 more" in shown


@pytest.mark.parametrize(
    ("latest", "words"),
    [
        (None, "start     expected in 10 min (2026-11-22T12:10:00Z), or sooner\n"),
        ("2026-11-22T12:10:00Z", "expected in 10 min (2026-11-22T12:10:00Z), or sooner\n"),
        ("2026-11-22T13:00:00Z", ", or sooner; by 2026-11-22T13:00:00Z in 60 min\n"),
    ],
)
def test_the_start_is_a_range_as_far_as_anybody_can_say(latest: str | None, words: str) -> None:
    start = {"earliest": "2026-11-22T12:10:00Z"} | ({"latest": latest} if latest else {})
    assert words in explained(waiting("a", 1, estimatedStart=start)).text()


@pytest.mark.parametrize(
    ("earliest", "words", "cell"),
    [
        ("12:10:00", "in 10 min to 60 min (2026-11-22T12:10:00Z to 2026-11-22T13:00:00Z)",
         "in 10 min to 60 min"),
        ("12:59:30", "in 60 min (2026-11-22T12:59:30Z to 2026-11-22T13:00:00Z)", "in 60 min"),
    ],
)  # fmt: skip
def test_a_learned_range_says_how_many_starts_such_ranges_hold(
    earliest: str, words: str, cell: str
) -> None:
    start = {"earliest": f"2026-11-22T{earliest}Z", "latest": "2026-11-22T13:00:00Z"}
    manifest = waiting("a", 1, estimatedStart=start | {"coveragePercent": 90})
    shown = explained(manifest)
    assert f"expected {words}; such ranges hold 90 % of starts\n" in shown.text()
    assert shown.to_json()["estimatedStart"] == start | {"coveragePercent": 90}
    assert f"  {cell}  " in table(in_line([manifest]), NOW)


def test_a_start_of_which_nobody_can_say_anything_is_shown_as_such() -> None:
    assert "unknown: no places are kept for it yet" in explained(waiting("a", 1)).text()


def test_the_queue_shows_what_it_holds_and_what_is_full() -> None:
    queue = {
        "metadata": {"name": "q"},
        "spec": {"limit": {"nvidia.com/gpu": 16, "cpu": "64"}},
        "status": {"usage": {"nvidia.com/gpu": "16", "cpu": "32"}, "admitted": 2, "pending": 1},
    }
    shown = explained(waiting("a", 1), queue=queue).text()
    assert "queue     q: 2 admitted, 1 pending; holds 32 of 64 cpu, 16 of 16 nvidia.com/gpu (full)" in shown  # fmt: skip  # noqa: E501


def test_one_that_runs_tells_where_and_how_far() -> None:
    shown = explained(
        job("a", phase="Running", reason="GangRunning", ready="4/4",
            placement={"summary": "n1, n2 (rack r1)"}, progress={"percentage": 41.6}, restarts=2)
    ).text()  # fmt: skip
    assert "ready     4/4\non        n1, n2 (rack r1)\ndone      42 %\n" in shown
    assert "so far    2 restarts" in shown
    assert "waits" not in shown


def test_a_job_nobody_has_looked_at_asks_for_the_operator() -> None:
    assert "does an operator run and lead?" in explained(job("new")).text()


def test_where_others_may_not_be_seen_the_own_place_is_still_shown() -> None:
    shown = Explanation(line_of(waiting("a", 4)), None, None, NOW)
    assert "position 4\n" in shown.text()
    assert shown.to_json()["ahead"] == []
    assert shown.to_json()["waiting"] is None


def test_the_data_says_the_same() -> None:
    shown = explained(waiting("b", 2, preemptions=1), waiting("a", 1)).to_json()
    assert (shown["gang"]["position"], shown["waiting"], shown["ahead"]) == (2, 2, ["team/a"])
    assert (shown["waitSeconds"], shown["preemptions"]) == (1800, 1)
    assert shown["helps"] == remedy("WaitingForCapacity")


def test_text_from_objects_cannot_steer_the_terminal() -> None:
    shown = explained(waiting("a", 1, message="x\x1b[2Jy\nz")).text()
    assert "\x1b" not in shown
    assert "x [2Jy z" in shown


def test_a_remedy_is_shown_for_every_reason_but_where_all_is_well() -> None:
    for reason in Reason:
        shown = "" if reason.attention is Attention.NOBODY else reason.remedy
        assert remedy(reason.value) == shown, reason
    assert remedy("ReasonOfANewerOperator") == ""


def test_those_without_a_position_stand_last() -> None:
    fault = job("fault", phase="Pending", reason="QueueNotFound")
    line = in_line([fault, waiting("b", 2), waiting("a", 1)])
    assert [gang.name for gang in line] == ["a", "b", "fault"]


def test_the_table_has_a_line_per_gang() -> None:
    line: list[GangLine] = in_line([waiting("a", 1, priority={"score": 0.5})])
    header, row = table(line, NOW).splitlines()
    assert header.split() == ["#", "NAMESPACE", "NAME", "QUEUE", "GPUS", "PRIORITY", "WAITS",
                              "START", "REASON"]  # fmt: skip
    assert row.split() == ["1", "team", "a", "q", "8", "0.5", "30", "min", "-",
                           "WaitingForCapacity"]  # fmt: skip
    assert table([], NOW) == "No job waits.\n"


@pytest.mark.parametrize(
    ("status", "waits"),
    [
        ({}, True),
        ({"phase": "Pending", "queuePosition": 2}, True),
        ({"phase": "Interrupted", "reason": "GangNotBoundInTime"}, True),
        ({"phase": "Inqueue", "plan": {"epoch": 1}}, False),
        ({"phase": "Running", "plan": {"epoch": 1}}, False),
        ({"phase": "Running", "plan": {"epoch": 1}, "queuePosition": 1}, True),
        ({"phase": "Completed"}, False),
    ],
)
def test_a_group_is_in_line_while_any_of_its_pods_wants_to_start(
    status: dict[str, Any], waits: bool
) -> None:
    about = {"name": "group", "namespace": "team"}
    group = {"kind": "PodGroup", "metadata": about, "spec": {}, "status": status}
    assert [line.name for line in in_line([group])] == (["group"] if waits else [])
