"""Read settings from a YAML file and the environment into frozen dataclasses.

A setting has one name in three spellings: ``wait_bound_seconds`` in the dataclass,
``waitBoundSeconds`` in the file, ``BIREME_WAIT_BOUND_SECONDS`` in the environment. The environment
takes precedence over the file, and the file over the default. ``BIREME_CONFIG`` names the file. The
file has a section for each dataclass, such as ``scheduling`` for ``SchedulingSettings``, so that
the operator and the extender can share it. A field stands in the section of the class that declares
it, which may be a base class. A field marked as :class:`bireme.core.bounds.Internal` is no setting.
The operator reads two more: ``defaultQueue`` is the spec of a Queue, ``learnedShadow`` the
checkpoint of a SchedulingPolicy.

Settings are plain dataclasses because the core, which does not use pydantic, declares some of them.
"""

import dataclasses
import inspect
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, TypeVar, get_type_hints

import yaml
from pydantic.alias_generators import to_camel

from bireme.core.bounds import Pairs, bounds_of, internal_fields
from bireme.core.errors import SettingError, nearest

CONFIG_VARIABLE: Final = "BIREME_CONFIG"
SECTIONS: Final = (
    "scheduling",
    "program",
    "operator",
    "extender",
    "defaultQueue",
    "learnedShadow",
)

_T = TypeVar("_T")
_WHOLE = re.compile(r"[+-]?[0-9]+")
_BOOLEANS: Final = {"true": True, "1": True, "false": False, "0": False}
_EXPECTED_FORMS: Final[Mapping[object, str]] = {
    str: "text; quote it in YAML",
    int: "a whole number",
    float: "a finite number",
    bool: "true or false",
    tuple[str, ...]: "a list of texts (separated by commas in the environment)",
    Path: "the path of a file or folder",
}


def document(environ: Mapping[str, str]) -> Mapping[str, Any]:
    """Return the settings file that ``BIREME_CONFIG`` names, by section; empty without one.

    Raises:
        SettingError: the file is unreadable, is not a mapping, or has an unknown section.
    """
    named = environ.get(CONFIG_VARIABLE)
    if not named:
        return {}
    try:
        return parse(Path(named).read_bytes(), f"the file {named!r} of {CONFIG_VARIABLE}")
    except OSError as error:
        raise SettingError(
            f"{CONFIG_VARIABLE} is {named!r}, which cannot be read: {error}; "
            "name a readable YAML file or unset it"
        ) from error


def parse(text: str | bytes, where: str) -> Mapping[str, Any]:
    """Parse a settings file into its sections; ``where`` names it in errors.

    Raises:
        SettingError: ``text`` is not YAML, is not a mapping, or has an unknown section.
    """
    try:
        content = yaml.safe_load(text)
    except (UnicodeDecodeError, yaml.YAMLError) as error:
        raise SettingError(f"{where} cannot be read: {error}; write YAML") from error
    if content is None:
        return {}
    sections = _mapping(content, where)
    for name in sections:
        if name not in SECTIONS:
            raise SettingError(
                f"{where} has a section {name!r}, but there is none of this name: correct or "
                f"remove it; {nearest(name, SECTIONS)}"
            )
    return sections


def read(cls: type[_T], environ: Mapping[str, str], document: Mapping[str, Any]) -> _T:
    """Return an instance of the settings dataclass ``cls``; a missing setting keeps its default.

    Fields may be str, int, float, bool, ``tuple[str, ...]`` or Path.

    Raises:
        SettingError: names the setting as the user spelled it, its value and the remedy.
    """
    types, bounds, sections = get_type_hints(cls), bounds_of(cls), setting_sections(cls)
    keys = {to_camel(name): section for name, section in sections.items()}
    in_file = {
        section: _mapping(document.get(section) or {}, f"{section} in the settings file")
        for section in {section_of(cls): None} | dict.fromkeys(sections.values())
    }
    for section, entries in in_file.items():
        _refuse_unknown(section, entries, keys)
    values: dict[str, Any] = {}
    for name, section in sections.items():
        variable, key = variable_of(name), to_camel(name)
        if variable in environ:
            values[name] = _parse_value(_from_text, types[name], environ[variable], variable)
        elif key in in_file[section]:
            value = in_file[section][key]
            if isinstance(bounds.get(name), Pairs) and isinstance(value, dict):
                value = [f"{pair_key}={value[pair_key]}" for pair_key in value]
            values[name] = _parse_value(_from_yaml, types[name], value, f"{section}.{key}")
    return cls(**values)


def setting_sections(cls: type) -> dict[str, str]:
    """Return the names of the settings of ``cls``, without its internals, and their sections."""
    internals = internal_fields(cls)
    owners = {name: owner for owner in cls.__mro__ for name in inspect.get_annotations(owner)}
    names = [field.name for field in dataclasses.fields(cls) if field.name not in internals]
    return {name: section_of(owners[name]) for name in names}


def section_settings(cls: type) -> list[str]:
    """Return the names of the settings that ``cls`` itself declares, which are its section."""
    own = section_of(cls)
    return [name for name, section in setting_sections(cls).items() if section == own]


def section_of(cls: type) -> str:
    """Return the section of the file for ``cls``: ``extender`` for ExtenderSettings."""
    return cls.__name__.removesuffix("Settings").lower()


def variable_of(name: str) -> str:
    """Return the environment variable of the setting ``name``."""
    return f"BIREME_{name.upper()}"


def _mapping(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        raise SettingError(f"{where} is {_excerpt(value)}; it must be a mapping of names to values")
    return value


def _refuse_unknown(section: str, entries: Mapping[str, Any], sections: Mapping[str, str]) -> None:
    """Refuse a key of ``section`` that ``sections``, which has the section of each key, lacks."""
    for key, value in entries.items():
        if sections.get(key) == section:
            continue
        names = sorted(name for name, place in sections.items() if place == section)
        remedy = f"correct or remove it; {nearest(key, names)}"
        if key in sections:
            remedy = f"move it to section {sections[key]}"
        raise SettingError(
            f"{section}.{key} is {_excerpt(value)}, but section {section} has no setting of this "
            f"name: {remedy}"
        )


def _parse_value(parse: Any, kind: Any, value: Any, spelled: str) -> Any:
    if kind not in _EXPECTED_FORMS:
        raise TypeError(f"{spelled}: settings of type {kind} cannot be read")
    try:
        return parse(kind, value)
    except ValueError:
        raise SettingError(
            f"{spelled} is {_excerpt(value)}; it must be {_EXPECTED_FORMS[kind]}"
        ) from None


def _from_text(kind: Any, text: str) -> Any:
    """Convert ``text`` from the environment to ``kind``; ValueError if that is impossible."""
    if kind is bool:
        return _only(text.lower() in _BOOLEANS, _BOOLEANS.get(text.lower()))
    if kind is int:
        return int(_only(_WHOLE.fullmatch(text) is not None and len(text) < 32, text))
    if kind is float:
        return _from_yaml(float, float(text))
    if kind is Path:
        return _from_yaml(Path, text)
    if kind == tuple[str, ...]:
        return tuple(part.strip() for part in text.split(",") if part.strip())
    return text


def _from_yaml(kind: Any, value: Any) -> Any:
    """Convert ``value`` from the file to ``kind``; ValueError if that is impossible."""
    if kind is float:
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        return float(_only(number and abs(value) < 1e300 and not math.isnan(value), value))
    if kind is int:
        return _only(isinstance(value, int) and not isinstance(value, bool), value)
    if kind is Path:
        return Path(_only(isinstance(value, str) and bool(value), value))
    if kind == tuple[str, ...]:
        texts = isinstance(value, list) and all(isinstance(part, str) for part in value)
        return tuple(_only(texts, value))
    return _only(isinstance(value, kind), value)


def _only(holds: bool, value: Any) -> Any:
    if not holds:
        raise ValueError
    return value


def _excerpt(value: object) -> str:
    text = ascii(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
