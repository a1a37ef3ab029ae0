"""What ``make demo`` installs: a part of what tests run with, and all that its programs import."""

import subprocess
import sys
import tomllib

from packaging.requirements import Requirement

from tests.unit.tools.pins import REPOSITORY, pins

PROGRAMS = (
    "testbed.controlplane.__main__",
    "tools.demo.__main__",
    "tools.demo.embedded_server",
    "tools.demo.gantt",
    "tools.demo.real_cluster",
    "bireme_operator.__main__",
    "bireme_extender.__main__",
)
# Runs with every package hidden that is not in the list.
IMPORTS = """
import importlib, importlib.metadata, re, sys
listed, programs = sys.argv[1].split(), sys.argv[2:]

class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in hidden:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

def same(name):
    return re.sub("[-_.]+", "-", name).lower()

hidden = {
    module
    for module, packages in importlib.metadata.packages_distributions().items()
    if not {same(package) for package in packages} & {*listed, "bireme"}
}
sys.meta_path.insert(0, Hidden())
for program in programs:
    importlib.import_module(program)
"""


def imported(listed: set[str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", IMPORTS, " ".join(listed), *PROGRAMS]
    return subprocess.run(
        command, cwd=REPOSITORY, capture_output=True, text=True, timeout=60, check=False
    )


def test_the_demo_has_the_versions_that_tests_run_with() -> None:
    tested = pins("constraints.txt")
    assert {pin: tested.get(pin) for pin in pins("constraints-demo.txt")} == pins(
        "constraints-demo.txt"
    )


def test_the_demo_installs_what_its_extra_names_and_nothing_that_learns_or_forecasts() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    asked = [*project["dependencies"], *extras["demo"], *extras["operator"], *extras["extender"]]
    installed = {name for name, _ in pins("constraints-demo.txt")}
    assert {Requirement(one).name for one in asked} - {"bireme"} <= installed
    assert not {"torch", "onnx", "onnxruntime", "scipy", "statsmodels"} & installed


def test_programs_of_the_demo_import_nothing_that_it_does_not_install() -> None:
    done = imported({name for name, _ in pins("constraints-demo.txt")})
    assert done.returncode == 0, done.stderr


def test_a_package_that_is_missing_from_the_list_is_found_out() -> None:
    done = imported({name for name, _ in pins("constraints-demo.txt")} - {"psutil"})
    assert "No module named 'psutil'" in done.stderr
