"""Measurements, simulations and experiments; each writes the pages below docs/results."""

from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
RESULTS: Final = ROOT / "docs" / "results"
SCRATCH: Final = ROOT / ".run"
DATA: Final = ROOT.parent / "shared" / "data"
"""Public traces, which are no part of the repository, unless another folder is named."""
