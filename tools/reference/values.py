"""``charts/bireme/README.md``: what the chart takes, from the comments of ``values.yaml``.

A comment belongs to the key below it. A map whose keys have no comments is one entry with its whole
default; so is a list. Read with a few lines, as no YAML parser keeps comments.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import yaml

from reference.tables import code, table

CHART: Final = Path(__file__).parents[2] / "charts" / "bireme"
_KEY: Final = re.compile(r"( *)([A-Za-z]+):")


def page() -> str:
    """The whole page."""
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    text = (CHART / "values.yaml").read_text()
    rows = list(_rows(yaml.safe_load(text), comments(text), ""))
    return _HEAD.format(**chart) + table(("value", "default", "meaning"), rows)


def comments(text: str) -> dict[str, str]:
    """Path of a key, such as ``crds.enabled``, to the comment above it; only keys with one."""
    found: dict[str, str] = {}
    path: list[str] = []
    above: list[str] = []
    for line in text.splitlines():
        key = _KEY.match(line)
        if line.lstrip().startswith("#"):
            above.append(line.lstrip("# "))
            continue
        if key:
            path[len(key[1]) // 2 :] = [key[2]]
            if above:
                found[".".join(path)] = " ".join(above)
        above = []
    return found


def _rows(values: dict[str, Any], said: dict[str, str], path: str) -> Iterator[tuple[str, ...]]:
    for key, value in values.items():
        here = f"{path}{key}"
        if isinstance(value, dict) and value and _speaks_of_parts(here, value, said):
            if here in said:
                yield code(here), "", said[here]
            yield from _rows(value, said, f"{here}.")
        else:
            shown = '`""`' if value == "" else code(value)
            yield code(here), shown, said.get(here, _KNOWN.get(key, ""))


def _speaks_of_parts(here: str, value: dict[str, Any], said: dict[str, str]) -> bool:
    return here not in said or bool(value) and "limits" not in value


_KNOWN: Final = {
    "replicas": "How many pods.",
    "repository": "Its image.",
    "resources": "Of its container.",
    "nodeSelector": "Where its pods may run.",
    "tolerations": "Taints its pods put up with.",
    "affinity": "Where its pods would rather run.",
    "podAnnotations": "Annotations on its pods.",
    "pullPolicy": "When the node asks the registry.",
    "enabled": "Whether to install it.",
}
_HEAD: Final = """# Chart {name}

{description} Version {version}; written by `make reference` from `values.yaml`.

```sh
helm install bireme charts/bireme -n bireme-system --create-namespace
```

`values.schema.json` refuses a value it does not know. [Quick start](../../docs/quickstart.md) goes from
here to a running gang, [operations](../../docs/operations.md) to upgrades and what happens when a part
is dead.

"""
