"""Known flaws of what is pinned: pip-audit, whose silence about a package counts as a failure.

pip-audit skips what it finds no advisories for, such as everything where its index has none, and
then reports that nothing is wrong. ``python -m tools.audit FILE`` says how many packages of FILE
were looked up, and ends with status 1 where one has a flaw or could not be looked up.
"""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

PROGRAM: Final = (str(Path(sys.executable).with_name("pip-audit")),)
_FLAGS: Final = (
    *("--disable-pip", "--require-hashes", "--progress-spinner=off"),
    *("--format=json", "--requirement"),
)
_MAX_NAMES: Final = 10


class AuditError(Exception):
    """The packages are not known to be without flaws; the text says which, and what to do."""


class _Flaw(msgspec.Struct, frozen=True):
    id: str
    fix_versions: list[str] = []


class _Package(msgspec.Struct, frozen=True):
    name: str
    version: str = ""
    vulns: list[_Flaw] = []
    skip_reason: str = ""


class _Report(msgspec.Struct, frozen=True):
    dependencies: list[_Package]


def audit(file: Path, program: Sequence[str] = PROGRAM) -> int:
    """Return how many packages of ``file`` were looked up; AuditError unless all are clean."""
    command = [*program, *_FLAGS, str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    try:
        packages = msgspec.json.decode(done.stdout, type=_Report).dependencies
    except msgspec.DecodeError as error:
        raise AuditError(
            f"pip-audit ended with status {done.returncode} and no report: {done.stderr.strip()}"
        ) from error
    flaws = [
        f"{each.name} {each.version}: {flaw.id}, fixed in"
        f" {', '.join(flaw.fix_versions) or 'no version'}"
        for each in packages
        for flaw in each.vulns
    ]
    skipped = [each for each in packages if each.skip_reason]
    if skipped:
        names = ", ".join(each.name for each in skipped[:_MAX_NAMES])
        rest = f" and {len(skipped) - _MAX_NAMES} more" if len(skipped) > _MAX_NAMES else ""
        flaws.append(
            f"{len(skipped)} of {len(packages)} packages could not be looked up, so nothing is"
            f" known of {names}{rest}: {skipped[0].skip_reason}; run it where the index has"
            " advisories"
        )
    if not packages:
        flaws.append(f"pip-audit looked up no package of {file}; it must pin at least one")
    if not flaws and done.returncode:
        flaws.append(f"pip-audit ended with status {done.returncode}: {done.stderr.strip()}")
    if flaws:
        raise AuditError("\n".join(flaws))
    return len(packages)


def main(arguments: Sequence[str]) -> int:
    """Audit each file; return the exit status."""
    status = 0
    for file in map(Path, arguments):
        try:
            print(f"{file}: {audit(file)} packages looked up, none has a known flaw")
        except AuditError as error:
            print(f"{file}: {error}", file=sys.stderr)
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
