"""Every device operation has one record, a call, an intrinsic and a meaning in lock-step: all with its parameters."""

from __future__ import annotations

import ast
import builtins
import inspect
from importlib import import_module

import numpy as np
import pytest

import polyfuse as pf
from polyfuse import nn
from polyfuse.checks.cuda_cases import product
from polyfuse.codegen.cuda.compile.cubin import OtherInstructions, build
from polyfuse.codegen.cuda.device_ops import DEVICE_OPS, STATEMENTS, DeviceOp, called_in
from polyfuse.codegen.cuda.kernel_grammar import UnsupportedKernel, parse
from polyfuse.intrinsics import cuda as facade
from polyfuse.ir.precision import Math
from polyfuse.simulator import numba_simulator, values
from polyfuse.simulator.device_ops import MEANINGS, perform

EVERY = pytest.mark.parametrize("op", DEVICE_OPS.values(), ids=lambda op: op.name)


def arguments(op: DeviceOp) -> dict[str, str]:
    """Something that may be given for each parameter."""
    given = {"literal": "4", "value": "i", "result": "y", "array": "x"}
    return {p.name: given[p.role] for p in op.parameters}


def kernel(call: str) -> str:
    return f"def k(x, y, n):\n    for i in range(n):\n        {call}\n"


@EVERY
def test_an_intrinsic_has_the_parameters_of_its_record(op: DeviceOp) -> None:
    pytest.importorskip("numba.cuda")
    intrinsic = getattr(import_module(op.emission), op.name)
    _, *names = inspect.signature(intrinsic._defn).parameters
    assert names == [p.name for p in op.parameters]


@EVERY
def test_the_grammar_takes_calls_with_the_parameters_of_the_record_alone(op: DeviceOp) -> None:
    call = op.call(**arguments(op))
    source = kernel(call if op.kind != "value" else f"y[i] = {call}")
    parse(source, "k")
    one_more = call[:-1] + ("more=1)" if call.endswith(",\n)") else ", 1)" if op.parameters else "1)")
    with pytest.raises(UnsupportedKernel, match="argument"):
        parse(source.replace(call, one_more), "k")
    names = ", ".join(f"{name}={given}" for name, given in reversed(arguments(op).items()))
    if op.kind != "value":
        by_name, by_place = (parse(text, "k").body for text in (kernel(f"{op.name}({names})"), source))
        assert ast.dump(by_name[0]) == ast.dump(by_place[0])


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ("await_copies(n)", "still_open of await_copies, which is no integer literal"),
        ("copy_vector(4, 0, i, 1, x, i)", "target of copy_vector, which is no array"),
    ],
)
def test_the_grammar_asks_for_what_a_parameter_is(wrong: str, says: str) -> None:
    with pytest.raises(UnsupportedKernel, match=says):
        parse(kernel(wrong), "k")


def test_every_statement_has_a_meaning_and_nothing_else_has() -> None:
    assert MEANINGS.keys() == STATEMENTS.keys()


@pytest.mark.parametrize("op", STATEMENTS.values(), ids=lambda op: op.name)
def test_a_meaning_reads_parameters_of_its_record_alone(op: DeviceOp) -> None:
    """Whatever a meaning reads of a call, by name, is among the parameters."""
    read = set[str]()
    meaning = MEANINGS[op.name]
    functions = [getattr(meaning, "func", meaning)]
    module = inspect.getmodule(functions[0])
    for function in functions:  # and those of its module that it calls
        tree = ast.parse(inspect.getsource(function))
        for node in ast.walk(tree):
            match node:
                case ast.Subscript(value=ast.Name("given"), slice=ast.Constant(str(name))):
                    read.add(name)
                case ast.Call(func=ast.Name("literal" | "_numbers"), args=[ast.Name("given"), *names]):
                    read |= {n.value for n in names if isinstance(n, ast.Constant)}  # type: ignore[misc]
                case ast.Call(func=ast.Name(called)):
                    known = getattr(module, called, None)
                    if inspect.isfunction(known) and known not in functions:
                        functions.append(known)
    assert read <= {p.name for p in op.parameters}


def test_a_call_with_other_arguments_is_refused() -> None:
    statement = ast.parse("await_copies(0, 1)").body[0]
    with pytest.raises(ValueError, match="zip"):
        perform(None, "await_copies", statement, [ast.Constant(0), ast.Constant(1)])  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="await_copies takes still_open, not open"):
        DEVICE_OPS["await_copies"].call(open=0)


def test_the_simulator_performs_or_refuses_every_operation() -> None:
    performed = numba_simulator._operations()
    known = {*performed, *numba_simulator.REFUSED}
    values_of_one = {name for name, op in DEVICE_OPS.items() if op.kind == "value"} - {*performed}
    assert known | values_of_one == DEVICE_OPS.keys()
    assert not performed.keys() & numba_simulator.REFUSED.keys()
    for name, function in performed.items():
        assert len(inspect.signature(function).parameters) == len(DEVICE_OPS[name].parameters), name
    for name in values_of_one:
        values.call(name, [(np.uint16 if name.startswith("from_") else np.float32)(1)])


def test_a_gpu_without_an_operation_is_named() -> None:
    pytest.importorskip("numba.cuda")
    source = kernel("await_copies(0)")
    with pytest.raises(
        OtherInstructions,
        match=r"k calls await_copies, an operation of sm_80 and of later GPUs, and this is sm_75",
    ):
        build(source, "k", ("float32*", "float32*", "int64"), cc=(7, 5))


def test_what_a_source_calls() -> None:
    assert [op.name for op in called_in("# tile_fma()\nwait(await_copies(0), lanes_of(4))")] == [
        "await_copies",
        "lanes_of",
    ]


@pytest.mark.parametrize("name", ["tile_fma", "cuda", "copy_vector"])
def test_no_array_of_a_kernel_is_called_as_an_operation_is(name: str) -> None:
    x = nn.input(name, (96, 32))
    net = pf.compile(
        nn.lower(nn.relu(nn.linear(x, nn.Linear(32, 64)))), target="cuda", device="lockstep", machine="h200"
    )
    (launch,) = net.program.launches
    assert name in launch.tensors
    parameters = launch.source.partition("(")[2].partition(")")[0].split(", ")
    assert name not in parameters
    assert f"{name}_2" in parameters


@pytest.mark.parametrize("math", ["ieee", "bf16"])
def test_emitted_source_imports_what_it_calls(math: Math) -> None:
    pytest.importorskip("numba.cuda")
    net = pf.compile(product(512, 320, 512), target="cuda", device="none", machine="h200", math=math)
    (launch,) = net.program.launches
    assert called_in(launch.source)
    namespace: dict[str, object] = {}
    exec(net.program.source, namespace)
    code = namespace[launch.name].__code__  # type: ignore[attr-defined]
    assert {op.name for op in called_in(launch.source)} <= set(code.co_names)
    attributes = {n.attr for n in ast.walk(ast.parse(launch.source)) if isinstance(n, ast.Attribute)}
    assert set(code.co_names) - attributes <= {*namespace, *dir(builtins)}


def test_the_facade_has_the_operations_alone() -> None:
    pytest.importorskip("numba.cuda")
    assert dir(facade) == sorted(DEVICE_OPS)
    assert facade.tile_fma is import_module(DEVICE_OPS["tile_fma"].emission).tile_fma
    with pytest.raises(AttributeError, match="no device operation 'syncthreads'; there are tile_fma, "):
        facade.syncthreads  # noqa: B018
