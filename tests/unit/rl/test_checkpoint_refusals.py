"""Folders that are no checkpoint: by card or by files, each fault with its own words."""

import os
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
import pytest

from bireme.onnx import cards
from bireme.onnx.checkpoints import read_card
from bireme.onnx.errors import CheckpointError
from bireme.rl.checkpoint import load
from testbed.networks import checkpoints
from testbed.networks.encoders import GangFacts

SHAPES = GangFacts.inputs


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return checkpoints.write(tmp_path / "small", orderer=(1, 0, 0), placer=(1, 0, 0))


def edited(folder: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    """The checkpoint with a card that ``change`` has changed."""
    path = folder / cards.CARD_FILE
    card = msgspec.json.decode(path.read_bytes())
    change(card)
    path.write_bytes(msgspec.json.encode(card))
    return folder


def test_a_whole_checkpoint_is_loaded_with_its_card_and_digest(folder: Path) -> None:
    digest = sha256((folder / "card.json").read_bytes()).hexdigest()
    loaded = load(folder, expected_sha256=digest)
    assert loaded.sha256 == digest
    assert loaded.card == read_card(folder)[0]
    assert loaded.orderer is not None
    assert loaded.placer is not None


def test_loading_writes_nothing(folder: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    load(folder)
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before


# --- the card ---------------------------------------------------------------------------------

CARDS: list[tuple[str, Callable[[dict[str, Any]], object]]] = [
    ("format is 1, this Bireme reads format 2", lambda c: c.update(format=1)),
    ("missing required field `format`", lambda c: c.pop("format")),
    ("unknown field `colour`", lambda c: c.update(colour="red")),
    ("unknown field `steps`", lambda c: c["parts"]["orderer"].update(steps=1)),
    (r"Expected `int`, got `str` .*\(it is 'many'\)", lambda c: c.update(seeds=["many"])),
    (r"`\$.made` \(it is 'today'\)", lambda c: c.update(made="today")),
    ("missing required field `split`", lambda c: c.pop("split")),
    (r"`\$.commit` \(it is 'main'\)", lambda c: c.update(commit="main")),
    ("versions has no 'torch'", lambda c: c["versions"].pop("torch")),
    ("parts is empty", lambda c: c.update(parts={})),
    ("training has no 'minutes'", lambda c: c["training"].pop("minutes")),
    ("encoder 'none/1' is no encoder of gangs", lambda c: orderer(c).update(encoder="none/1")),
    ("encoder 'small-nodes/1' is no enc", lambda c: orderer(c).update(encoder="small-nodes/1")),
    ("its sha256 is .*, the card says 0000", lambda c: orderer(c).update(sha256="0" * 64)),
    (r"sha256` \(it is 'ab'\)", lambda c: orderer(c).update(sha256="ab")),
    ("its size in bytes is .*, the card says 9", lambda c: orderer(c).update(bytes=9)),
    ("bytes` .it is '99999999'", lambda c: orderer(c).update(bytes=99_999_999)),
    ("its opset is .20., the card says 19", lambda c: orderer(c).update(opset=19)),
    ("inputs are .*, those of encoder", lambda c: orderer(c)["inputs"].update(facts=["gangs", 4])),
    ("outputs are .*, they must be", lambda c: orderer(c).update(outputs={"x": ["gangs"]})),
    (r"file` \(it is '../orderer.onnx'\)", lambda c: orderer(c).update(file="../orderer.onnx")),
    (r"file` \(it is '/etc/a.onnx'\)", lambda c: orderer(c).update(file="/etc/a.onnx")),
    ("cannot be read: .*No such file", lambda c: orderer(c).update(file="other.onnx")),
]


def orderer(card: dict[str, Any]) -> dict[str, Any]:
    part: dict[str, Any] = card["parts"]["orderer"]
    return part


@pytest.mark.parametrize(("words", "change"), CARDS, ids=[words for words, _ in CARDS])
def test_a_card_with_one_thing_wrong_is_refused_by_its_name_and_value(
    folder: Path, words: str, change: Callable[[dict[str, Any]], object]
) -> None:
    with pytest.raises(CheckpointError, match=words) as refusal:
        load(edited(folder, change))
    assert str(folder) in str(refusal.value)


@pytest.mark.parametrize("text", [b"", b"{", b"[1]", b"\xff\xfe", b"[" * 100_000])
def test_what_is_no_card_is_refused(folder: Path, text: bytes) -> None:
    (folder / "card.json").write_bytes(text)
    with pytest.raises(CheckpointError, match="export the checkpoint again"):
        load(folder)


def test_a_card_without_end_is_refused(folder: Path) -> None:
    (folder / "card.json").write_bytes(b" " * (cards.MAX_CARD_BYTES + 1))
    with pytest.raises(CheckpointError, match="larger than 262144 bytes"):
        load(folder)


def test_a_folder_without_card_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"cannot be read: .*No such file.*name the folder"):
        load(tmp_path)
    with pytest.raises(CheckpointError, match="cannot be read"):
        load(tmp_path / "nowhere")


def test_another_checkpoint_than_the_expected_one_is_refused(folder: Path) -> None:
    with pytest.raises(CheckpointError, match=r"its sha256 is .*, expected is abc"):
        load(folder, expected_sha256="abc")


# --- the files --------------------------------------------------------------------------------


def test_a_link_that_leads_out_of_the_folder_is_refused(folder: Path, tmp_path: Path) -> None:
    (folder / "orderer.onnx").rename(tmp_path / "elsewhere.onnx")
    (folder / "orderer.onnx").symlink_to(tmp_path / "elsewhere.onnx")
    with pytest.raises(CheckpointError, match="leads out of its folder"):
        load(folder)


def test_links_within_the_folder_are_followed_as_volumes_need_it(folder: Path) -> None:
    (folder / "data").mkdir()
    for name in ("card.json", "orderer.onnx", "placer.onnx"):
        (folder / name).rename(folder / "data" / name)
        (folder / name).symlink_to(Path("data") / name)
    assert load(folder).card.name == "small"


def test_a_pipe_is_refused_and_not_waited_for(folder: Path) -> None:
    (folder / "orderer.onnx").unlink()
    os.mkfifo(folder / "orderer.onnx")
    with pytest.raises(CheckpointError, match="is no plain file"):
        load(folder)


def test_an_encoder_that_fails_on_the_trial_run_is_reported(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise KeyError("gpu")

    monkeypatch.setattr(GangFacts, "encode", fail)
    with pytest.raises(CheckpointError, match="the smoke test failed: KeyError: 'gpu'; train or"):
        load(folder)
