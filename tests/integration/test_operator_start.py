"""What the operator needs of the place where it starts, tried as a program."""

import os
import subprocess
import sys
from pathlib import Path

NAMELESS = """
import getpass

def nameless():
    raise KeyError("getpwuid(): uid not found: 65532")

getpass.getuser = nameless
from bireme_operator.program import main
main()
"""


def test_a_user_without_a_name_gets_as_far_as_the_credentials(tmp_path: Path) -> None:
    """As in a container whose user is in no /etc/passwd: any image, run as any number."""
    env = {**os.environ, "KUBECONFIG": str(tmp_path / "none")}
    program = [sys.executable, "-c", NAMELESS]
    done = subprocess.run(program, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "bireme-operator: cannot use" in done.stderr
    assert "uid not found" not in done.stderr
