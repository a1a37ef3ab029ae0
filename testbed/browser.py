"""Chromium for the tests of the board: found on the path, or installed from Debian's packages.

Playwright brings a driver, and would fetch a browser of its own from a host that not everybody
reaches. Run as a program, it installs Chromium: ``python -m testbed.browser [--where-possible]``.
"""

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

_NAMES = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")

SWITCHES = (
    "--no-sandbox",  # it does not start as root with one
    "--disable-gpu",
    "--disable-quic",
    # What it would ask the internet for, unasked.
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
"""For Playwright's ``launch``: headless, and silent but for the pages that are tested."""


def chromium() -> Path | None:
    """Return the browser's program; None where there is none."""
    found = next(filter(None, map(shutil.which, _NAMES)), None)
    return Path(found) if found else None


def obstacle() -> str | None:
    """Return why Chromium cannot be installed here; None where it can, or is there already."""
    if chromium() is not None:
        return None
    if shutil.which("apt-get") is None:
        return "there is no Chromium on the path, and no apt-get to install it with"
    if os.geteuid() != 0:
        return "there is no Chromium on the path, and only root may install it"
    return None


def install() -> None:
    """Install Chromium unless it is there. Raises CalledProcessError where that fails."""
    if chromium() is not None:
        return
    command = ["apt-get", "install", "--yes", "--quiet", "--no-install-recommends", "chromium"]
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    if subprocess.run(command, env=environment, capture_output=True, check=False).returncode:
        # Lists of packages grow old, or were never fetched.
        subprocess.run(["apt-get", "update", "--quiet"], capture_output=True, check=True)
        subprocess.run(command, env=environment, capture_output=True, check=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="testbed.browser", description=__doc__)
    parser.add_argument(
        "--where-possible", action="store_true", help="no error where it cannot be installed"
    )
    options = parser.parse_args()
    reason = obstacle()
    try:
        if reason is None:
            install()
    except subprocess.CalledProcessError as error:
        reason = f"{' '.join(error.cmd)} failed: {error.stderr.decode(errors='replace')[-300:]}"
    if reason is not None:
        sys.stderr.write(f"no browser: {reason}\n")
    return int(reason is not None and not options.where_possible)


if __name__ == "__main__":
    sys.exit(main())
