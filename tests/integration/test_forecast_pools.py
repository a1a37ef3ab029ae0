"""A night over all NodePoolScalers: what is written into them, and what stays as it was."""

from dataclasses import dataclass, field

import pytest

from bireme.core.reasons import Reason
from bireme.core.times import HOUR
from bireme.forecasting.forecasters import FittedModel, Forecaster
from bireme.forecasting.naive import Persistence
from bireme.forecasting.nightly_job import NightlyRun, PoolsError
from bireme.forecasting.series import ForecastError, Series
from bireme.kube.client import ApiClient
from testbed.fakeapi import FakeApi
from testbed.fakeapi.faults import Fault
from testbed.operator_term.nightly import NOW, NOWHERE, condition, put, recorded, status_in
from testbed.operator_term.node_pools import SCALERS

SCALING = {
    "type": "Scaling",
    "status": "True",
    "reason": "AtFloor",
    "message": "",
    "lastTransitionTime": "2026-11-20T00:00:00Z",
}


@dataclass
class Nights:
    """Nights that run, with the lines that they print."""

    client: ApiClient
    candidates: tuple[Forecaster, ...] = (Persistence(),)
    printed: list[str] = field(default_factory=list)

    async def __call__(self, *wanted: str, now: float = NOW, dry_run: bool = False) -> int:
        night = NightlyRun(self.client, now, self.candidates, self.printed.append, dry_run=dry_run)
        return await night.forecast(wanted)


@pytest.fixture
def night(client: ApiClient) -> Nights:
    return Nights(client)


# --- what is written --------------------------------------------------------------------------


async def test_a_forecast_of_two_days_is_written_with_its_model_and_words(
    api: FakeApi, night: Nights
) -> None:
    put(api)
    assert await night() == 0
    status = status_in(api)
    assert [hour["hour"] for hour in status["forecast"][:2]] == [
        "2026-11-23T00:00:00Z",
        "2026-11-23T01:00:00Z",
    ]
    assert len(status["forecast"]) == 48
    assert status["forecastTime"] == "2026-11-23T00:30:00Z"
    assert status["model"]["name"] == "seasonal-naive"
    assert status["model"]["skill"] == 0
    assert status["tomorrow"].startswith("Tue ")
    assert status["tomorrow"].endswith(", by seasonal-naive")
    assert condition(api) | {"message": ""} == {
        "type": "Forecast",
        "status": "True",
        "reason": Reason.SEASONAL_NAIVE_USED,
        "message": "",
        "lastTransitionTime": "2026-11-23T00:30:00Z",
    }


async def test_each_pool_gets_a_line_with_what_was_chosen_and_why(
    api: FakeApi, night: Nights
) -> None:
    put(api, "a")
    put(api, "b", {})
    assert await night() == 0
    first, second, last = night.printed
    assert first.startswith(f"a: SeasonalNaiveUsed: {status_in(api, 'a')['tomorrow']}; ")
    assert second == "b: TooLittleHistory: no hour of it is recorded"
    assert last == "0 of 2 pools failed"


async def test_what_the_operator_wrote_stays_as_it_is(api: FakeApi, night: Nights) -> None:
    before = {**recorded(), "conditions": [SCALING], "nodes": 7, "floor": 5, "why": "w"}
    put(api, status=before)
    await night()
    after = status_in(api)
    assert {name: after[name] for name in before if name != "conditions"} == {
        name: before[name] for name in before if name != "conditions"
    }
    assert SCALING in after["conditions"]


async def test_a_condition_keeps_its_time_from_night_to_night(api: FakeApi, night: Nights) -> None:
    put(api)
    await night()
    await night(now=NOW + 24 * HOUR)
    assert condition(api)["lastTransitionTime"] == "2026-11-23T00:30:00Z"
    assert status_in(api)["forecastTime"] == "2026-11-24T00:30:00Z"
    await night(now=NOW + 96 * HOUR)
    assert (condition(api)["status"], condition(api)["reason"]) == ("False", "HistoryHasGaps")
    assert condition(api)["lastTransitionTime"] == "2026-11-27T00:30:00Z"


async def test_bounds_and_time_zone_of_the_pool_count(api: FakeApi, night: Nights) -> None:
    put(api, min=8, max=10, timeZone="Asia/Tokyo", quantilePercent=50)
    await night()
    assert status_in(api)["tomorrow"].startswith("Tue 8-10 nodes, most at ")
    assert all(hour["p50"] == hour["upper"] for hour in status_in(api)["forecast"])


async def test_tasks_become_nodes_by_the_recorded_nodes(api: FakeApi, night: Nights) -> None:
    put(api, history={"measure": "Tasks"})
    await night()
    assert "a node finishes" in condition(api)["message"]
    assert status_in(api)["forecast"][0]["p50"] == pytest.approx(8.5, rel=0.05)


async def test_a_dry_run_says_everything_and_writes_nothing(api: FakeApi, night: Nights) -> None:
    put(api)
    assert await night(dry_run=True) == 0
    assert night.printed[0].startswith("h200: SeasonalNaiveUsed: Tue ")
    assert set(status_in(api)) == {"history"}


async def test_only_the_pools_that_are_named_are_forecast(api: FakeApi, night: Nights) -> None:
    for name in "abc":
        put(api, name)
    await night("a", "c")
    assert ["forecast" in status_in(api, name) for name in "abc"] == [True, False, True]


async def test_any_number_of_pools_is_read_page_by_page(api: FakeApi, night: Nights) -> None:
    for number in range(205):
        put(api, f"p{number:03}", {})
    assert await night() == 0
    assert night.printed[-1] == "0 of 205 pools failed"


# --- what goes wrong --------------------------------------------------------------------------


async def test_one_bad_pool_stops_no_other_and_the_status_tells_how_many_failed(
    api: FakeApi, night: Nights
) -> None:
    put(api, "a", history=NOWHERE)
    put(api, "b", max=-1)
    put(api, "c", timeZone="Europe/Atlantis")
    put(api, "d", {"history": {"days": ["no day"]}})
    put(api, "e")
    assert await night() == 4
    assert night.printed[-1] == "4 of 5 pools failed: a, b, c, d"
    assert status_in(api, "e")["forecast"]
    assert condition(api, "a")["reason"] == Reason.HISTORY_UNAVAILABLE
    assert "Prometheus cannot be asked" in condition(api, "a")["message"]
    assert condition(api, "c")["reason"] == Reason.FORECAST_FAILED
    assert "timeZone 'Europe/Atlantis' is not known" in condition(api, "c")["message"]


async def test_a_forecaster_with_a_bug_fails_its_pool_and_says_so(
    api: FakeApi, night: Nights
) -> None:
    class Buggy:
        name = "buggy"

        def fit(self, series: Series) -> FittedModel:
            raise ZeroDivisionError("division by zero")

    put(api)
    night.candidates = (Buggy(),)
    assert await night() == 1
    assert condition(api)["message"] == "ZeroDivisionError: division by zero"


async def test_where_no_history_can_be_had_the_forecast_of_last_night_stays(
    api: FakeApi, night: Nights
) -> None:
    put(api)
    await night()
    before = status_in(api)
    put(api, status=before, history=NOWHERE)
    assert await night(now=NOW + 24 * HOUR) == 1
    after = status_in(api)
    changed = {name for name in after if after[name] != before[name]}
    assert changed == {"conditions"}
    assert condition(api)["status"] == "False"


async def test_where_too_little_is_left_of_the_history_the_old_forecast_goes(
    api: FakeApi, night: Nights
) -> None:
    put(api)
    await night()
    put(api, status=status_in(api) | recorded(days=2))
    assert await night() == 0
    after = status_in(api)
    assert after["tomorrow"] == "not forecast"
    assert not {"forecast", "forecastTime", "model"} & set(after)
    assert (condition(api)["status"], condition(api)["reason"]) == ("False", "TooLittleHistory")


async def test_a_write_that_came_between_is_read_and_kept(
    api: FakeApi, night: Nights, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(api)
    real = night.client.merge_patch

    async def merge_patch(path: str, body: object) -> bytes:
        monkeypatch.undo()
        api.put(
            f"{SCALERS}/h200",
            {
                **api.store.get(SCALERS, ("", "h200")),
                "status": {**recorded(), "conditions": [SCALING], "nodes": 9},
            },
        )
        return await real(path, body)

    monkeypatch.setattr(night.client, "merge_patch", merge_patch)
    assert await night() == 0
    assert status_in(api)["nodes"] == 9
    assert {c["type"] for c in status_in(api)["conditions"]} == {"Scaling", "Forecast"}


@pytest.mark.parametrize("status", [403, 422, 500])
async def test_a_write_that_is_refused_fails_its_pool_alone(
    api: FakeApi, night: Nights, status: int
) -> None:
    put(api, "a")
    put(api, "b")
    api.faults.add(Fault(status=status), lambda method, *_: method == "PATCH")
    assert await night() == 1
    assert f"a: not written: {status} Injected" in night.printed[1]
    assert "forecast" in status_in(api, "b")


async def test_a_pool_that_is_deleted_meanwhile_is_no_failure(api: FakeApi, night: Nights) -> None:
    put(api)
    api.faults.add(Fault(status=404, reason="NotFound"), lambda method, *_: method == "PATCH")
    assert await night() == 0
    assert night.printed[1] == "h200: it is gone"


async def test_a_pool_that_does_not_exist_is_named(api: FakeApi, night: Nights) -> None:
    put(api)
    with pytest.raises(PoolsError, match=r"there is no NodePoolScaler b200, l4$"):
        await night("h200", "l4", "b200")
    assert set(status_in(api)) == {"history"}


async def test_without_the_crd_the_reason_is_printed(api: FakeApi, night: Nights) -> None:
    api.remove(SCALERS)
    with pytest.raises(PoolsError, match="NodePoolScalers cannot be listed: 404 NotFound"):
        await night()


async def test_words_of_others_reach_status_and_log_without_control_characters(
    api: FakeApi, night: Nights
) -> None:
    class Hostile:
        name = "hostile"

        def fit(self, series: Series) -> FittedModel:
            raise ForecastError("\x1b[2J\n{" + "x" * 5000)

    put(api, "a")
    night.candidates = (Hostile(),)
    await night()
    assert condition(api, "a")["message"].isprintable()
    assert len(condition(api, "a")["message"]) == 1000
    assert all(line.isprintable() for line in night.printed)
