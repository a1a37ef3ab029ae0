"""``python -m tools.docs.website`` builds the documentation as a site in ``site``, by Zensical."""

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from tools.docs.website import pages

CONFIGURATION: Final = pages.ROOT / "mkdocs.yml"
STAGED: Final = pages.ROOT / ".run" / "docs"
"""A copy of the configuration, and its ``docs`` folder with all pages: what Zensical reads."""


def main() -> None:
    shutil.rmtree(STAGED, ignore_errors=True)
    pages.write(STAGED / "docs")
    configuration = CONFIGURATION.read_text()
    faults = list(pages.faults(STAGED / "docs", pages.navigation_of(configuration)))
    if faults:
        sys.exit("\n".join(faults))
    (STAGED / CONFIGURATION.name).write_text(configuration)
    program = str(Path(sys.executable).with_name("zensical"))
    configured = f"--config-file={STAGED / CONFIGURATION.name}"
    done = subprocess.run([program, "build", "--clean", "--strict", configured], check=False)
    if done.returncode == 0:
        shutil.rmtree(pages.ROOT / "site", ignore_errors=True)
        shutil.move(STAGED / "site", pages.ROOT / "site")
    sys.exit(done.returncode)


if __name__ == "__main__":
    main()
