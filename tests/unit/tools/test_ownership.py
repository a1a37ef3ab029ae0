"""Whose cluster it is, told by a lock."""

from pathlib import Path

from tools.controlplane.ownership import OWNER_FILE, claim, is_orphan, release


def test_claimed_folder_is_no_orphan_and_a_released_one_is(tmp_path: Path) -> None:
    claim(tmp_path)
    assert (tmp_path / OWNER_FILE).exists()
    assert not is_orphan(tmp_path)
    release(tmp_path)
    assert is_orphan(tmp_path)
    release(tmp_path)  # twice is fine


def test_folder_that_nobody_claimed_is_no_orphan(tmp_path: Path) -> None:
    assert not is_orphan(tmp_path)
