"""The images as kubelet runs them: programs start from bytecode, as nobody, and write nowhere."""

from typing import Final

import pytest

from testbed.scenario.tenant import Tenant
from tests.node.real_pods import await_end, logs, python_pod
from tools.images.archives import Images

WITHOUT_BYTECODE: Final = """
import importlib, os, sys
for name in {names}:
    importlib.import_module(name)
for name, module in sorted(sys.modules.items()):
    cached = getattr(module, "__cached__", None)
    if cached and not os.path.exists(cached):
        print("without bytecode:", name)
"""
WRITABLE: Final = """
import os
open_to_all = ("/proc", "/sys", "/dev", "/tmp", "/var/tmp", "/run")  # by Linux and Debian
for folder, _, names in os.walk("/"):
    if folder.startswith(open_to_all):
        continue
    for name in ["", *names]:
        path = os.path.join(folder, name)
        if os.access(path, os.W_OK, follow_symlinks=False) and not os.path.islink(path):
            print(path)
"""
NOBODY: Final = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}


def printed(tenant: Tenant, image: str, program: str) -> list[str]:
    """Lines that a program prints in an image, run as its Dockerfile says: not as root."""
    container = {"image": image, "command": ["python", "-c", program], "securityContext": NOBODY}
    tenant.create(python_pod("program", program, container=container))
    assert await_end(tenant, "program")["exitCode"] == 0, logs(tenant, "program")
    return logs(tenant, "program").splitlines()


@pytest.mark.parametrize("program", ["bireme_operator", "bireme_extender", "bireme.cli"])
def test_whatever_a_program_imports_at_its_start_is_bytecode(
    images: Images, tenant: Tenant, program: str
) -> None:
    name = program if program == "bireme.cli" else f"{program}.__main__"
    names = [name, "kubernetes.aio.config", "kubernetes.aio.client", "onnx", "onnxruntime"]
    assert printed(tenant, images.bireme.name, WITHOUT_BYTECODE.format(names=names)) == []


def test_so_is_what_the_nightly_forecast_imports(images: Images, tenant: Tenant) -> None:
    models = ["arima", "gru", "holt_winters", "lsp", "nightly_job", "pool_forecast"]
    names = [f"bireme.forecasting.{model}" for model in models]
    assert printed(tenant, images.forecast.name, WITHOUT_BYTECODE.format(names=names)) == []


def test_so_is_what_the_lab_imports(images: Images, tenant: Tenant) -> None:
    names = ["bireme_lab.cli.simulate", "bireme_lab.cli.tune", "bireme_lab.builtin"]
    assert printed(tenant, images.lab.name, WITHOUT_BYTECODE.format(names=names)) == []


@pytest.mark.parametrize(
    ("image", "learned"),
    [("bireme", "learned-index"), ("lab", "a2c a2c-cnn das learned-index rlpto tapfinger")],
)
def test_only_the_image_of_the_lab_has_policies_of_research(
    images: Images, tenant: Tenant, image: str, learned: str
) -> None:
    program = "from bireme import registry; print(*registry.shipped_parts())"
    assert printed(tenant, getattr(images, image).name, program) == [learned]


def test_nothing_in_the_image_can_be_written(images: Images, tenant: Tenant) -> None:
    assert printed(tenant, images.forecast.name, WRITABLE) == []
