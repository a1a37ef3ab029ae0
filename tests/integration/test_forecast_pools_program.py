"""``bireme forecast pools`` as a program, in an image without torch."""

import asyncio
import os
import sys
import time
from pathlib import Path

from testbed.fakeapi import FakeApi
from testbed.operator_term.nightly import NOWHERE, put, recorded, status_in

MISSING = {
    "torch",
    "safetensors",
    "gymnasium",
    "onnxscript",
    "matplotlib",
    "rich",
    "kopf",
    "fastapi",
}
"""What the extra ``forecast`` does not install."""
BARE = """
import sys
MISSING = sys.argv.pop(1).split(",")
class Bare:
    def find_spec(self, name, *_):
        if name.partition(".")[0] in MISSING:
            raise ModuleNotFoundError(name, name=name)
sys.meta_path.insert(0, Bare())
from bireme.cli import main
sys.exit(main())
"""


async def command(
    kubeconfig: Path, *arguments: str, missing: set[str] = MISSING
) -> tuple[int, str, str]:
    """Exit status and output of ``bireme forecast pools`` with the extra ``forecast`` alone."""
    program = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", BARE, ",".join(missing), "forecast", "pools", *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "KUBECONFIG": str(kubeconfig), "OMP_NUM_THREADS": "1"},
    )
    output, errors = await program.communicate()
    return program.returncode or 0, output.decode(), errors.decode()


async def test_the_command_forecasts_with_every_model_and_without_torch(
    api: FakeApi, tmp_path: Path
) -> None:
    now = time.time()  # noqa: TID251  # the program goes by the clock
    put(api, "a", recorded(now=now))
    put(api, "b", history=NOWHERE)
    status, output, errors = await command(api.kubeconfig(tmp_path))
    assert (status, errors) == (1, "")
    first, second, last = output.splitlines()
    assert first.startswith(("a: Forecast: ", "a: SeasonalNaiveUsed: "))
    assert " failed: " not in first, "every model can be fitted"
    assert second.startswith("b: HistoryUnavailable: Prometheus cannot be asked")
    assert last == "1 of 2 pools failed: b"
    assert len(status_in(api, "a")["forecast"]) == 48


async def test_the_command_says_in_one_line_what_it_cannot_use(
    api: FakeApi, tmp_path: Path
) -> None:
    status, _, errors = await command(api.kubeconfig(tmp_path), "a100")
    assert (status, errors) == (1, "bireme: there is no NodePoolScaler a100\n")
    status, _, errors = await command(tmp_path / "nowhere")
    assert status == 1
    assert errors.startswith("bireme: cannot use ")


async def test_the_command_says_what_to_install_where_the_extra_is_missing(
    api: FakeApi, tmp_path: Path
) -> None:
    put(api)
    known = api.kubeconfig(tmp_path)
    status, _, errors = await command(known, missing={*MISSING, "statsmodels"})
    assert status == 1
    remedy = "pip install '.[forecast]' in a checkout of Bireme"
    assert errors == f"bireme: statsmodels is not installed; {remedy}\n"
