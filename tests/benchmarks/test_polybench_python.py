"""The converter of PolyBench/Python's kernels, on a checkout with one kernel."""

from __future__ import annotations

from pathlib import Path

from benchmarks.polybench_python import checked, converted, kernels

MODULE = '''
"""A kernel as that project writes it."""
from benchmarks.polybench import PolyBench
import numpy as np


class Scale(PolyBench):
    def __init__(self, options: PolyBenchOptions, parameters: PolyBenchSpec):
        super().__init__(options, parameters)
        self.N = parameters.DataSets.get(self.DATASET_SIZE).get("N")
        self.STEPS = parameters.DataSets.get(self.DATASET_SIZE).get("STEPS")

    def run_benchmark(self):
        A = self.create_array(2, [self.N], self.DATA_TYPE(1))
        self.initialize_array(A)
        self.time_kernel(0.5, A)


class _StrategyList(Scale):
    def initialize_array(self, A: list):
        for i in range(0, self.N):
            A[i][0] = self.DATA_TYPE(i)

    def kernel(self, alpha, A: list):
        def doubled(x):
            return x + x

        b = self.create_array(1, [self.N], self.DATA_TYPE(0))
        c = d = alpha
        for t in range(0, self.STEPS):
            for i in range(0, self.N):
                b[i] = doubled(A[i][0]) / self.DATA_TYPE(self.N)
                A[i][i] += b[i] * c - d
'''


def test_a_method_becomes_a_function_with_types_and_shapes(tmp_path: Path) -> None:
    folder = tmp_path / "benchmarks" / "own" / "scale"
    folder.mkdir(parents=True)
    (folder / "scale.py").write_text(MODULE)
    (tmp_path / "polybench.spec").write_text("kernel\tcategory\n" + "scale\town\tdouble\tSTEPS N\t1 2\n")
    (kernel,) = kernels(tmp_path, ["loops"])
    text = converted(kernel)
    assert "def kernel(alpha: 'f64', A: 'f64[N, N]', STEPS: 'i64'):" in text
    assert "b = np.zeros((N,), np.float64)" in text
    assert "float(N)" in text
    assert checked(kernel, "oracle").startswith("right")
