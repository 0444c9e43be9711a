"""Kernels whose blocks meet, as functions of their parts: which parts come apart, and that machine code is the same."""

from __future__ import annotations

import ast
from textwrap import dedent

import pytest

import polyfuse as pf
from polyfuse.checks import cuda_cases as cases
from polyfuse.codegen.cuda.compile import cubin as cuda_build
from polyfuse.codegen.cuda.compile.outlining import Called, in_called_parts
from polyfuse.runtime.cuda.runner import build_kernels


def kernel(body: str) -> ast.FunctionDef:
    """A kernel with this body."""
    lines = "".join(f"    {line}\n" for line in dedent(body).strip("\n").splitlines())
    (found,) = ast.parse(f"def k(x, w, a, w_2, out, n, arrivals):\n{lines}").body
    assert isinstance(found, ast.FunctionDef)
    return found


def called(body: str) -> str:
    """The functions of the kernel as text."""
    found = in_called_parts(kernel(body))
    return "\n".join(map(ast.unparse, (*found.functions, found.kernel)))


def test_equal_parts_are_one_function_and_pass_what_differs() -> None:
    found = called(
        '''
        """a = x w, out = a w_2"""
        tx = cuda.threadIdx.x & 31
        s = cuda.shared.array((32,), float32)
        s_2 = cuda.shared.array((32,), float32)
        y = cuda.local.array((4,), float32)
        y_2 = cuda.local.array((4,), float32)
        for k in range(0, n):
            s[tx] = w[32 * k + tx]
            cuda.syncthreads()
            y[k] = x[tx] * s[k]
            a[tx] = y[k]
        grid_barrier(arrivals)
        for k in range(0, n):
            s_2[tx] = w_2[32 * k + tx]
            cuda.syncthreads()
            y_2[k] = a[tx] * s_2[k]
            out[tx] = y_2[k]
        '''
    )
    assert found == dedent(
        """\
        def k_part(n, s, w, a, x):
            tx = cuda.threadIdx.x & 31
            y = cuda.local.array((4,), float32)
            for k in range(0, n):
                s[tx] = w[32 * k + tx]
                cuda.syncthreads()
                y[k] = x[tx] * s[k]
                a[tx] = y[k]
        def k(x, w, a, w_2, out, n, arrivals):
            s = cuda.shared.array((32,), float32)
            s_2 = cuda.shared.array((32,), float32)
            k_part(n, s, w, a, x)
            grid_barrier(arrivals)
            k_part(n, s_2, w_2, out, a)"""
    )


def test_parts_with_other_numbers_are_functions_of_their_own() -> None:
    found = called(
        "a[3] = x[3]\ngrid_barrier(arrivals)\nout[4] = a[4]\ngrid_barrier(arrivals)\nw[3] = out[3]"
    )
    assert found.count("def ") == 3
    assert found.count("k_part(w, out)") == 1, "the third part is the first one on other arrays"


@pytest.mark.parametrize(
    "body",
    [
        "a[0] = x[0]",
        "for t in range(n):\n    a[t] = x[t]\n    grid_barrier(arrivals)",
        "s = x[0]\ngrid_barrier(arrivals)\nout[0] = s",
        "s = float32(0.0)\ns += x[0]\ngrid_barrier(arrivals)\nout[0] = s",
        "if n > 0:\n    s = x[0]\ngrid_barrier(arrivals)\nif n > 1:\n    s = x[1]\nout[0] = s",
        "y = cuda.local.array((4,), float32)\ny[0] = x[0]\ngrid_barrier(arrivals)\nout[0] = y[0]",
        "n += 1\na[0] = x[n]\ngrid_barrier(arrivals)\nout[0] = x[n]",
    ],
    ids=[
        "one part",
        "in a loop",
        "a value",
        "a sum",
        "a value of some",
        "an array of its own",
        "an argument",
    ],
)
def test_parts_that_hand_values_on_stay_as_they_are(body: str) -> None:
    flat = kernel(body)
    assert in_called_parts(flat) == Called((), flat)


def test_a_variable_of_several_parts_that_each_assigns_first_is_each_ones_own() -> None:
    assert called("s = x[0]\na[0] = s\ngrid_barrier(arrivals)\ns = x[0]\nout[0] = s").count("k_part(") == 3


def test_the_machine_code_is_that_of_the_kernel_as_written(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("cuda.core")
    nest = cases.dense(9, 21, 30, 30, 30, batch=4)
    s = cases.layers_in_one_launch(nest)
    program = pf.compile(nest, target="cuda", machine="h200", device="none", schedule=s).program
    (kernel,) = (
        node for node in ast.parse(program.codes[0].source).body if isinstance(node, ast.FunctionDef)
    )
    assert len(in_called_parts(kernel).functions) == 3, "the last two layers are equal"
    (apart,) = build_kernels(program, (9, 0)).values()
    monkeypatch.setattr(cuda_build, "in_called_parts", lambda kernel: Called((), kernel))
    (whole,) = build_kernels(program, (9, 0)).values()
    assert apart.code == whole.code
