"""Serving a network sends nothing to anybody."""

import os
import subprocess
import sys
from pathlib import Path

PROGRAM = """
from bireme.onnx.errors import CheckpointError
from bireme.onnx.sessions import _make_session
try:
    _make_session(b"no network", "here")
except CheckpointError:
    import onnxruntime
"""


def test_onnx_runtime_keeps_no_identity_to_send_to_its_maker(tmp_path: Path) -> None:
    # Where it may send, it begins with an identity in the user's cache; in a CI it never does.
    silencing = ("CI", "ORT_DISABLE_TELEMETRY", "ORT_RUNNING_UNIT_TESTS", "XDG_CACHE_HOME")
    environment = {name: value for name, value in os.environ.items() if name not in silencing}
    subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**environment, "HOME": str(tmp_path)},
        check=True,
        timeout=120,
    )
    assert list(tmp_path.rglob("*")) == []
