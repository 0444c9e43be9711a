"""Golden files, hypothesis profiles, and what `make test` leaves to `make nightly`."""

from __future__ import annotations

import difflib
import gc
import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from hypothesis import settings

from polyfuse.codegen import generate
from polyfuse.codegen.cuda import printer
from polyfuse.codegen.cuda.passes import rewritten
from polyfuse.codegen.looptree.nodes import Kernel
from polyfuse.codegen.looptree.verify import verify
from polyfuse.codegen.lowering.grid_phases import built_in_parts
from tests.support.nightly import COLLECTED, LIST, is_listed, listed

# What a test compiles is compiled, and the user's own cache is left alone; tests of the cache ask for one.
os.environ["POLYFUSE_CACHE"] = "off"

GOLDEN = Path(__file__).parent / "golden"

# A property test takes its number of examples from the profile. One that sets its own, because a case is dear, scales
# it by tests/support/examples.py, so that `nightly` still means more.
settings.register_profile("ci", deadline=None, derandomize=True, max_examples=30, print_blob=True)
settings.register_profile("nightly", deadline=None, max_examples=2000, print_blob=True)
settings.load_profile("ci")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="rewrite tests/golden/ from what the tests produce"
    )


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the cases that tests/nightly.txt lists, before `-m "not nightly"` leaves them out."""
    known = listed(LIST.read_text(encoding="utf-8"))
    config.stash[COLLECTED] = frozenset(item.nodeid for item in items)
    for item in items:
        if is_listed(item.nodeid, known):
            item.add_marker("nightly")


def pytest_collection_finish() -> None:
    """What was imported and collected stays to the end: the collector of cycles need not walk it again and again.

    It did so thousands of times, a tenth of the time of tests that compile. What tests leave is still collected.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 10)


@pytest.fixture(autouse=True, scope="session")
def verified_loop_trees() -> Iterator[None]:
    """Every loop tree that a test prints is checked: as lowering builds it, and on CUDA after each pass."""

    def built(*given: object) -> Kernel:
        kernel = built_in_parts(*given)  # type: ignore[arg-type]
        verify("lowering", kernel)
        return kernel

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(generate, "built_in_parts", built)
        patched.setattr(printer, "rewritten", partial(rewritten, after=verify))
        yield


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """`golden(name, text)`: `text` equals the file `tests/golden/<name>`, up to newlines at the end."""
    update = request.config.getoption("--update-golden")

    def compare(name: str, text: str) -> None:
        path = GOLDEN / name
        actual = text.rstrip("\n") + "\n"
        if update:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(actual, encoding="utf-8")
            return
        if not path.exists():
            pytest.fail(
                f"there is no golden file tests/golden/{name}; `make golden` writes it", pytrace=False
            )
        expected = path.read_text(encoding="utf-8")
        if actual != expected:
            diff = difflib.unified_diff(
                expected.splitlines(),
                actual.splitlines(),
                f"tests/golden/{name}",
                "produced now",
                lineterm="",
            )
            message = "\n".join([*diff, "", "If the new text is right: `make golden`, and read the diff."])
            pytest.fail(message, pytrace=False)

    return compare
