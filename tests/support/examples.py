"""How many examples a property test draws."""

from hypothesis import settings

LEAST = 3


def examples(count: int) -> int:
    """The number of examples of a test that is to draw `count` where others draw 100, at least three.

    For tests whose examples take long. The profile has the number that others draw: 30 in `make test`, and 2,000 in
    `make nightly`.
    """
    assert settings.default is not None, "conftest.py loads a profile"
    return max(LEAST, settings.default.max_examples * count // 100)
