"""A parameter server, a chief and workers fit a linear model; they meet by ``TF_CONFIG``.

The chief says how far it is, and reports it. The server never ends by itself.
"""

import json
import os
import threading
import time
from multiprocessing.connection import Client, Connection, Listener
from typing import Any, Final

import numpy as np

from bireme.report import finish, report

KEY: Final = b"of this training"
FEATURES: Final = 16
BATCH: Final = 64
RATE: Final = 0.05
PATIENCE_SECONDS: Final = 90.0
TRUTH: Final = np.linspace(-1.0, 1.0, FEATURES)


def serve(port: int) -> None:
    """Hands out the weights, and takes a gradient in return; for each of the others at once."""
    weights = np.zeros(FEATURES)
    lock = threading.Lock()

    def answer(connection: "Connection[Any, Any]") -> None:
        try:
            while True:
                with lock:
                    current = weights.copy()
                connection.send(current)
                gradient = connection.recv()
                with lock:
                    np.subtract(weights, RATE * gradient, out=weights)
        except EOFError:
            connection.close()

    with Listener(("", port), authkey=KEY) as listener:
        while True:
            threading.Thread(target=answer, args=(listener.accept(),), daemon=True).start()


def reach(host: str, port: int) -> "Connection[Any, Any]":
    """A connection to the server, whose name is known before it answers."""
    until = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            return Client((host, port), authkey=KEY)
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.2)


def train(host: str, port: int, seed: int, *, tells: bool) -> None:
    """Steps on samples of one's own; the chief ``tells``."""
    steps, pause = int(os.environ["STEPS"]), float(os.environ["STEP_SECONDS"])
    chance = np.random.default_rng(seed)
    with reach(host, port) as server:
        for step in range(1, steps + 1):
            weights = server.recv()
            samples = chance.normal(size=(BATCH, FEATURES))
            error = samples @ (weights - TRUTH)
            server.send(2 * samples.T @ error / BATCH)
            time.sleep(pause)
            if tells:
                loss = float(np.mean(error**2))
                report(step=step, total_steps=steps, loss=loss)
                print(f"step {step}, loss {loss:.6f}", flush=True)  # noqa: T201  # read by the test
    finish()


def main() -> None:
    """Plays the role that ``TF_CONFIG`` gives."""
    config = json.loads(os.environ["TF_CONFIG"])
    kind, index = config["task"]["type"], config["task"]["index"]
    host, _, port = config["cluster"]["ps"][0].rpartition(":")
    if kind == "ps":
        serve(int(port))
    else:
        train(host, int(port), seed=index + 100 * (kind == "chief"), tells=kind == "chief")


if __name__ == "__main__":
    main()
