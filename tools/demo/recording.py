"""Settings of the demo's operator: it records what it decides."""

from pathlib import Path

from bireme.replay.writer import record_files
from tools.demo.cluster import SETTINGS


def operator_settings(records: Path) -> dict[str, str]:
    """Return the operator's settings, to record in a folder; older records there are deleted."""
    records.mkdir(parents=True, exist_ok=True)
    for file in record_files(records):
        file.unlink()
    return {**SETTINGS, "BIREME_RECORD_DIRECTORY": str(records.resolve())}
