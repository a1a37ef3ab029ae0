"""What a release is made of: one version, notes, distributions, a chart that names its images."""

import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from functools import partial
from pathlib import Path

import pytest
import yaml

from testbed.controlplane.errors import ControlPlaneError
from tools.release import chart, distributions, readiness, versions
from tools.release.errors import ReleaseError
from tools.release.notes import notes
from tools.release.signing import refused
from tools.release.versions import ROOT

CHANGELOG = """\
# Changelog

## Unreleased

### Added
- Queues.

## 0.2.0 - 2026-01-31

### Fixed
- A gang that waits.

## 0.1.0

- The first.

## 0.0.1 - 2026-01-01
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The files of this checkout that name the version, to be changed."""
    patterns = ["pyproject.toml", "report/pyproject.toml", *(name for name, _ in versions.PLACES)]
    for file in {file for pattern in patterns for file in ROOT.glob(pattern)}:
        target = tmp_path / file.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, target)
    (tmp_path / "CHANGELOG.md").write_text(CHANGELOG)
    return tmp_path


def test_every_place_names_the_version_of_the_project() -> None:
    versions.check()


@pytest.mark.parametrize("pattern", range(len(versions.PLACES)))
def test_a_place_with_another_version_is_named(checkout: Path, pattern: int) -> None:
    name, expression = versions.PLACES[pattern]
    place = next(
        place for file in sorted(checkout.glob(name)) for place in versions._found(file, expression)
    )
    text = place.file.read_text()
    place.file.write_text(text[: place.span[0]] + "9.9.9" + text[place.span[1] :])
    where = f"{place.file.relative_to(checkout)}:{place.line} says 9.9.9"
    with pytest.raises(ReleaseError, match=f"{where}.*tools.release version"):
        versions.check(checkout)


def test_a_new_version_is_written_into_every_place_and_changes_nothing_else(checkout: Path) -> None:
    old = versions.current(checkout)
    before = {file: file.read_text() for file in checkout.rglob("*") if file.is_file()}
    changed = versions.write("7.10.0", checkout)
    assert versions.current(checkout) == "7.10.0"
    versions.check(checkout)
    assert {file.name for file in changed} >= {
        *("pyproject.toml", "Chart.yaml", "images.md", "kind-config.yaml"),
    }
    for file, text in before.items():
        assert file.read_text().replace("7.10.0", old) == text
    assert versions.write("7.10.0", checkout) == []


@pytest.mark.parametrize("version", ["v1.0.0", "0.2.0rc1"])  # helm refuses the second
def test_what_is_no_version_is_written_nowhere(checkout: Path, version: str) -> None:
    with pytest.raises(ReleaseError, match=rf"version '{version}' is none such as 0\.2\.0$"):
        versions.write(version, checkout)


def test_notes_are_the_section_of_the_version(tmp_path: Path) -> None:
    file = tmp_path / "CHANGELOG.md"
    file.write_text(CHANGELOG)
    assert notes("0.2.0", file) == "### Fixed\n- A gang that waits.\n"
    assert notes("Unreleased", file) == "### Added\n- Queues.\n"


@pytest.mark.parametrize(
    ("version", "reason"),
    [
        ("0.3.0", "has 0 sections for version 0.3.0 .*it has Unreleased, 0.2.0"),
        ("0.1.0", "the date of version 0.1.0 is None: head the section `## 0.1.0 - YYYY-MM-DD`"),
        ("0.0.1", "the section of 0.0.1 lists no change"),
    ],
)
def test_a_section_that_is_missing_undated_or_empty_is_refused(
    tmp_path: Path, version: str, reason: str
) -> None:
    file = tmp_path / "CHANGELOG.md"
    file.write_text(CHANGELOG)
    with pytest.raises(ReleaseError, match=reason):
        notes(version, file)


def test_what_is_written_now_makes_notes() -> None:
    headings = [
        line.split()[1]
        for line in (ROOT / "CHANGELOG.md").read_text().splitlines()
        if line.startswith("## ")
    ]
    assert headings
    for version in headings:
        assert notes(version, ROOT / "CHANGELOG.md")


def test_a_checkout_is_ready_when_tag_notes_and_addresses_are(checkout: Path) -> None:
    versions.write("0.2.0", checkout)
    for name in ("pyproject.toml", "policies/pyproject.toml", "report/pyproject.toml"):
        file = checkout / name
        # Whether this checkout names the account already or not.
        file.write_text(re.sub(r"github\.com/[^/]+/", "github.com/example/", file.read_text()))
    assert list(readiness.missing("v0.2.0", checkout)) == []
    (wrong,) = readiness.missing("v0.2.1", checkout)
    assert wrong == "the tag is v0.2.1, and pyproject.toml has version 0.2.0: tag v0.2.0"
    file = checkout / "report/pyproject.toml"
    file.write_text(file.read_text().replace("/example/", "/OWNER/"))
    (unnamed,) = readiness.missing("v0.2.0", checkout)
    assert unnamed.startswith("report/pyproject.toml: [project.urls] Repository")
    versions.write("0.1.0", checkout)
    assert any("the date of version 0.1.0" in each for each in readiness.missing(None, checkout))


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("caller"))
        # Of the caller's folder, not of the source's in which each is built.
        return distributions.build(Path("dist"))


def committed(*packages: str) -> set[str]:
    """Files that git keeps of packages, by their names in a wheel."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", *packages], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return {name.partition("/")[2] for name in listed.stdout.split("\0") if name}


def files_in_packages(names: set[str]) -> set[str]:
    return {name for name in names if ".dist-info/" not in name}


def test_wheels_have_the_packages_their_data_and_nothing_of_the_checkout(
    wheels: list[Path],
) -> None:
    bireme, lab, report = (set(zipfile.ZipFile(wheel).namelist()) for wheel in wheels)
    # All that git keeps of the packages: code, checkpoints, pages of the board, marks of types.
    assert files_in_packages(bireme) == committed(
        "operator/bireme_operator", "extender/bireme_extender", "policies/bireme"
    )
    assert files_in_packages(lab) == committed("policies/bireme_lab")
    assert files_in_packages(report) == {"bireme_report.py"}
    for names in (bireme, lab, report):
        assert any(name.endswith("dist-info/licenses/LICENSE") for name in names)


def test_the_report_for_training_images_is_the_one_of_the_library_and_needs_nothing(
    wheels: list[Path], tmp_path: Path
) -> None:
    wheel = zipfile.ZipFile(wheels[-1])
    assert wheel.read("bireme_report.py") == (ROOT / "policies/bireme/report.py").read_bytes()
    (name,) = (name for name in wheel.namelist() if name.endswith("/METADATA"))
    metadata = wheel.read(name).decode()
    assert f"\nVersion: {versions.current()}\n" in metadata
    assert "\nRequires-Dist:" not in metadata
    wheel.extractall(tmp_path)
    script = "import bireme_report; print(bireme_report.report(step=1))"
    ran = subprocess.run(
        [
            sys.executable,
            "-I",
            "-S",
            "-c",
            f"import sys; sys.path.append({str(tmp_path)!r}); {script}",
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout == "False\n"


DIGESTS = {"bireme": f"sha256:{'a' * 64}", "bireme-forecast": f"sha256:{'b' * 64}"}


def test_the_chart_of_a_release_names_its_images_by_digest_and_is_else_the_same(
    tmp_path: Path,
) -> None:
    source = ROOT / "charts" / "bireme"
    chart.write(source, tmp_path / "bireme", "registry.example.com/team", DIGESTS)
    before, after = (
        (f / "values.yaml").read_text().splitlines() for f in (source, tmp_path / "bireme")
    )
    changed = [new.strip() for old, new in zip(before, after, strict=True) if old != new]
    assert changed == [
        'registry: "registry.example.com/team"',
        *(f'digest: "{DIGESTS[name]}"' for name in ("bireme", "bireme", "bireme-forecast")),
    ]
    values = yaml.safe_load((tmp_path / "bireme" / "values.yaml").read_text())
    assert values["scheduler"]["image"]["digest"] == "", "that is of the cluster's version"


@pytest.mark.parametrize("digest", ["", "sha256:abc", "latest"])
def test_a_chart_whose_image_has_no_digest_is_not_written(tmp_path: Path, digest: str) -> None:
    digests = DIGESTS | {"bireme-forecast": digest}
    with pytest.raises(ReleaseError, match=f"image bireme-forecast is '{digest}': give it as sha"):
        chart.write(
            ROOT / "charts" / "bireme", tmp_path / "bireme", "registry.example.com", digests
        )


def test_only_a_refusal_for_want_of_a_signature_is_one() -> None:
    def accept() -> None: ...

    def fail(said: str) -> None:
        raise ControlPlaneError(f"cosign failed\n{said}\nmore")

    refusal = "Error: no signatures found"
    assert refused("a forged chart", partial(fail, refusal)) == refusal
    with pytest.raises(ReleaseError, match="a forged chart was accepted"):
        refused("a forged chart", accept)
    with pytest.raises(ControlPlaneError, match="connection refused"):
        refused("a forged chart", partial(fail, "Error: connection refused"))


def test_all_distributions_ask_for_their_licence_and_addresses() -> None:
    projects = [
        tomllib.loads((source / "pyproject.toml").read_text())["project"]
        for source in distributions.SOURCES.values()
    ]
    assert {one["license"] for one in projects} == {"Apache-2.0"}
    assert len({frozenset(one["urls"]) for one in projects}) == 1
    # A copy: hatchling packs no licence that is a link.
    for folder in ("policies", "report"):
        assert (ROOT / folder / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()
