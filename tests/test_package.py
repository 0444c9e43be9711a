"""What the package promises before anything is compiled: a cheap import, types, a version, its public names."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from graphlib import CycleError, TopologicalSorter
from importlib import metadata, resources
from pathlib import Path

import grimp
import pytest

import polyfuse

LOADED_BY_IMPORT = "import sys, polyfuse; print(*sorted({name.partition('.')[0] for name in sys.modules}))"
SECONDS_OF_IMPORT = "import time; t = time.perf_counter(); import polyfuse; print(time.perf_counter() - t)"


def in_fresh_python(code: str) -> str:
    """What `code` prints, in a Python that has imported nothing yet."""
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout


def test_import_loads_none_of_the_heavy_packages(record_property: Callable[[str, object], None]) -> None:
    loaded = set(in_fresh_python(LOADED_BY_IMPORT).split())
    assert not loaded & {"numba", "llvmlite", "sympy", "numpy", "islpy", "typer", "rich", "cuda"}
    seconds = min(float(in_fresh_python(SECONDS_OF_IMPORT)) for _ in range(3))
    record_property("import_seconds", seconds)
    print(f"import polyfuse: {seconds:.3f} s, best of 3 (wanted: under 0.5 s)")


def test_py_typed_is_part_of_the_package() -> None:
    assert resources.files("polyfuse").joinpath("py.typed").is_file()


def test_version_is_that_of_the_distribution() -> None:
    assert polyfuse.__version__ == metadata.version("polyfuse")
    assert re.fullmatch(r"\d+\.\d+\.\d+\S*", polyfuse.__version__)


@pytest.mark.parametrize("name", polyfuse.__all__)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(polyfuse, name) is not None
    assert name in dir(polyfuse)


def test_type_checkers_see_the_same_public_names() -> None:
    tree = ast.parse(Path(polyfuse.__file__).read_text(encoding="utf-8"))
    blocks = [
        node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    ]
    imports = [node for block in blocks for node in block.body if isinstance(node, ast.ImportFrom)]
    declared = {alias.asname for node in imports for alias in node.names}
    assert declared == set(polyfuse.__all__) - {"__version__"}


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Nset'"):
        polyfuse.Nset  # noqa: B018


def test_interpret_stays_the_function_when_its_module_is_imported() -> None:
    code = "import polyfuse.interpret, polyfuse; print(callable(polyfuse.interpret))"
    assert in_fresh_python(code).strip() == "True"


def test_no_module_imports_itself_through_others() -> None:
    """In annotations and functions neither; import-linter's contract asks the same of folders."""
    graph = grimp.build_graph("polyfuse", cache_dir=None)
    imports = {name: graph.find_modules_directly_imported_by(name) for name in graph.modules}
    assert_acyclic(imports)
    with pytest.raises(AssertionError, match=r"polyfuse\.ir\.check"):
        assert_acyclic({**imports, "polyfuse.ir.check": {"polyfuse.ir.nest"}})


def assert_acyclic(imports: Mapping[str, set[str]]) -> None:
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        raise AssertionError(" <- ".join(error.args[1])) from error
