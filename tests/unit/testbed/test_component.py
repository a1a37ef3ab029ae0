"""A program of a cluster that this interpreter started again, and the end of both."""

import subprocess
import sys
from pathlib import Path

from testbed.controlplane.process import free_ports

ROOT = Path(__file__).parents[3]
PROGRAM = """
import sys
from pathlib import Path
from testbed.controlplane.cluster import Cluster
from testbed.controlplane.cluster import clusters_folder
from testbed.controlplane.process import Component

folder = clusters_folder() / "mine"
(folder / "bin").mkdir(parents=True)
(folder / "logs").mkdir()
(folder / "pids").mkdir()
program = folder / "bin" / "server"
program.symlink_to(sys.executable)
port = sys.argv[1]
command = [str(program), "-m", "http.server", port, "--bind", "127.0.0.1"]
Component("server", command, folder, f"http://127.0.0.1:{port}/").start()
Cluster("mine").stop()
print("stopped", folder.exists())
"""


def test_interpreter_that_stopped_its_cluster_ends_without_a_word(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    done = subprocess.run(
        [sys.executable, "-W", "always", "-c", PROGRAM, str(port)],
        env={"PYTHONPATH": str(ROOT), "BIREME_CACHE": str(tmp_path), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "stopped False\n", "")
