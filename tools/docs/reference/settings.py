"""``docs/reference/settings.md``: the settings of both programs, from their dataclasses.

A field's docstring is the meaning of the setting; one without is an error here.
"""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any, Final, get_type_hints

from pydantic.alias_generators import to_camel

from bireme.core.bounds import bounds_of
from bireme.core.settings import SchedulingSettings
from bireme.program_settings import ProgramSettings
from bireme.settings_source import CONFIG_VARIABLE, section_of, section_settings, variable_of
from bireme_extender.settings import ExtenderSettings
from bireme_operator.settings import OperatorSettings
from tools.docs.reference.tables import code, docstrings, table

_HEAD: Final = f"""# Settings

Written by `make reference` from the code. Every setting can be given in two places: by its name in
the file that `{CONFIG_VARIABLE}` names, under its section, or by its variable in the environment,
which wins. Operator and extender read the same file; each refuses an unknown key. In
the chart the sections are the values `scheduling`, `program` and `operator.settings`; the chart
itself sets addresses. A section `defaultQueue`, in the chart `defaultQueue.spec`, is the
spec of a [Queue](api.md#queue) `default`, which the operator creates if there is none. A section
`learnedShadow`, in the chart `learnedShadow.checkpoint`, is the checkpoint of a
[SchedulingPolicy](api.md#schedulingpolicy) `bireme-learned-shadow`, which it creates once per
version.

```yaml
scheduling:
  waitBoundSeconds: 43200
program:
  logLevel: debug
```

"""
SECTIONS: Final[Mapping[type[Any], str]] = {
    SchedulingSettings: "Settings of decisions, for both programs.",
    ProgramSettings: "Settings of each program, the operator and the extender.",
    OperatorSettings: "Times are in seconds.",
    ExtenderSettings: "Settings of the extender alone.",
}
"""The dataclass of each section, and a sentence about it."""
# Words for readers of YAML, not of Python.
_TYPES: Final = {str: "text", int: "whole number", float: "number", bool: "true or false"}


def page() -> str:
    return _HEAD + "\n".join(_section(cls, words) for cls, words in SECTIONS.items())


def _section(cls: type[Any], words: str) -> str:
    columns = ("setting", "variable", "type", "bounds", "default", "meaning")
    return f"## Section `{section_of(cls)}`\n\n{words}\n\n{table(columns, rows(cls))}"


def rows(cls: type[Any]) -> Iterator[tuple[str, ...]]:
    """Yield a row for every setting of a section; KeyError for one without a docstring."""
    types, bounds, meanings = get_type_hints(cls), bounds_of(cls), docstrings(cls)
    defaults = {field.name: field.default for field in dataclasses.fields(cls)}
    for name in section_settings(cls):
        yield (
            code(to_camel(name)),
            code(variable_of(name)),
            _TYPES.get(types[name], "list of texts"),
            str(bounds.get(name, "")),
            code(defaults[name]),
            meanings[name],
        )
