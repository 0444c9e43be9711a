"""How many examples a property test draws."""

from hypothesis import settings


def examples(count: int) -> int:
    """So many in the profile `ci`, which draws 100 by default; in another as many more as that draws by default.

    For tests whose cases are dear: `make nightly` draws twenty times as many of theirs, too.
    """
    assert settings.default is not None, "conftest.py loads a profile"
    return max(1, settings.default.max_examples * count // 100)
