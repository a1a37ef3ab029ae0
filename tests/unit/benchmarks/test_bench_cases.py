"""Parts of the cases that can be checked without a cluster."""

from pathlib import Path

import pytest

from benchmarks.timings.__main__ import CASES, main
from benchmarks.timings.admission_writes import writes_of_api_server, writes_of_operator
from benchmarks.timings.cases import Run, Skipped
from benchmarks.timings.decision import problem
from benchmarks.timings.learned import queue
from benchmarks.timings.simulation import DATA_VARIABLE, TRACE, trace_file
from benchmarks.timings.workloads import plain_pods, replica_names, training_job
from bireme.core.cycle import run_cycle
from bireme.core.settings import SchedulingSettings
from bireme.kube.names import pod_name
from bireme.registry import make_policy
from bireme.testing import GPU

API_METRICS = """
# TYPE apiserver_request_total counter
apiserver_request_total{code="201",group="",resource="pods",subresource="binding",verb="POST"} 5
apiserver_request_total{code="409",group="",resource="pods",subresource="binding",verb="POST"} 1
apiserver_request_total{code="200",group="",resource="pods",subresource="",verb="LIST"} 9
apiserver_request_total{code="200",group="b",resource="podgroups",subresource="status",verb="PUT"} 2
apiserver_request_duration_count{verb="PUT"} 7
"""
OPERATOR_METRICS = """
bireme_api_writes_total{resource="podgroups/status",verb="update"} 2.0
bireme_leader 1.0
"""


def test_writes_are_counted_by_verb_and_resource_refused_ones_included() -> None:
    assert writes_of_api_server(API_METRICS) == {
        ("create", "pods/binding"): 6,
        ("update", "podgroups/status"): 2,
    }
    assert writes_of_operator(OPERATOR_METRICS) == {("update", "podgroups/status"): 2}


def test_both_sides_schedule_the_same_pods() -> None:
    (task,) = training_job("g", 3, 2, duration="2s")["spec"]["tasks"]
    pods = plain_pods("g", 3, 2, duration="2s")
    assert all(pod["spec"] == task["template"]["spec"] for pod in pods)
    assert all(
        pod["metadata"]["annotations"] == task["template"]["metadata"]["annotations"]
        for pod in pods
    )
    assert replica_names("g", 3) == [pod_name("g", "worker", index) for index in range(3)]


def test_sides_alternate_and_each_goes_first_in_turn(tmp_path: Path) -> None:
    sides = Run(tmp_path, is_quick=False, repetitions=3, say=print).sides()
    assert sides == ["stock", "bireme", "bireme", "stock", "stock", "bireme"]


@pytest.mark.parametrize("percent", [0, 97, 100])
def test_the_decision_problem_has_the_fill_it_says_and_repeats(percent: int) -> None:
    snapshot = problem(40, 30, percent)
    gpu = snapshot.nodes.axis.names.index(GPU)
    assert snapshot.used[:, gpu].sum() == 40 * 8 * percent // 100
    assert (snapshot.used <= snapshot.nodes.allocatable).all()
    decisions = [
        run_cycle(problem(40, 30, percent), make_policy(SchedulingSettings())) for _ in "ab"
    ]
    assert [len(d.admitted) for d in decisions] == [len(decisions[0].admitted)] * 2
    assert bool(decisions[0].admitted) is (percent < 100)


def test_an_unknown_case_is_refused_with_the_names_there_are(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit):
        main(["gang5"])
    printed = capsys.readouterr().err
    assert "no case 'gang5'" in printed
    assert all(case.name in printed for case in CASES)


def test_no_repetitions_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["verdict", "--repetitions", "0"])
    assert "--repetitions 0: give at least 1" in capsys.readouterr().err


def test_without_its_trace_the_simulation_is_skipped_and_says_where_it_looked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(DATA_VARIABLE, str(tmp_path))
    with pytest.raises(Skipped, match=DATA_VARIABLE) as skipped:
        trace_file()
    assert str(tmp_path / TRACE) in str(skipped.value)
    (tmp_path / TRACE).parent.mkdir()
    (tmp_path / TRACE).touch()
    assert trace_file() == tmp_path / TRACE


def test_learned_policies_are_timed_on_a_queue_that_all_starts_and_on_one_that_waits() -> None:
    rules = make_policy(SchedulingSettings())
    for percent, is_whole in ((10, True), (97, False)):
        snapshot = queue(100, 60, percent)
        started = run_cycle(snapshot, rules).admitted
        assert (len(started) == 60) is is_whole
        assert len(started) > 0
