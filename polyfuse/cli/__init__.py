"""The command line: `polyfuse demo | compile FILE | explain FILE | draw FILE | gpu-check | gpu-bench | papers`, …."""

import os
import sys


def main() -> None:
    """The entry point. Errors polyfuse raises on purpose are one red message and exit code 1."""
    # NumPy is timed against: it must choose its kernels for this CPU. OpenBLAS reads this when NumPy loads it.
    if "numpy" not in sys.modules:
        os.environ.pop("OPENBLAS_CORETYPE", None)
    from polyfuse.cli.app import app
    from polyfuse.workbench.terminal import errors_as_messages

    with errors_as_messages():
        app()
