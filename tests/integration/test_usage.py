"""``bireme usage`` from counters that a real Prometheus has of two leaders, one after the other."""

import csv
import io
import json
import time
from collections.abc import Iterator

import pytest

from bireme.cli import main
from bireme.core.times import HOUR
from testbed.prometheus import Programs, Samples, serving

GPU = "nvidia.com/gpu"
SCRAPES = 30


def counted(name: str, pod: str, term: tuple[float, float], rate: float, **labels: str) -> Samples:
    """A counter of ``pod`` that grows by ``rate`` a second in its term."""
    first, last = term
    times = [first + SCRAPES * n for n in range(int((last - first) / SCRAPES) + 1)]
    points = [(at, rate * (at - first)) for at in times]
    return Samples(f"bireme_{name}_total", {"pod": pod, "cluster": "a", **labels}, points)


@pytest.fixture(scope="module")
def url(programs: Programs, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The last three hours, in which leadership changed an hour ago, without a pause."""
    now = time.time()  # noqa: TID251  # of the command, which asks about the present
    terms = {"old": (now - 3 * HOUR, now - HOUR), "new": (now - HOUR, now)}
    mine = {"resource": GPU, "queue": "research", "namespace": "nlp", "pool": "h200"}
    other = {**mine, "namespace": "vision", "pool": ""}
    history = [counted("usage_seconds", pod, term, 1.0) for pod, term in terms.items()]
    for pod, term in terms.items():
        history += [
            counted("device_seconds", pod, term, 8.0, **mine, use="running"),
            counted("device_seconds", pod, term, 2.0, **mine, use="starting"),
            counted("device_seconds", pod, term, 4.0, **other, use="running"),
        ]
    # A loss comes at once: half of the last hour of what ran.
    quiet = counted("device_seconds_lost", "new", terms["new"], 0.0, **mine)
    points = [(at, 0.0 if at < now - 600 else 4.0 * HOUR) for at, _ in quiet.points]
    history.append(Samples(quiet.name, quiet.labels, points))
    with serving(programs, tmp_path_factory.mktemp("prometheus"), history) as served:
        yield served


def asked(capsys: pytest.CaptureFixture[str], url: str, *more: str) -> dict[str, dict[str, float]]:
    """The hours by the group and what became of them."""
    assert main(["usage", "--prometheus", url, "--since", "12h", "-o", "json", *more]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["knownHours"] == pytest.approx(3.0, abs=0.05)
    return {item[answer["by"]]: item["hours"] for item in answer["items"]}


def test_hours_of_both_leaders_count_once(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    (hours,) = asked(capsys, url).values()
    wanted = {"held": 42, "running": 36, "lost": 4, "starting": 6, "stopping": 0, "reserved": 0}
    assert hours == pytest.approx(wanted, rel=0.02, abs=0.01)


@pytest.mark.parametrize(
    ("by", "held"), [("namespace", {"nlp": 30, "vision": 12}), ("pool", {"h200": 30, "": 12})]
)
def test_hours_are_told_by_namespace_and_pool(
    url: str, capsys: pytest.CaptureFixture[str], by: str, held: dict[str, float]
) -> None:
    found = asked(capsys, url, "--by", by, "--label", "cluster=a")
    assert {group: hours["held"] for group, hours in found.items()} == pytest.approx(held, rel=0.02)


def test_the_table_says_how_much_of_the_time_is_known(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["usage", "--prometheus", url, "--since", "12h", "--by", "namespace"]) == 0
    title, _, head, first, second, total, *_ = capsys.readouterr().out.splitlines()
    assert "3.0 h of these 12.0 h are known (25 %), from " in title
    assert head.split()[:3] == ["NAMESPACE", "RESOURCE", "HELD"]
    assert [line.split()[0] for line in (first, second, total)] == ["nlp", "vision", "all"]
    assert "(80 %)" in first
    assert main(["usage", "--prometheus", url, "--since", "12h", "-o", "csv"]) == 0
    printed = capsys.readouterr()
    (row,) = csv.DictReader(io.StringIO(printed.out))
    assert row["queue"] == "research"
    assert float(row["lost_hours"]) == pytest.approx(4, rel=0.02)
    assert "are known" in printed.err


def test_a_time_of_which_nothing_is_known_is_an_error(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["usage", "--prometheus", url, "--label", "cluster=b"]) == 1
    assert "has no bireme_usage_seconds_total" in capsys.readouterr().err


def test_a_server_must_be_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["usage"]) == 2
    assert "argument --prometheus: none is given" in capsys.readouterr().err
