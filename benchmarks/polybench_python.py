"""PolyBench/Python's kernels, converted: which `@pf.nest` accepts, and whether the results are those of their own code.

    python -m benchmarks.polybench_python CHECKOUT [--only gemm …] [--form loops arrays] [--step read|oracle|compile]

CHECKOUT is a copy of github.com/UDC-GAC/polybench-python. Its kernels are methods of classes. Each becomes a function:

    def kernel(self, A: list, C: list):                     def kernel(A: "f64[M, N]", C: "f64[N, N]"):
        B = self.create_array(1, [self.N], …)        ->         B = np.zeros((N,), np.float64)
        for i in range(0, self.N):                              for i in range(0, N):
            C[i][i] += self.DATA_TYPE(2) * A[0][i]                  C[i][i] += float(2) * A[0][i]

Nothing else is changed. A kernel that is refused so is tried with numbers in place of its sizes: `one size` says that
its nest is for these alone. `loops` are the kernels of lists (x[i][j]), `arrays` those of NumPy. The arrays are what
the class of the kernel initialises, and results are compared with what its method leaves in them. `oracle` runs the
nest in the interpreter, `compile` compiles it for the CPU. One process for each kernel, a line for each result, with
processor seconds without imports.
"""

from __future__ import annotations

import argparse
import ast
import copy
import importlib
import inspect
import itertools
import linecache
import math
import multiprocessing
import queue
import textwrap
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

import polyfuse as pf

FORMS: Mapping[str, str] = {"loops": "_StrategyList", "arrays": "_StrategyNumPy"}
"""The class that has the kernel of a form."""

SIZES = (23, 19, 17, 13, 11)
"""Sizes that are told apart by their values."""

ASCENDING = ("2mm", "covariance")
"""Kernels of which NumPy runs the arrays' form at sizes alone that grow in the order of their names."""

FULL_RANK = {"gramschmidt": (23, 11)}
"""Sizes at which a kernel's own matrix has independent columns; of others its result is rounding errors."""

NOTES = {"float64": "f64", "int64": "i64"}
TOLERANCE = 1e-9
"""The largest error that counts as right, relative to the largest element: sums may have another order."""

_numbers = itertools.count()


class Kernels:
    """The base class that kernels get instead of their project's: NumPy arrays, and no timers."""

    DATA_TYPE: type = float
    DATASET_SIZE = "small"
    given: tuple[Any, ...] = ()

    def __init__(self, options: Any, parameters: Any) -> None:
        self.options, self.parameters = options, parameters

    def create_array(self, dimensions: int, sizes: Sequence[int], value: float = 0) -> np.ndarray[Any, Any]:
        """An array of the data type; the last size is that of all further dimensions."""
        shape = [*sizes, *[sizes[-1]] * (dimensions - len(sizes))]
        return np.full(shape, value, self.DATA_TYPE)

    def time_kernel(self, *given: Any) -> None:
        """Keep the arguments of the kernel."""
        self.given = given


@dataclass(frozen=True)
class Kernel:
    """One kernel of a checkout: its name, its form, its object, its sizes, and the arguments of a call."""

    name: str
    form: str
    owner: Any
    sizes: Mapping[str, int]
    arguments: tuple[Any, ...]


def kernels(checkout: Path, forms: Sequence[str], only: Sequence[str] | None = None) -> Iterator[Kernel]:
    """All kernels of a checkout, in the order of its list."""
    for line in (checkout / "polybench.spec").read_text().splitlines()[1:]:
        name, category, dtype, names = line.split("\t")[:4]
        if only and name not in only:
            continue
        plain = name.replace("-", "_")
        folder = checkout / "benchmarks" / category.replace("-", "_") / plain
        if not folder.exists():  # 2mm is _2mm: a module's name
            folder = folder.with_name(f"_{plain}")
        wanted = FULL_RANK.get(name, SIZES)[: len(names.split())]
        sizes = dict(zip(names.split(), wanted[::-1] if name in ASCENDING else wanted, strict=False))
        classes = _classes((folder / f"{folder.name}.py"), int if dtype == "int" else float)
        for form in forms:
            parameters = SimpleNamespace(DataSets={Kernels.DATASET_SIZE: sizes}, Category=category, Name=name)
            options = SimpleNamespace(LOAD_ELIMINATION=False)
            cls = classes[FORMS[form]]
            owner = object.__new__(cls)
            owner.__init__(options, parameters)
            owner.run_benchmark()
            yield Kernel(name, form, owner, sizes, owner.given)


def _classes(file: Path, dtype: type) -> dict[str, Any]:
    """The classes of a module, without what it imports from its project."""
    tree = ast.parse(file.read_text())
    tree.body = [
        node
        for node in tree.body
        if not (isinstance(node, ast.ImportFrom) and str(node.module).startswith(("benchmarks", "numpy")))
    ]
    base = type("PolyBench", (Kernels,), {"DATA_TYPE": dtype})
    known = dict.fromkeys(("PolyBenchOptions", "PolyBenchSpec", "ArrayImplementation", "ndarray"), Any)
    space: dict[str, Any] = {"PolyBench": base, "np": np, "math": math, "__name__": file.stem, **known}
    text = ast.unparse(tree)
    _remember(str(file), text)
    exec(compile(text, str(file), "exec"), space)
    return space


def _remember(file: str, text: str) -> None:
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)


def converted(kernel: Kernel, numbers: bool = False) -> str:
    """The function of a kernel as text, with types and shapes as annotations; `numbers` in place of symbolic sizes."""
    method = kernel.owner.kernel
    tree = ast.parse(textwrap.dedent(inspect.getsource(method))).body[0]
    assert isinstance(tree, ast.FunctionDef), "a kernel is a function"
    tree.name = "kernel"
    dtype = np.dtype(kernel.owner.DATA_TYPE).name
    known = kernel.sizes if numbers else {}
    tree = ast.fix_missing_locations(_WithoutSelf(dtype, known).visit(tree))
    symbols = {} if numbers else {value: name for name, value in kernel.sizes.items()}
    tree.args.args = tree.args.args[1:]
    shaped: set[str] = set()
    for argument, value in zip(tree.args.args, kernel.arguments, strict=True):
        array = np.asarray(value)
        extents = [symbols.get(extent, str(extent)) for extent in array.shape]
        shaped.update(extents)
        note = NOTES[array.dtype.name]
        argument.annotation = ast.Constant(f"{note}[{', '.join(extents)}]" if extents else note)
    read = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    counts = [name for name in kernel.sizes if name in read - shaped]
    tree.args.args += [ast.arg(name, ast.Constant("i64")) for name in counts]
    return ast.unparse(ast.fix_missing_locations(tree))


class _WithoutSelf(ast.NodeTransformer):
    """self.N as N or its number, self.create_array(…) as np.zeros(…), self.DATA_TYPE(x) as a conversion of x."""

    def __init__(self, dtype: str, known: Mapping[str, int]) -> None:
        self.dtype, self.known = dtype, known

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        match node.func, node.args:
            case ast.Name(id="create_array"), [ast.Constant(value=int(rank)), ast.List(elts=sizes), *_]:
                shape = ", ".join(map(ast.unparse, [*sizes, *[sizes[-1]] * (rank - len(sizes))]))
                return ast.parse(f"np.zeros(({shape},), np.{self.dtype})", mode="eval").body
            case ast.Name(id="DATA_TYPE"), [value]:
                return ast.Call(ast.Name("float" if self.dtype == "float64" else "int"), [value], [])
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        self.generic_visit(node)
        is_own = isinstance(node.value, ast.Name) and node.value.id == "self"
        if not is_own:
            return node
        number = self.known.get(node.attr)
        return ast.Name(node.attr, ast.Load()) if number is None else ast.Constant(number)


def nest_of(kernel: Kernel, numbers: bool = False) -> Any:
    """The nest of a kernel. Raises pf.PolyfuseError if it is refused."""
    text, file = converted(kernel, numbers), f"<{kernel.name} {next(_numbers)}>"
    _remember(file, text)
    space = dict(kernel.owner.kernel.__func__.__globals__)
    exec(compile(text, file, "exec"), space)
    return pf.nest(space["kernel"])


def checked(kernel: Kernel, step: str) -> str:
    """Read a kernel and compare its results with its own method's; the text of the result."""
    started = time.process_time()
    sizes = ""
    try:
        nest = nest_of(kernel)
    except pf.PolyfuseError:
        sizes = ", one size"
        try:
            nest = nest_of(kernel, numbers=True)
        except pf.PolyfuseError as error:
            return f"refused  {_first_line(error)}"
    read = time.process_time() - started
    if step == "read":
        return f"read     {read:.1f} s{sizes}"
    names = list(inspect.signature(nest.python).parameters)
    expected, own = (copy.deepcopy(kernel.arguments) for _ in range(2))
    kernel.owner.kernel(*expected)
    given = dict(zip(names, [*own, *kernel.sizes.values()], strict=False))
    given |= {name: kernel.sizes[name] for name in names[len(own) :]}
    started = time.process_time()
    try:
        left = _left_by(nest, given, kernel.sizes, step)
    except pf.PolyfuseError as error:
        return f"failed   {type(error).__name__}: {_first_line(error)}"
    seconds = time.process_time() - started
    worst = 0.0
    for name, wanted in zip(names, expected, strict=False):
        if isinstance(wanted, np.ndarray):
            scale = float(np.abs(wanted).max()) or 1.0
            worst = max(worst, float(np.abs(np.asarray(left[name]) - wanted).max()) / scale)
    verdict = "right   " if worst <= TOLERANCE else f"WRONG {worst:.1e}"
    return f"{verdict} read {read:.1f} s, {step} {seconds:.1f} s{sizes}"


def _left_by(nest: Any, given: dict[str, Any], sizes: Mapping[str, int], step: str) -> Mapping[str, Any]:
    """The arguments after a call."""
    if step == "oracle":
        inputs = {tensor.name: given[tensor.name] for tensor in nest.inputs}
        return {**given, **pf.interpret(nest, inputs, {n: sizes[n] for n in nest.params})}
    run: Callable[..., Any] = pf.compile(nest, target="cpu")
    run(**given)
    return given


def _first_line(error: BaseException) -> str:
    return str(error).strip().split("\n")[0]


def _in_process(kernel: Kernel, step: str, answer: Any) -> None:
    answer.put(checked(kernel, step))


def main() -> None:
    """Print a line for each kernel and form, and the counts."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--form", nargs="*", choices=tuple(FORMS), default=tuple(FORMS))
    parser.add_argument("--step", choices=("read", "oracle", "compile"), default="oracle")
    parser.add_argument("--seconds", type=float, default=120.0)
    given = parser.parse_args()
    counts: dict[str, dict[str, int]] = {form: {} for form in given.form}
    context = multiprocessing.get_context("fork")
    for module in (
        "polyfuse.compiler",
        "polyfuse.intrinsics",
    ):  # a process takes seconds of its own for these
        importlib.import_module(module)
    for kernel in kernels(given.checkout, given.form, given.only):
        answer = context.Queue()
        process = context.Process(target=_in_process, args=(kernel, given.step, answer))
        process.start()
        try:
            text = answer.get(timeout=given.seconds)
        except queue.Empty:  # it takes too long, or has ended
            text = f"late     no answer within {given.seconds:.0f} s"
        process.kill()
        process.join()
        print(f"{kernel.name:14} {kernel.form:6} {text}", flush=True)
        count = counts[kernel.form]
        count[text.split()[0]] = count.get(text.split()[0], 0) + 1
    for form, count in counts.items():
        print(f"{form}: " + ", ".join(f"{number} {word}" for word, number in sorted(count.items())))


if __name__ == "__main__":
    main()
