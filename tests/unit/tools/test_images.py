"""Sources of images: pinned requirements, and a context that holds all that is copied."""

import io
import json
import re
import tarfile
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement

from testbed.controlplane.errors import ControlPlaneError
from tests.unit.tools.pins import REPOSITORY, pins
from tools.images import archives, debian, materials, sizes, tool
from tools.images.tool import pip_configuration

COPY = re.compile(r"^COPY (?!--from)(.+) \S+$", re.MULTILINE)


@pytest.mark.parametrize("file", ["image/bireme.txt", "image/forecast.txt", "image/build.txt"])
def test_images_have_the_versions_that_tests_run_with(file: str) -> None:
    tested = pins("constraints.txt")
    assert {pin: tested.get(pin) for pin in pins(file)} == pins(file)


def test_the_forecast_adds_packages_to_the_image_below_it() -> None:
    below, above = pins("image/bireme.txt"), pins("image/forecast.txt")
    assert {pin: above.get(pin) for pin in below} == below
    assert "statsmodels" in {name for name, _ in set(above) - set(below)}


def test_no_image_has_torch_and_each_has_what_its_programs_name() -> None:
    extras = {"bireme": ("operator", "extender", "serve"), "forecast": ("forecast",)}
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    for image, named in extras.items():
        installed = {name for name, _ in pins(f"image/{image}.txt")}
        asked = [*project["dependencies"]]
        asked += [one for extra in named for one in project["optional-dependencies"][extra]]
        assert {Requirement(one).name for one in asked} - {"bireme"} <= installed
        assert "torch" not in installed


def test_the_lab_needs_no_package_that_the_image_below_it_has_not() -> None:
    project = tomllib.loads((REPOSITORY / "policies/pyproject.toml").read_text())["project"]
    (library,) = (Requirement(one) for one in project["dependencies"])
    assert (library.name, library.extras) == ("bireme", {"serve"})


def test_the_context_has_all_that_the_dockerfile_copies() -> None:
    let_in = re.findall(r"^!(.+)$", (REPOSITORY / ".dockerignore").read_text(), re.MULTILINE)
    copied = COPY.findall((REPOSITORY / "Dockerfile").read_text())
    for source in (one for sources in copied for one in sources.split() if one != "."):
        assert any(source == name or source.startswith(f"{name}/") for name in let_in), source
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
    needed = [project["project"]["readme"], "LICENSE", "pyproject.toml"]
    needed += project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    needed += ["policies/pyproject.toml", "policies/bireme_lab"]
    for path in needed:
        assert any(path == name or path.startswith(f"{name}/") for name in let_in), path


def test_the_dockerfile_has_a_target_for_each_repository_of_the_chart() -> None:
    values = yaml.safe_load((REPOSITORY / "charts/bireme/values.yaml").read_text())
    programs = (values["operator"], values["scheduler"]["extender"], values["forecast"])
    dockerfile = (REPOSITORY / "Dockerfile").read_text()
    stages = re.findall(r"^FROM .* AS (\S+)$", dockerfile, re.MULTILINE)
    assert {program["image"]["repository"] for program in programs} <= set(stages)
    made = archives.images_in(Path("folder"))
    assert [image.path.stem for image in made.own] == stages[-3:]


def test_another_source_is_another_image(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "image").mkdir()
    for name, text in {".dockerignore": "*\n!image\n", "Dockerfile": "", "README.md": ""}.items():
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(archives, "REPOSITORY", tmp_path)
    monkeypatch.setattr(archives, "TOOLS", tmp_path / "none")

    def key() -> str:
        return archives.digest(*archives._inputs())

    keys = [key()]
    for change in ("image/pins.txt", "Dockerfile", ".dockerignore"):
        with (tmp_path / change).open("a") as file:
            file.write("!image # more\n" if change == ".dockerignore" else "more")
        keys.append(key())
    assert len(set(keys)) == len(keys)
    (tmp_path / "README.md").write_text("nobody builds from this")
    assert key() == keys[-1]


def test_only_root_builds_images(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("BIREME_CACHE", str(tmp_path))
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert "need root" in str(archives.obstacle())
    with pytest.raises(ControlPlaneError, match="need root"):
        archives.base()
    assert list(tmp_path.iterdir()) == []


def test_images_are_built_where_the_base_comes_from(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr("platform.freedesktop_os_release", lambda: {"ID": "ubuntu"})
    assert "use Debian" in str(archives.obstacle())


def test_an_apt_that_knows_no_debian_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(debian, "run", lambda _: "")
    with pytest.raises(ControlPlaneError, match=debian.SUITE):
        debian.mirror()


def test_pip_of_a_build_is_configured_as_pip_here_is(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    printed = "\n".join(
        [
            ":env:.find-links='/opt/wheels'",
            ":env:.index-url='https://user:word@near.example/simple'",
            "global.index-url='https://far.example/simple'",
            "global.timeout='60'",
        ]
    )
    monkeypatch.setattr(tool, "run", lambda _: printed)
    target = tmp_path / "pip.conf"
    pip_configuration(Path("python"), target)
    assert sorted(target.read_text().splitlines()) == [
        "[global]",
        "index-url = https://user:word@near.example/simple",
        "timeout = 60",
    ]
    assert target.stat().st_mode & 0o777 == 0o600


def test_a_step_that_fails_is_reported_with_its_last_output() -> None:
    with pytest.raises(ControlPlaneError, match=r"sh -c .* failed with status 3\nno room left"):
        tool.run(["sh", "-c", "echo no room left >&2; exit 3"])
    with pytest.raises(ControlPlaneError, match="no-such-program does not work here"):
        tool.run(["no-such-program"])


@pytest.mark.parametrize(
    ("field", "terms"),
    [
        ("License-Expression: MIT", ["MIT"]),
        ("License-Expression: MIT AND BSD-3-Clause", ["MIT AND BSD-3-Clause"]),
        ("License: Apache License 2.0", ["Apache License 2.0"]),
        ("License: Copyright\n        and so on", []),
    ],
)
def test_the_bill_of_materials_names_python_packages_with_version_and_terms(
    tmp_path: Path, field: str, terms: list[str]
) -> None:
    folder = tmp_path / "opt/bireme/lib/python3.13/site-packages/Some_Thing-1.2.dist-info"
    folder.mkdir(parents=True)
    text = f"Metadata-Version: 2.4\nName: Some_Thing\nVersion: 1.2\n{field}\n"
    (folder / "METADATA").write_text(text)
    (found,) = materials.python_packages(tmp_path)
    assert (found.name, found.version, str(found.purl)) == (
        "some-thing",
        "1.2",
        "pkg:pypi/some-thing@1.2",
    )
    fields = ("id", "name", "value")
    stated = [[getattr(one, field, None) for field in fields] for one in found.licenses]
    assert [next(filter(None, texts)) for texts in stated] == terms


def test_layers_are_measured_as_they_are_packed_and_unpacked(tmp_path: Path) -> None:
    site = "opt/bireme/lib/python3.13/site-packages"
    files = {site: 0, f"{site}/numpy/core.py": 4000, "etc/passwd": 96}
    blob = io.BytesIO()
    with tarfile.open(fileobj=blob, mode="w:gz") as layer:
        for name, size in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = size
            layer.addfile(entry, io.BytesIO(bytes(size)))
    packed = len(blob.getvalue())
    blobs = {
        "index.json": {"manifests": [{"digest": "sha256:m"}]},
        "blobs/sha256/m": {
            "layers": [{"digest": "sha256:l", "size": packed}],
        },
    }
    contents = {name: json.dumps(content).encode() for name, content in blobs.items()}
    with tarfile.open(tmp_path / "image.tar", "w") as archive:
        for name, content in {**contents, "blobs/sha256/l": blob.getvalue()}.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    (measured,) = sizes.layers(archives.Archive("near/bireme:1", tmp_path / "image.tar"))
    assert (measured.unpacked, measured.packed) == (4096, packed)
    assert measured.packages == {"numpy": 4000}
