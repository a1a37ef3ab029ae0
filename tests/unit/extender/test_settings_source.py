"""Settings in three spellings, and what a person reads who got one wrong."""

import dataclasses
import importlib
from pathlib import Path
from typing import Any, get_type_hints

import pytest
import yaml
from pydantic.alias_generators import to_camel

from bireme import settings_source
from bireme.core.errors import SettingError
from bireme.core.settings import SchedulingSettings
from bireme.settings_source import document, read
from bireme_extender.settings import ExtenderSettings


def operator_settings() -> type[Any]:
    cls: type[Any] = importlib.import_module("bireme_operator.settings").OperatorSettings
    return cls


def settings_classes() -> list[type[Any]]:
    """Every class of settings that a program reads."""
    return [SchedulingSettings, ExtenderSettings, operator_settings()]


@dataclasses.dataclass(frozen=True)
class SampleSettings:
    """One field of every type that can be read."""

    some_text: str = "a"
    some_count: int = 1
    some_share: float = 0.5
    is_on: bool = False
    some_levels: tuple[str, ...] = ("x",)
    some_file: Path = Path("a")


SAMPLED: list[type[Any]] = [SampleSettings, *settings_classes()]
FIELDS = [
    pytest.param(cls, name, id=f"{cls.__name__}.{name}")
    for cls in SAMPLED
    for name in settings_source.setting_sections(cls)
]


def another(cls: type[Any], name: str) -> Any:
    """A valid value other than the default."""
    default = getattr(cls(), name)
    special: dict[str, Any] = {
        "log_level": "debug",
        "mode": "Observe",
        "overdue_share": 0.5,
        "extender_address": "[::1]:9000",
        "metrics_address": "0.0.0.0:9001",
        "progress_address": "https://0.0.0.0:8082/etc/tls",
    }
    if name in special:
        return special[name]
    match default:
        case bool():
            return not default
        case tuple():
            texts = {"gpu_models": "R100=9.5:20", "gpu_units": "nvidia.com/mig-1g.10gb=0.125"}
            return (*default, texts.get(name, "example.com/another"))
        case Path() | str():
            return type(default)(f"{default}-2")
        case number:
            return number + 1


@pytest.mark.parametrize(("cls", "name"), FIELDS)
def test_every_setting_can_be_spelled_in_three_ways(cls: type[Any], name: str) -> None:
    value = another(cls, name)
    snake = dataclasses.replace(cls(), **{name: value})
    text = ",".join(value) if isinstance(value, tuple) else str(value)
    plain = (
        list(value)
        if isinstance(value, tuple)
        else str(value)
        if isinstance(value, Path)
        else value
    )
    section = settings_source.setting_sections(cls)[name]
    assert getattr(snake, name) != getattr(cls(), name)
    assert read(cls, {f"BIREME_{name.upper()}": text}, {}) == snake
    found = read(cls, {}, {section: {to_camel(name): plain}})
    assert found == snake
    assert type(getattr(found, name)) is type(value)


@pytest.mark.parametrize("cls", settings_classes())
def test_settings_classes_have_sections_and_readable_types(cls: type[Any]) -> None:
    assert {*settings_source.setting_sections(cls).values()} <= {*settings_source.SECTIONS}
    assert read(cls, {}, {}) == cls()
    assert set(get_type_hints(cls).values()) <= {str, int, float, bool, tuple[str, ...], Path}


def test_environment_wins_over_the_file() -> None:
    given = {"sample": {"someCount": 2, "someText": "file"}}
    found = read(SampleSettings, {"BIREME_SOME_COUNT": "3"}, given)
    assert (found.some_count, found.some_text) == (3, "file")


def test_other_sections_and_other_variables_are_left_alone() -> None:
    assert read(SampleSettings, {"BIREME_OTHER": "1"}, {"operator": {"x": 1}}) == SampleSettings()


@pytest.mark.parametrize(
    ("name", "text", "remedy"),
    [
        ("some_count", "many", "a whole number"),
        ("some_count", "", "a whole number"),
        ("some_count", "1.5", "a whole number"),
        ("some_count", "1_000", "a whole number"),
        ("some_count", "9" * 5000, "a whole number"),
        ("some_share", "half", "a finite number"),
        ("some_share", "nan", "a finite number"),
        ("some_share", "inf", "a finite number"),
        ("is_on", "maybe", "true or false"),
        ("some_file", "", "the path"),
    ],
)
def test_bad_variable_names_itself_its_value_and_the_remedy(
    name: str, text: str, remedy: str
) -> None:
    with pytest.raises(SettingError) as caught:
        read(SampleSettings, {f"BIREME_{name.upper()}": text}, {})
    message = str(caught.value)
    assert message.startswith(f"BIREME_{name.upper()} is '{text[:10]}")
    assert remedy in message
    assert len(message) < 300


@pytest.mark.parametrize(
    ("key", "value", "remedy"),
    [
        ("someText", 5, "quote it"),
        ("someText", True, "quote it"),
        ("someText", None, "quote it"),
        ("someCount", "1", "a whole number"),
        ("someCount", True, "a whole number"),
        ("someCount", 1.0, "a whole number"),
        ("someShare", "0.5", "a finite number"),
        ("someShare", float("inf"), "a finite number"),
        ("someShare", 10**400, "a finite number"),
        ("isOn", 1, "true or false"),
        ("isOn", "on", "true or false"),
        ("someLevels", "a,b", "a list of texts"),
        ("someLevels", ["a", 1], "a list of texts"),
        ("someFile", 1, "the path"),
    ],
)
def test_bad_value_in_the_file_names_itself_and_the_remedy(
    key: str, value: Any, remedy: str
) -> None:
    with pytest.raises(SettingError) as caught:
        read(SampleSettings, {}, {"sample": {key: value}})
    assert str(caught.value).startswith(f"sample.{key} is ")
    assert remedy in str(caught.value)


def test_unknown_key_is_refused_with_its_value_and_the_nearest_name() -> None:
    with pytest.raises(
        SettingError,
        match=r"sample.someCuont is 2, but section sample has no setting of this name: "
        r"correct or remove it; did you mean 'someCount'",
    ):
        read(SampleSettings, {}, {"sample": {"someCuont": 2}})
    with pytest.raises(SettingError, match=r"known: isOn, someCount"):
        read(SampleSettings, {}, {"sample": {"zzz": 2}})
    with pytest.raises(SettingError, match="did you mean 'someCount'"):
        read(SampleSettings, {}, {"sample": {"some_count": 2}})


def test_key_of_another_section_is_sent_there() -> None:
    for section, cls in (("operator", operator_settings()), ("extender", ExtenderSettings)):
        with pytest.raises(
            SettingError,
            match=rf"{section}.logLevel is 'debug', but .*: move it to section program",
        ):
            read(cls, {}, {section: {"logLevel": "debug"}})


def test_internal_field_is_no_setting_in_file_or_environment() -> None:
    with pytest.raises(
        SettingError, match=r"scheduling\.jobPriorityHalf is 50, but section scheduling has no"
    ):
        read(SchedulingSettings, {}, {"scheduling": {"jobPriorityHalf": 50}})
    found = read(SchedulingSettings, {"BIREME_JOB_PRIORITY_HALF": "50"}, {})
    assert found == SchedulingSettings() != SchedulingSettings(job_priority_half=50)


@pytest.mark.parametrize(
    ("name", "address"),
    [
        *(("extender_address", text) for text in ("", "8888", "h:", "h:0", "h:65536", "::1:80")),
        ("metrics_address", "localhost"),
        ("metrics_address", "127.0.0.1:http"),
    ],
)
def test_text_that_is_no_address_is_refused(name: str, address: str) -> None:
    with pytest.raises(SettingError, match=f"{name} is '{address}'; it must be HOST:PORT"):
        read(ExtenderSettings, {f"BIREME_{name.upper()}": address}, {})


def test_two_servers_of_the_extender_share_no_port() -> None:
    with pytest.raises(
        SettingError, match=r"metrics_address is '0\.0\.0\.0:8888', with the port of"
    ):
        ExtenderSettings(metrics_address="0.0.0.0:8888")


def test_impossible_log_level_is_refused() -> None:
    with pytest.raises(SettingError, match="log_level is 'verbose'; it must be one of debug, info"):
        ExtenderSettings(log_level="verbose")


# --- the file ---------------------------------------------------------------------------------


def config(folder: Path, text: str) -> dict[str, str]:
    path = folder / "bireme.yaml"
    path.write_text(text)
    return {"BIREME_CONFIG": str(path)}


def test_without_a_file_everything_keeps_its_default() -> None:
    assert document({}) == {}
    assert document({"BIREME_CONFIG": ""}) == {}


def test_one_file_serves_several_programs(tmp_path: Path) -> None:
    content = {
        "extender": {"extenderAddress": "127.0.0.1:9000"},
        "scheduling": {"waitBoundSeconds": 60},
    }
    environ = config(tmp_path, yaml.safe_dump(content))
    given = document(environ)
    assert read(ExtenderSettings, environ, given).extender_address == "127.0.0.1:9000"
    assert read(SchedulingSettings, environ, given).wait_bound_seconds == 60


def test_empty_file_and_empty_section_say_nothing(tmp_path: Path) -> None:
    assert document(config(tmp_path, "# nothing\n")) == {}
    given = document(config(tmp_path, "extender:\n"))
    assert read(ExtenderSettings, {}, given) == ExtenderSettings()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("extendre: {}", "has a section 'extendre', .*did you mean 'extender'"),
        ("- extender", "must be a mapping"),
        ("1: {}", "must be a mapping"),
        ("extender: [", "cannot be read"),
        ("extender: !!python/object:os.system {}", "cannot be read"),
    ],
)
def test_bad_file_is_refused_by_name(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(SettingError, match=message) as caught:
        document(config(tmp_path, text))
    assert "BIREME_CONFIG" in str(caught.value)


def test_missing_file_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"BIREME_CONFIG is .*none.yaml.*name a readable YAML"):
        document({"BIREME_CONFIG": str(tmp_path / "none.yaml")})


def test_section_that_is_no_mapping_is_refused() -> None:
    with pytest.raises(SettingError, match="extender in the settings file is 5; it must be a map"):
        read(ExtenderSettings, {}, {"extender": 5})


def test_shares_of_gpus_may_be_written_as_a_mapping_of_names_to_numbers() -> None:
    table = {"nvidia.com/mig-1g.10gb": 0.125, "nvidia.com/mig-3g.40gb": 0.5}
    found = read(SchedulingSettings, {}, {"scheduling": {"gpuUnits": table}})
    assert found.known_accelerators.milli_units == {
        "nvidia.com/mig-1g.10gb": 125,
        "nvidia.com/mig-3g.40gb": 500,
    }
