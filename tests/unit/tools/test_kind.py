"""Bireme on kind: what is missing is said at once, and the files that make a cluster agree."""

from pathlib import Path

import pytest
import yaml

from testbed.controlplane.errors import ControlPlaneError
from testbed.controlplane.nodes import GPU_TAINT, KWOK_ANNOTATION
from tools.kind import __main__ as command_line
from tools.kind import confined, nodeimage
from tools.kind.installation import CONFIG, FAKE_NODES, READY_SECONDS, Installation
from tools.kind.programs import PROVIDER_VARIABLE, Programs, find
from tools.release import versions


def program(folder: Path, name: str, script: str) -> None:
    """Put a program of that name into ``folder``, a shell script."""
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder on PATH, empty."""
    monkeypatch.delenv(PROVIDER_VARIABLE, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    return tmp_path / "bin"


def test_everything_that_is_missing_is_named_at_once_with_its_remedy(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program(path, "docker", "echo Cannot connect to the Docker daemon >&2; exit 1")
    assert command_line.main(["up"]) == 1
    said = capsys.readouterr().err.splitlines()
    assert [line.split()[:4] for line in said[1:]] == [
        ["docker", "does", "not", "answer:"],
        ["podman", "is", "not", "on"],
        ["kind", "is", "not", "on"],
        ["helm", "is", "not", "on"],
        ["kubectl", "is", "not", "on"],
    ]
    assert "Cannot connect to the Docker daemon" in said[1]
    assert "go install sigs.k8s.io/kind@v" in said[3]


def test_the_engine_that_answers_is_used_and_the_one_that_is_asked_for_alone(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(path, "docker", "exit 1")
    program(path, "podman", "exit 0")
    assert find() == Programs("podman")
    assert find().environment[PROVIDER_VARIABLE] == "podman"
    monkeypatch.setenv(PROVIDER_VARIABLE, "docker")
    with pytest.raises(ControlPlaneError, match="docker does not answer"):
        find()
    monkeypatch.setenv(PROVIDER_VARIABLE, "nerdctl")
    with pytest.raises(
        ControlPlaneError, match=f"{PROVIDER_VARIABLE}=nerdctl: use docker or podman"
    ):
        find()


def test_a_cluster_that_is_there_is_left_as_it_is(path: Path) -> None:
    program(path, "docker", "exit 0")
    program(path, "kind", '[ "$1 $2" = "get clusters" ] && echo bireme || exit 3')
    with pytest.raises(ControlPlaneError, match="there is a kind cluster bireme: run make kind-d"):
        Installation(find("kind")).up(archives=[path])


def test_bireme_is_installed_and_tested_before_the_fake_nodes_and_all_of_it_is_removed(
    path: Path, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    for name in ("podman", "kind", "helm", "kubectl"):
        program(path, name, f'echo "{name} $1 $2 $3" >> {log}')
    made = Installation(find("kind", "helm", "kubectl"), report=lambda _line: None)
    made.up()
    made.down()
    image = made.image
    assert [line.replace(str(CONFIG.parent), "") for line in log.read_text().splitlines()] == [
        "podman info  ",
        "kind get clusters ",
        f"podman build --target=bireme --tag={image}",
        f"podman save --output {archive_of(log)}",
        "kind create cluster --config=/kind-config.yaml",
        f"kind load image-archive {archive_of(log)}",
        "helm install bireme /charts/bireme",
        f"helm test bireme --timeout={READY_SECONDS}s",
        "kubectl --context=kind-bireme apply -k",
        "kubectl --context=kind-bireme -n kube-system",
        "kubectl --context=kind-bireme wait --for=condition=Ready",
        "kind delete cluster --name=bireme",
        f"podman image inspect {image}",
        f"podman image rm {image}",
    ]


def test_a_cluster_is_removed_whichever_engine_made_it(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "log"
    program(path, "docker", f'[ "$2" != inspect ] || exit 1; echo "docker $1 $2" >> {log}')
    program(path, "podman", f'echo "podman $1 $2" >> {log}')
    program(path, "kind", f'echo "kind of ${PROVIDER_VARIABLE}" >> {log}')
    assert command_line.main(["down"]) == 0, capsys.readouterr().err
    assert log.read_text().splitlines() == [
        *("docker info ", "podman info "),
        "kind of docker",  # which has no image of Bireme's
        *("kind of podman", "podman image inspect", "podman image rm"),
    ]


def archive_of(log: Path) -> str:
    """The file that the engine saved the image to."""
    return log.read_text().partition("save --output ")[2].partition("\n")[0]


def test_without_podman_the_tier_says_which_packages_it_needs(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tools.kind.confined.realnode.obstacle", lambda: None)
    monkeypatch.setattr("tools.kind.confined.archives.obstacle", lambda: None)
    assert confined.obstacle() == (
        "podman is missing: run `apt-get install podman netavark aardvark-dns` as root"
    )
    program(path, "podman", "exit 0")
    assert confined.obstacle() is None


def test_the_image_has_the_name_that_the_chart_gives_it() -> None:
    image = Installation(Programs("docker")).image
    assert image == f"docker.io/library/bireme:{versions.current()}"


def test_fake_nodes_repel_what_asks_for_no_gpu_and_the_api_server_lets_gangs_tolerate_them() -> (
    None
):
    nodes = list(yaml.safe_load_all((FAKE_NODES / "nodes.yaml").read_text()))
    assert [node["spec"]["taints"] for node in nodes] == [[GPU_TAINT]] * 16
    patch = yaml.safe_load(yaml.safe_load(CONFIG.read_text())["kubeadmConfigPatches"][0])
    (argument,) = patch["apiServer"]["extraArgs"]
    assert "ExtendedResourceToleration" in argument["value"].split(",")


def test_kwok_is_of_the_version_that_the_tests_use_and_keeps_to_fake_nodes() -> None:
    documents = list(yaml.safe_load_all((FAKE_NODES / "controller.yaml").read_text()))
    (deployment,) = (each for each in documents if each["kind"] == "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert container["image"] == nodeimage.KWOK_NAME
    selector = f"--manage-nodes-with-annotation-selector={KWOK_ANNOTATION}=fake"
    assert selector in container["args"]


def test_settings_of_the_kernel_are_put_back_though_control_groups_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_group: str) -> None:
        raise ControlPlaneError("libpod_parent is busy")

    monkeypatch.setattr("tools.kind.confined.cgroups.remove", refuse)
    setting = tmp_path / "panic"
    setting.write_text("10\n")
    machine = confined.Confined(tmp_path)
    machine._settings = {setting: "0\n"}
    with pytest.raises(ControlPlaneError, match="busy"):
        machine.stop()
    assert setting.read_text() == "0\n"
