"""Whether anything in constraints.txt has a known vulnerability, as far as that can be asked.

pip-audit asks the package index for advisories. Where there is no way to it, or the index is a
mirror that knows none, that is said and nothing fails: a check that is offline must not look like
one that found nothing. One package is asked about first, so that finding this out is quick, and
an audit of the same constraints counts for a day.
"""

import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

_PROBE_SECONDS: Final = 20.0
_AUDIT_SECONDS: Final = 300.0
_DAY_SECONDS: Final = 86_400.0


class Unavailable(Exception):  # noqa: N818  # an answer, not a malfunction
    """Nobody tells advisories; the text says why."""


@dataclass(frozen=True, slots=True)
class Audit:
    """What was asked and found."""

    audited: int
    unknown: tuple[str, ...]
    """Packages of which the index tells no advisories."""
    found: tuple[str, ...]
    """A line per vulnerability: package, version, its name, the versions that mend it."""


def read(report: str) -> Audit:
    """The audit in pip-audit's JSON ``report``."""
    dependencies: list[dict[str, Any]] = json.loads(report)["dependencies"]
    unknown = tuple(each["name"] for each in dependencies if "skip_reason" in each)
    found = tuple(
        f"{each['name']} {each['version']}: {flaw['id']},"
        f" mended in {', '.join(flaw['fix_versions']) or 'no version yet'}"
        for each in dependencies
        for flaw in each.get("vulns", ())
    )
    return Audit(len(dependencies) - len(unknown), unknown, found)


def is_fresh(stamp: Path, constraints: Path, now: float) -> bool:
    """Whether the audit of ``stamp`` is of these constraints and less than a day old."""
    if not stamp.exists():
        return False
    made = stamp.stat().st_mtime
    return made > constraints.stat().st_mtime and now - made < _DAY_SECONDS


def audit(constraints: Path) -> Audit:
    """What is known of every package in ``constraints``.

    Raises:
        Unavailable: the advisories cannot be had.
    """
    first = next(line.split()[0] for line in constraints.read_text().splitlines() if "==" in line)
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as probe:
        probe.write(f"{first}\n")
        probe.flush()
        if not _asked(Path(probe.name), _PROBE_SECONDS).audited:
            raise Unavailable("the package index in use tells no advisories")
    return _asked(constraints, _AUDIT_SECONDS)


def _asked(requirements: Path, seconds: float) -> Audit:
    command = [sys.executable, "-m", "pip_audit", "--requirement", str(requirements)]
    flags = ["--no-deps", "--disable-pip", "--format=json", "--progress-spinner=off", "--timeout=5"]
    try:
        done = subprocess.run(
            [*command, *flags], capture_output=True, text=True, timeout=seconds, check=False
        )
        return read(done.stdout)
    except subprocess.TimeoutExpired:
        raise Unavailable(f"the package index did not answer within {seconds:.0f} s") from None
    except json.JSONDecodeError:
        why = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise Unavailable(f"pip-audit could not ask: {why[:200]}") from None
