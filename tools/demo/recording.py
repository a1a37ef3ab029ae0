"""Settings of the demo's operator: it records what it decides."""

from pathlib import Path
from typing import Final

from bireme.replay.writer import record_files

_SETTINGS: Final = {
    "BIREME_MIN_RUNTIME_SECONDS": "3",  # five minutes where jobs run for hours
    "BIREME_RESIZE_SETTLE_SECONDS": "1",
}


def operator_settings(records: Path) -> dict[str, str]:
    """Return the operator's settings, to record in a folder; older records there are deleted."""
    records.mkdir(parents=True, exist_ok=True)
    for file in record_files(records):
        file.unlink()
    return {**_SETTINGS, "BIREME_RECORD_DIRECTORY": str(records.resolve())}
