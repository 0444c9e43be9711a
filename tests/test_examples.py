"""The examples run, and do what they say."""

import runpy
from pathlib import Path

EXAMPLES = Path(__file__).parents[1] / "examples"


def test_digits_are_learned() -> None:
    accuracy = runpy.run_path(str(EXAMPLES / "digits.py"))["main"](12)
    assert accuracy > 0.9
