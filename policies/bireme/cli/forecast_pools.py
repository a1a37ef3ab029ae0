"""``bireme forecast pools``: the nightly job that forecasts every NodePoolScaler.

It prints a line for each pool: the forecast and the reason for its model, or the fault.
"""

import argparse
import asyncio
import time
from collections.abc import Sequence
from functools import partial
from typing import Final

CANDIDATES: Final = ("persistence", "holt-winters", "arima", "gru", "lsp")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "pool", nargs="*", metavar="POOL", help="only these NodePoolScalers; default: all"
    )
    parser.add_argument("--dry-run", action="store_true", help="forecast and write nothing")


def run(options: argparse.Namespace) -> int:
    now = time.time()  # noqa: TID251  # the one place where the nightly job reads the clock
    failed = asyncio.run(_run(options.pool, now, dry_run=options.dry_run))
    return 1 if failed else 0


async def _run(pools: Sequence[str], now: float, *, dry_run: bool) -> int:
    # Imported here: the client of the API server takes half a second to import.
    from bireme.core.errors import installing
    from bireme.forecasting.forecasters import make
    from bireme.forecasting.nightly_job import NightlyRun, PoolsError
    from bireme.forecasting.pool_forecast import HORIZON_HOURS
    from bireme.kube.client import ApiClient
    from bireme.kube.credentials import CredentialsError

    try:
        candidates = make(CANDIDATES, steps=HORIZON_HOURS)
        client = await ApiClient.connect()
    except ImportError as error:
        remedy = installing("forecast")
        raise PoolsError(f"{error.name} is not installed; {remedy}") from error
    except CredentialsError as error:
        raise PoolsError(str(error)) from error
    try:
        return await NightlyRun(
            client, now, candidates, partial(print, flush=True), dry_run=dry_run
        ).forecast(pools)
    finally:
        await client.close()
