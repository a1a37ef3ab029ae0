"""Speeds of TapFinger's jobs: the synthetic laws, and the published measurements."""

import gzip
from pathlib import Path

import numpy as np
import pytest

from bireme.core.errors import SettingError
from bireme_lab.training.tapfinger.environment import SETTINGS, make_config
from bireme_lab.training.tapfinger.laws import (
    FILE,
    KINDS,
    MAX_STEPS,
    doubling,
    measured,
    pointer,
    synthetic,
)

DATA = Path(__file__).parents[6] / "shared" / "data" / "tapfinger"
needs_data = pytest.mark.skipif(
    not DATA.exists(), reason="needs the publishers' files, which are not shipped"
)
INSENSITIVE, SENSITIVE = 0, 1
MNIST, LM, AUDIO = range(3)


@pytest.mark.parametrize(("gpus", "steps"), [(1, 21), (4, 5), (5, 4), (7, 3), (10, 2), (16, 2)])
def test_a_sensitive_job_alone_takes_so_many_steps(gpus: int, steps: int) -> None:
    assert synthetic().steps[SENSITIVE, 2, gpus] == steps


def test_an_insensitive_job_takes_four_steps_whatever_it_gets() -> None:
    assert (synthetic().steps[INSENSITIVE, 2:, 1:] == 4).all()


def test_below_the_least_there_is_no_progress() -> None:
    law = synthetic(noise=0.1)
    amount = np.array([[1, 16], [16, 0]])
    assert law.gains(np.array([0, 1]), amount, np.zeros(2), luck=1.0).tolist() == [0.0, 0.0]
    assert (law.steps[:, :2] == MAX_STEPS).all()


def test_more_cpus_gain_nothing() -> None:
    steps = synthetic().steps
    assert (steps[:, 2:] == steps[:, 2:3]).all()


def test_bad_luck_never_undoes_progress() -> None:
    law = synthetic(noise=0.1)
    assert law.gains(np.array([1]), np.array([[2, 1]]), np.array([0.9]), luck=-1.0) == [0.0]


def test_frugal_sizes_are_those_that_save_a_step() -> None:
    frugal = synthetic().frugal_gpus
    assert sorted(set(frugal[SENSITIVE].tolist())) == [0, 1, 2, 3, 4, 5, 7, 10]
    assert frugal[SENSITIVE, [6, 9, 16]].tolist() == [5, 7, 10]
    assert set(frugal[INSENSITIVE, 1:].tolist()) == {1}


def test_a_long_job_of_the_pointer_test_takes_eleven_steps() -> None:
    """Ten tenths are less than one in binary numbers, in the authors' program as well."""
    steps = pointer().steps
    assert steps[0, 3, 3] == 1
    assert steps[1, 3, 3] == 11


def a_file(folder: Path) -> Path:
    """One allocation of every kind; the loss falls by a straight line to the end at 40 s."""
    curve = ",".join(f'"({second}, {100 - second})"' for second in (10, 20, 30, 40))
    rows = [f"{kind},2,1,40.0,{curve}" for kind in KINDS]
    (folder / FILE).write_bytes(gzip.compress("\n".join(rows).encode()))
    return folder


def test_a_measured_job_takes_as_long_as_it_took(tmp_path: Path) -> None:
    assert measured(a_file(tmp_path)).steps[:, 2, 1].tolist() == [4, 4, 4]


def test_the_authors_reading_doubles_progress_in_every_step(tmp_path: Path) -> None:
    law = doubling(a_file(tmp_path))
    first = law.gains(np.array([MNIST]), np.array([[2, 1]]), np.zeros(1))
    second = law.gains(np.array([MNIST]), np.array([[2, 1]]), first)
    assert second > first
    assert law.gains(np.array([AUDIO]), np.array([[2, 1]]), np.zeros(1)) == [5 / 40]


def test_noise_moves_all_but_speech_recognition(tmp_path: Path) -> None:
    law, kinds = doubling(a_file(tmp_path)), np.arange(3)
    amounts = np.tile([2, 1], (3, 1))
    moved = law.gains(kinds, amounts, np.zeros(3), luck=1.0) - law.gains(
        kinds, amounts, np.zeros(3)
    )
    assert moved == pytest.approx([0.1, 0.1, 0.0])


@needs_data
def test_the_published_measurements_are_read_as_the_paper_tells_them() -> None:
    """Table 2: image 34-262 s, language 75-264 s, speech 17-18 s; 10 s a step."""
    steps = measured(DATA).steps
    assert steps[AUDIO].min() == 2
    assert steps[MNIST, 2:].min() == 4
    assert steps[LM, 2, 1] == 27
    doubled = doubling(DATA).steps
    assert doubled[:, 2, 1].tolist() == [3, 5, 4]


@pytest.mark.parametrize("name", ["trace-3", "trace-6", "measured-3"])
def test_a_trace_without_its_folder_says_what_to_give(name: str) -> None:
    with pytest.raises(SettingError, match="data=FOLDER"):
        make_config(name)


def test_settings_are_refused_by_name() -> None:
    with pytest.raises(SettingError, match="multi-3"):
        make_config("multi-4")
    with pytest.raises(SettingError, match="jobs is 0"):
        make_config("multi-3", jobs=0)


def test_every_setting_can_be_made_and_is_named_to_who_is_wrong(tmp_path: Path) -> None:
    made = [make_config(name, a_file(tmp_path)) for name in SETTINGS]
    assert {setting.is_multi for setting in made} == {True, False}
    with pytest.raises(SettingError, match=", ".join(SETTINGS)):
        make_config("none")
