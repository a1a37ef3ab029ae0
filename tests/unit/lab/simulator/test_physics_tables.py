"""Gavel's and ElasticFlow's tables: small files written here, and the publishers' own."""

import csv
import gzip
import json
from pathlib import Path

import pytest

from bireme_lab.simulator.errors import TraceError
from bireme_lab.simulator.physics.tables import ElasticFlowTable, GavelTable

DATA = Path(__file__).parents[5] / "shared" / "data"
GAVEL_FILE = DATA / "gavel" / "simulation_throughputs.json.gz"
needs_data = pytest.mark.skipif(
    not DATA.exists(), reason="needs the publishers' files, which are not shipped"
)

GAVEL = {
    "v100": {
        "('LM (batch size 5)', 1)": {"null": 20.0, "('LM (batch size 5)', 1)": [12.0, 12.0]},
        "('LM (batch size 5)', 2)": {"null": 30.0},
        "('LM (batch size 5)', 8)": {"null": 90.0},
    },
    "v100_unconsolidated": {"('LM (batch size 5)', 2)": {"null": 15.0}},
}
ELASTICFLOW = "global_batch_size,1,2,4\n64,2.0,3.0,0\n128,1.0,1.5,\n"


@pytest.fixture
def gavel(tmp_path: Path) -> GavelTable:
    path = tmp_path / "throughputs.json.gz"
    path.write_bytes(gzip.compress(json.dumps(GAVEL).encode()))
    return GavelTable.load(path)


@pytest.fixture
def elasticflow(tmp_path: Path) -> ElasticFlowTable:
    path = tmp_path / "model.csv"
    path.write_text(ELASTICFLOW)
    return ElasticFlowTable.load(path)


def test_gavel_gives_the_speed_alone_together_and_apart(gavel: GavelTable) -> None:
    law = gavel.speed("LM (batch size 5)", "v100", gpus_per_node=4)
    assert law.steps_per_second({"worker": 2}, 1) == 30.0
    assert law.steps_per_second({"worker": 2}, 2) == 15.0
    assert law.steps_per_second({"worker": 8}, 2) == 90.0
    assert law.steps_per_second({"worker": 8}, 3) == 90.0  # apart was not measured at 8
    assert law.steps_per_second({"worker": 5}, 2) == 60.0


def test_gavel_names_the_nearest_job_or_gpu(gavel: GavelTable) -> None:
    with pytest.raises(TraceError, match=r"did you mean 'LM \(batch size 5\)'"):
        gavel.speed("LM (batch size 50)", "v100")
    with pytest.raises(TraceError, match="known: v100"):
        gavel.speed("LM (batch size 5)", "tpu")


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("{", "no JSON document"),
        ("[1]", "not of the form"),
        ('{"v100": {"LM": {"null": 1}}}', "not of the form"),
        ('{"v100": {"(\'LM\', 1)": {}}}', "not of the form"),
    ],
)
def test_a_file_that_is_not_gavels_is_refused(tmp_path: Path, text: str, word: str) -> None:
    path = tmp_path / "throughputs.json"
    path.write_text(text)
    with pytest.raises(TraceError, match=word):
        GavelTable.load(path)


def test_elasticflow_keeps_what_did_not_run_and_leaves_out_what_was_not_measured(
    elasticflow: ElasticFlowTable,
) -> None:
    large, small = elasticflow.speed(64), elasticflow.speed(128)
    assert large.steps_per_second({"worker": 2}, 1) == 3.0
    assert large.steps_per_second({"worker": 4}, 1) == 0.0
    assert large.steps_per_second({"worker": 3}, 1) == 0.0
    assert small.gpus == (1, 2)


def test_elasticflow_lists_the_batch_sizes_measured(elasticflow: ElasticFlowTable) -> None:
    with pytest.raises(TraceError, match="no batch size 96 was measured; known: 64, 128"):
        elasticflow.speed(96)


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("batch,1,2\n64,1,2\n", "header"),
        ("global_batch_size,one\n64,1\n", "header"),
        ("global_batch_size,1\n64,fast\n", "1 is 'fast'"),
        ("global_batch_size,1\n64,-2\n", "1 is -2.0"),
        ("global_batch_size,1\n", "no rows"),
    ],
)
def test_a_file_that_is_not_elasticflows_is_refused(tmp_path: Path, text: str, word: str) -> None:
    path = tmp_path / "model.csv"
    path.write_text(text)
    with pytest.raises(TraceError, match=word):
        ElasticFlowTable.load(path)


@needs_data
def test_every_speed_gavel_published_is_given_back() -> None:
    table = GavelTable.load(GAVEL_FILE)
    assert len(table.speeds) == 6
    for gpu in ("k80", "p100", "v100"):
        for job, by_gpus in table.speeds[gpu].items():
            law = table.speed(job, gpu)
            for gpus, speed in by_gpus.items():
                assert law.steps_per_second({"worker": gpus}, 1) == speed
    spread = table.speed("ResNet-18 (batch size 64)", "v100")
    assert spread.steps_per_second({"worker": 8}, 1) == pytest.approx(255.8, abs=0.1)
    assert spread.steps_per_second({"worker": 8}, 4) == pytest.approx(63.2, abs=0.1)


@needs_data
@pytest.mark.parametrize("kind", ["throughputs_A100", "throughputs_T4"])
def test_every_speed_elasticflow_published_is_given_back(kind: str) -> None:
    cells = 0
    for path in sorted((DATA / "elasticflow" / kind).glob("*.csv")):
        table = ElasticFlowTable.load(path)
        for row in csv.DictReader(path.read_text().splitlines()):
            law = table.speed(int(row.pop("global_batch_size")))
            for gpus, speed in row.items():
                if speed not in ("", "nan"):
                    assert law.steps_per_second({"worker": int(gpus)}, 1) == float(speed)
                    cells += 1
    assert cells > 40
