"""``python -m bireme_lab.embedded.child MODULE [ARGUMENTS]``: a program that ends with its parent.

The parent holds the other end of standard input. When it ends, in whatever way, the input ends, and
the program gets SIGTERM. That needs nothing that only one operating system has.
"""

import os
import runpy
import signal
import sys
import threading


def _end_with_parent() -> None:
    # Not by sys.stdin: the end of the interpreter waits for its lock, which this thread has.
    while os.read(sys.stdin.fileno(), 1024):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def main() -> None:
    """Run the module that the first argument names, as ``python -m`` does."""
    module, *arguments = sys.argv[1:]
    threading.Thread(target=_end_with_parent, daemon=True).start()
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
