"""ResourceQuotas in a cycle: gangs whole or not at all, whatever else may start."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from bireme.core.cycle import run_cycle
from bireme.core.decision import Admit, Hold
from bireme.core.gangs import Gang
from bireme.core.quotas import Quota, QuotaLedger
from bireme.core.reasons import Reason
from bireme.core.resources import PODS, request_of
from bireme.core.snapshot import ClusterSnapshot
from bireme.registry import make_policy
from bireme.testing import GPU, a_gang, a_node, a_running, a_snapshot, a_task, with_running
from testbed.model import oracles

NODES = [a_node(f"n{index}") for index in range(4)]
TABLE = a_snapshot(NODES).nodes


GPUS = f"requests.{GPU}"


def counted(gang: Gang, *quotas: str) -> Gang:
    """``gang`` with its pods counted by the quota of this name, and its GPUs by all others."""

    def used(quota: str, gpus: int) -> tuple[tuple[str, int], ...]:
        return request_of({PODS: 1} if quota == PODS else {GPUS: gpus})

    tasks = (
        replace(task, charges=tuple((name, used(name, dict(task.request)[GPU])) for name in quotas))
        for task in gang.tasks
    )
    return replace(gang, tasks=tuple(tasks))


def a_quota(most: int, used: int = 0, name: str = "gpus") -> Quota:
    resource = PODS if name == PODS else GPUS
    return Quota("default", name, {resource: most}, {resource: used})


def decide(snapshot: ClusterSnapshot) -> dict[str, Admit | Hold]:
    actions = run_cycle(snapshot, make_policy(snapshot.settings)).actions
    return {action.gang.name: action for action in actions if isinstance(action, Admit | Hold)}


def test_the_first_takes_what_a_quota_has_and_the_next_says_which_is_in_the_way() -> None:
    first, second = (
        counted(a_gang(name, a_task(3), arrived=at), "gpus") for at, name in enumerate("ab")
    )
    quotas = [a_quota(6, used=2), a_quota(1, name="of-others")]
    decided = decide(a_snapshot(NODES, first, second, now=9.0, quotas=quotas))
    assert isinstance(decided["a"], Admit)
    held = decided["b"]
    assert isinstance(held, Hold)
    assert (held.reason, held.reservation) == (Reason.OVER_QUOTA, None)
    assert held.message == (
        f"ResourceQuota 'gpus' of namespace default: asks 3 {GPU}, 5 {GPU} of 6 {GPU} in use"
    )


def test_a_gang_beyond_its_whole_quota_never_fits_and_lets_others_pass() -> None:
    large = counted(a_gang("large", a_task(5), arrived=0.0), "gpus")
    small = counted(a_gang("small", a_task(3), arrived=1.0), "gpus")
    decided = decide(a_snapshot(NODES, large, small, now=9.0, quotas=[a_quota(4)]))
    assert decided["large"].reason is Reason.NEVER_FITS
    assert "ResourceQuota 'gpus'" in decided["large"].message
    assert isinstance(decided["small"], Admit)


def test_an_elastic_gang_starts_with_what_its_quota_allows_and_grows_no_further() -> None:
    waits = counted(a_gang("waits", a_task(6, min_replicas=2)), "gpus")
    snapshot = a_snapshot(NODES, waits, quotas=[a_quota(5, used=3)])
    admitted = decide(snapshot)["waits"]
    assert isinstance(admitted, Admit)
    assert admitted.gang.replicas == 2
    runs = counted(a_gang("runs", a_task(2, max_replicas=9), is_elastic=True), "gpus")
    # It uses two of its quota itself, and asks for seven, three or one more.
    for most, grown in ((2, []), (6, [5]), (100, [9])):
        snapshot = with_running(
            a_snapshot(NODES, quotas=[a_quota(most, 2)]), a_running(runs, TABLE, {"n0": 2})
        )
        resized = run_cycle(snapshot, make_policy(snapshot.settings)).resized
        assert [int(each.placement.tasks[0].counts.sum()) for each in resized] == grown


def test_nobody_is_stopped_for_a_gang_that_a_quota_holds() -> None:
    low = a_gang("low", a_task(4, 8), priority=0)
    high = counted(a_gang("high", a_task(4, 8), priority=1000), "gpus")
    snapshot = with_running(
        a_snapshot(NODES, high, quotas=[a_quota(40, 9)]),
        a_running(low, TABLE, {f"n{at}": 1 for at in range(4)}),
    )
    assert decide(snapshot)["high"].reason is Reason.OVER_QUOTA


@given(
    st.lists(st.tuples(st.integers(1, 4), st.integers(1, 3), st.booleans()), max_size=6),
    st.integers(1, 12),
    st.integers(1, 12),
)
def test_no_quota_is_passed_and_none_holds_what_is_within_it(
    sizes: list[tuple[int, int, bool]], gpus: int, pods: int
) -> None:
    quotas = [a_quota(gpus), a_quota(pods, name=PODS)]
    gangs = [
        counted(a_gang(f"g{at}", a_task(*size), arrived=float(at)), *["gpus", PODS][: 1 + both])
        for at, (*size, both) in enumerate(sizes)
    ]
    snapshot = a_snapshot(NODES, *gangs, now=9.0, quotas=quotas)
    decision = run_cycle(snapshot, make_policy(snapshot.settings))
    assert list(oracles.broken_promises(snapshot, decision)) == []
    ledger = QuotaLedger(snapshot.quotas)
    for admitted in decision.admitted:
        ledger.take(admitted.gang)
    for held in decision.held:
        assert ledger.excess(held.gang) is not None
        assert held.reason in (Reason.OVER_QUOTA, Reason.NEVER_FITS)
