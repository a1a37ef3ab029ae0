"""What is served is what was judged: specs of candidates, made into policies again."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from bireme.contender import Contender
from bireme.core.parameters import query_of
from bireme.core.policy import PARTS
from bireme.core.settings import SchedulingSettings
from bireme.kube.api.scheduling_policy import SchedulingPolicy
from bireme.policy_names import checkpoint_folders
from bireme.rl.lookup import SETTINGS_SOURCE, PolicySource
from bireme_lab.tuning.past import Past, _baseline
from bireme_lab.tuning.policy_spec import needs_checkpoint_beside, policy_spec, served_name

SETTINGS = SchedulingSettings(placer="packing")
DAS = f"checkpoint:{checkpoint_folders()['das']}"


def past_of(source: PolicySource, settings: SchedulingSettings = SETTINGS, own: str = "") -> Past:
    baseline = _baseline(source, settings, own)
    return Past({}, baseline, source, settings, 0.0, 1.0, 0.7, 20, 0, 0)


def served(best: Contender, past: Past, own: str = "") -> Contender:
    """Return who decides under the spec of ``best``, in a cluster with the settings of ``past``."""
    spec = policy_spec(best, past)
    SchedulingPolicy.model_validate(
        {
            "apiVersion": "bireme.dev/v1alpha1",
            "kind": "SchedulingPolicy",
            "metadata": {"name": "tuned"},
            "spec": spec,
        }
    )
    reference = spec.get("checkpoint", {})
    given = spec.get("parameters", {})
    parameters = {f"{part}_parameters": query_of(given.get(part, {})) for part in PARTS}
    parts: dict[str, Any] = {part: spec.get(part, "") for part in PARTS} | parameters
    source = PolicySource(
        "tuned",
        checkpoint=reference.get("name", ""),
        sha256=reference.get("sha256", ""),
        **parts,
    )
    return _baseline(source, past.settings, own)


def test_parts_of_the_recorded_policy_stay_though_the_settings_have_others() -> None:
    past = past_of(PolicySource("mine", orderer="tiresias-las", placer="fgd", sizer="goodput"))
    best = Contender("srtf", "fgd", "goodput")
    assert served(best, past) == best
    assert served(replace(best, placer="packing"), past) == replace(best, placer="packing")


def test_parameters_go_with_their_part() -> None:
    settings = SchedulingSettings(placer="packing", orderer="tiresias-las?promote_knob=8")
    best = Contender("tiresias-las?threshold_device_seconds=1000", "fgd")
    assert served(best, past_of(SETTINGS_SOURCE, settings)) == best


def test_part_of_a_shipped_checkpoint_goes_by_its_name() -> None:
    past = past_of(PolicySource("mine", checkpoint="das"))
    assert past.baseline.placer == DAS
    best = replace(past.baseline, orderer="srtf")
    assert served(best, past) == Contender("srtf", "das")
    assert [served_name(part, best) for part in PARTS] == ["srtf", "das", ""]
    assert not needs_checkpoint_beside(past.baseline, SETTINGS)


def test_part_of_an_own_checkpoint_takes_the_place_of_the_index(tmp_path: Path) -> None:
    (tmp_path / "ours").symlink_to(checkpoint_folders()["das"])
    past = past_of(PolicySource("mine", checkpoint="ours"), own=str(tmp_path))
    best = replace(past.baseline, orderer="srtf")
    assert served(best, past, str(tmp_path)) == best
    assert needs_checkpoint_beside(past.baseline, SETTINGS), "of two a policy names one"


def test_own_folder_that_the_settings_name_is_left_to_them(tmp_path: Path) -> None:
    settings = SchedulingSettings(placer=f"checkpoint:{tmp_path}")
    past = past_of(SETTINGS_SOURCE, settings)
    best = replace(past.baseline, orderer="srtf")
    assert policy_spec(best, past) == {"orderer": "srtf"}
    assert not needs_checkpoint_beside(past.baseline, settings)
    fitted = {"name": "tuned", "sha256": "0" * 64}
    index = replace(past.baseline, orderer="checkpoint:tuned/index/0")
    assert policy_spec(index, past, fitted) == {"checkpoint": fitted}
