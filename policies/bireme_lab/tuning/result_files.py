"""The files of a tuning that won: a SchedulingPolicy, the chart's values, a checkpoint."""

from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Final

import yaml

from bireme.core.policy import PARTS
from bireme.core.times import DAY, clock_time
from bireme.onnx.cards import VERSIONED, Card, Parts, Result
from bireme.rl.index_weights import WEIGHTS, write_checkpoint
from bireme_lab.tuning.judgement import Judgement, interval_text
from bireme_lab.tuning.past import Past
from bireme_lab.tuning.policy_spec import policy_spec, served_name
from bireme_lab.tuning.search import SearchResult

POLICY_FILE: Final = "policy.yaml"
VALUES_FILE: Final = "values.yaml"
NAME: Final = "tuned"
"""Name of the SchedulingPolicy, and of the checkpoint's folder."""
_HEADER: Final = """\
# What `bireme tune` found for this cluster: {ratio} of the mean completion time by
# {baseline}.
# It begins as a shadow, which decides nothing; edit its stage to Active when it should.
"""
_PREDECESSOR: Final = """\
# SchedulingPolicy {name} decided in the record, and of several Active ones the oldest decides: edit
# its spec to this one, or delete it.
"""


def write_files(
    folder: Path,
    judgement: Judgement,
    past: Past,
    result: SearchResult,
    command: str,
    minutes: float,
) -> list[Path]:
    """Write the files of the winner into ``folder``; return the files and folders.

    ``command`` and ``minutes`` describe the search.

    Raises:
        CheckpointError: the checkpoint cannot be used.
    """
    best = judgement.best
    fitted: dict[str, str] | None = None
    paths: list[Path] = []
    if result.weights is not None and best == result.index:
        checkpoint = folder / NAME
        card = _card(judgement, past, result, command, minutes)
        reference = write_checkpoint(result.weights, card, checkpoint)
        fitted = {"name": NAME, "sha256": reference.sha256}
        paths.append(checkpoint)
    spec = policy_spec(best, past, fitted)
    manifest = {
        "apiVersion": "bireme.dev/v1alpha1",
        "kind": "SchedulingPolicy",
        "metadata": {"name": NAME},
        "spec": {**spec, "stage": "Shadow"},
    }
    ratio = interval_text(judgement.verdict.jct)
    header = _HEADER.format(ratio=ratio, baseline=judgement.baseline.name)
    by = past.decided_by.name
    predecessor = _PREDECESSOR.format(name=by) if by else ""
    policy = folder / POLICY_FILE
    policy.write_text(
        header + predecessor + yaml.safe_dump(manifest, sort_keys=False), encoding="utf-8"
    )
    paths.append(policy)
    if "checkpoint" not in spec:
        values = folder / VALUES_FILE
        named = {part: name for part in PARTS if (name := served_name(part, best))}
        text = yaml.safe_dump({"scheduling": named}, sort_keys=False)
        how = f"# Instead of {POLICY_FILE}: helm upgrade ... -f {VALUES_FILE}\n"
        if by:
            how += f"# SchedulingPolicy {by} decides until it is deleted.\n"
        values.write_text(how + text, encoding="utf-8")
        paths.append(values)
    return paths


def _card(
    judgement: Judgement, past: Past, result: SearchResult, command: str, minutes: float
) -> Card:
    assert result.weights is not None  # noqa: S101  # the caller has seen to it
    jct = judgement.verdict.jct
    days = (past.end - past.begin) / DAY
    test_result = Result(
        setting="test windows of the record",
        metric="mean_jct_to_baseline",
        value=jct.mean,
        interval=(jct.low or jct.mean, jct.high or jct.mean),
        rival=judgement.baseline.name,
        rival_value=1.0,
        command=command,
    )
    weights = zip(WEIGHTS, result.weights.tolist(), strict=True)
    return Card(
        name=NAME,
        summary="The learned index with weights fitted to the record of a cluster",
        paper="",
        made=datetime.now(UTC).date().isoformat(),  # noqa: TID251
        command=command,
        commit=None,
        versions=dict.fromkeys(VERSIONED, "unknown") | {"bireme": version("bireme")},
        seeds=(0,),
        data=f"a record of {days:.3g} days, {past.gangs} gangs in {past.windows} windows",
        split=f"by time: judged on what came after {clock_time(past.judged_from)}",
        training={"steps": result.index_runs, "minutes": round(minutes, 1), **dict(weights)},
        results=(test_result,),
        parts=Parts(),
    )
