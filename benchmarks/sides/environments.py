"""The environment of each peer: build/NAME, made with venv and pip, so that no peer's packages meet another's or ours.

python -m benchmarks.sides.environments [NAME …]    installs them, all without names
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent


@dataclass(frozen=True)
class Environment:
    """A folder with a Python and what pip installs there; `installed` is written when all of it is."""

    name: str
    packages: tuple[str, ...]

    @property
    def folder(self) -> Path:
        return ROOT / "build" / self.name

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    @property
    def mark(self) -> Path:
        return self.folder / "installed.txt"

    def ready(self) -> bool:
        """Everything that is wanted today was installed."""
        return self.mark.exists() and self.mark.read_text().split() == list(self.packages)

    def install(self) -> str:
        """Why it did not install; empty if it did."""
        if self.ready():
            return ""
        shutil.rmtree(self.folder, ignore_errors=True)
        made = subprocess.run(
            [sys.executable, "-m", "venv", str(self.folder)], capture_output=True, text=True
        )
        if made.returncode:
            return last_line(made.stderr or made.stdout)
        command = [str(self.python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        done = subprocess.run([*command, *self.packages], capture_output=True, text=True)
        if done.returncode:
            return last_line(done.stderr)
        self.mark.write_text("\n".join(self.packages))
        return ""


def last_line(text: str) -> str:
    """pip's errors end with what went wrong; notices come after it."""
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("[notice]")]
    errors = [line for line in lines if line.startswith("ERROR")]
    return ([*lines[-1:], *errors[-1:]] or ["it did not say why"])[-1][:300]


ENVIRONMENTS: Mapping[str, Environment] = {
    environment.name: environment
    for environment in (
        Environment("numpy", ("numpy",)),
        # On Linux the index's ordinary wheel brings CUDA, which is not used; a wheel for the CPU does as well.
        Environment("torch", ("numpy", "torch==2.13.*")),
        Environment("jax", ("numpy", "jax")),
        Environment("onnxruntime", ("numpy", "onnx", "onnxruntime")),
        Environment("halide", ("numpy", "halide")),
        Environment(
            "iree", ("numpy", "jax", "iree-base-compiler", "iree-base-runtime")
        ),  # JAX writes its StableHLO
        # MetaSchedule needs psutil, cloudpickle and xgboost; with apache-tvm-ffi 0.1.15 TVM 0.27 crashes when it tunes.
        Environment(
            "tvm",
            (
                "numpy",
                "onnx",
                "psutil",
                "cloudpickle",
                "xgboost-cpu",
                "apache-tvm==0.27.*",
                "apache-tvm-ffi==0.1.14.post0",
            ),
        ),
    )
}


def install(names: Iterable[str]) -> dict[str, str]:
    """Install these; those that did not, with the reason."""
    failed = {}
    for name in names:
        if not ENVIRONMENTS[name].ready():
            print(f"installing {name} into {ENVIRONMENTS[name].folder.relative_to(ROOT)}", flush=True)
        if why := ENVIRONMENTS[name].install():
            print(f"{name} did not install: {why}", flush=True)
            failed[name] = why
    return failed


if __name__ == "__main__":
    sys.exit(1 if install(sys.argv[1:] or ENVIRONMENTS) else 0)
