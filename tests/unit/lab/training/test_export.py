"""From torch to a folder that is served: the same answers at every size, and nothing else in it."""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from bireme.onnx.cards import VERSIONED, Parts
from bireme.onnx.errors import CheckpointError
from bireme.rl.checkpoint import Checkpoint, load
from bireme_lab.training.export import TrainedPart, export, source_commit, versions
from testbed.networks import checkpoints, encoders
from testbed.networks.encoders import GANG_FACTS, NODE_FACTS, SIZE_FACTS, SizeFacts


class Attentive(torch.nn.Module):
    """Scores rows by themselves, by what they attend to, and by their mean."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.embed = torch.nn.Linear(3, 16)
        self.attend = torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
        self.score = torch.nn.Linear(32, 1)

    def forward(self, facts: torch.Tensor) -> torch.Tensor:
        rows = self.attend(torch.tanh(self.embed(facts))[None])[0]
        mean = rows.mean(0, keepdim=True).expand(rows.shape[0], -1)
        scores: torch.Tensor = self.score(torch.cat([rows, mean], 1)).squeeze(-1)
        return scores


class Counting(torch.nn.Module):
    """Never answers the same question alike."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, facts: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return facts.sum(1) * self.calls


@pytest.fixture(autouse=True)
def small_encoders() -> Iterator[None]:
    with encoders.known():
        yield


@pytest.fixture(scope="module")
def network() -> Attentive:
    return Attentive()


@pytest.fixture(scope="module")
def exported(network: Attentive, tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    folder = tmp_path_factory.mktemp("exported") / "new" / "checkpoint"
    with encoders.known():
        found = export(
            {
                "orderer": TrainedPart(network, GANG_FACTS, stops_others=True),
                "placer": TrainedPart(network, NODE_FACTS),
            },
            checkpoints.card("tiny", Parts()),
            folder,
        )
        assert load(folder).sha256 == found.sha256
    return found


def test_what_is_served_answers_as_torch_at_sizes_nobody_tried(
    exported: Checkpoint, network: Attentive
) -> None:
    assert exported.orderer is not None
    assert exported.placer is not None
    network.eval()
    for rows in (1, 4, 77, 300):
        facts = np.random.default_rng(rows).standard_normal((rows, 3), dtype=np.float32)
        with torch.no_grad():
            expected = network(torch.from_numpy(facts)).numpy()
        for part in (exported.orderer, exported.placer):
            answer = part.session.answer({"facts": facts}, rows, 10.0)
            np.testing.assert_allclose(answer, expected, rtol=1e-4, atol=1e-4)


def test_a_card_says_of_the_parts_what_was_exported(exported: Checkpoint) -> None:
    parts = exported.card.parts
    assert parts.orderer is not None
    assert parts.placer is not None
    assert (parts.orderer.encoder, parts.orderer.stops_others) == (GANG_FACTS, True)
    assert (parts.placer.encoder, parts.placer.stops_others) == (NODE_FACTS, False)
    assert parts.placer.inputs == {"facts": ("nodes", 3)}
    assert parts.orderer.bytes < 30_000


def test_an_export_carries_no_source_and_no_path(tmp_path: Path) -> None:
    part = {"orderer": TrainedPart(torch.nn.Sequential(torch.nn.Linear(3, 1), Flat()), GANG_FACTS)}
    export(part, checkpoints.card("tiny", Parts()), tmp_path)  # type: ignore[arg-type]  # one part
    written = (tmp_path / "orderer.onnx").read_bytes()
    for trace in (b".py", b"site-packages", b"forward", b"/home"):
        assert trace not in written


class Flat(torch.nn.Module):
    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return rows.squeeze(-1)


class Pairs(torch.nn.Module):
    """One answer per pair of rows: as many moves as no input has."""

    def forward(self, facts: torch.Tensor) -> torch.Tensor:
        return (facts.sum(1)[:, None] * facts.mean(1)[None, :]).reshape(-1)


def test_a_sizer_may_answer_with_more_moves_than_any_of_its_inputs_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SizeFacts, "inputs", {"facts": ("gangs", 3)})
    monkeypatch.setattr(SizeFacts, "sizes", lambda *_: {})
    found = export(
        {"sizer": TrainedPart(Pairs(), SIZE_FACTS)}, checkpoints.card("tiny", Parts()), tmp_path
    )
    assert found.sizer is not None
    assert found.card.parts.sizer is not None
    assert found.card.parts.sizer.outputs == {"logits": ("moves",)}
    facts = np.ones((4, 3), dtype=np.float32)
    assert found.sizer.session.answer({"facts": facts}, 16, 10.0).tolist() == [3.0] * 16


def test_a_network_that_does_not_answer_as_its_export_does_is_refused(tmp_path: Path) -> None:
    network = Counting()
    with pytest.raises(CheckpointError, match="ONNX Runtime answers otherwise than torch, by up"):
        export(
            {"orderer": TrainedPart(network, GANG_FACTS)},
            checkpoints.card("tiny", Parts()),
            tmp_path,
        )
    assert network.training


# --- where a card comes from ------------------------------------------------------------------


def test_versions_are_those_of_the_packages_that_cards_name() -> None:
    assert set(versions()) == set(VERSIONED)
    assert versions()["torch"].partition("+")[0] == torch.__version__.partition("+")[0]


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_the_commit_is_that_of_the_checkout_and_says_whether_it_was_changed(tmp_path: Path) -> None:
    def git(*arguments: str) -> str:
        names = ("-c", "user.name=a", "-c", "user.email=a@example.org")
        done = subprocess.run(
            ["git", *names, *arguments], cwd=tmp_path, check=True, capture_output=True, text=True
        )
        return done.stdout.strip()

    source = tmp_path / "module.py"
    source.write_text("1")
    assert source_commit(source) is None
    git("init", "-q")
    assert source_commit(source) is None
    git("add", ".")
    git("commit", "-qm", "Begin")
    commit = git("rev-parse", "HEAD")
    assert source_commit(source) == commit
    source.write_text("2")
    assert source_commit(source) == f"{commit}-dirty"
    installed = tmp_path / "installed.py"
    installed.write_text("")
    assert source_commit(installed) is None
