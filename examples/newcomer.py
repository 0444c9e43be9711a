"""Eleven tasks of a first day, each a function of at most ten lines: `python examples/newcomer.py [TASK …]`.

Each was written from the documentation alone, and its docstring names the page. A function returns what it found as
text, and writes its files into the current folder.
"""

import subprocess
import sys
from pathlib import Path

import numpy as np

import polyfuse as pf
from polyfuse import nn

MLP = pf.lower(nn.Sequential(nn.Linear(48, 64), nn.ReLU(), nn.Linear(64, 16)), batch=32)
CNN = pf.lower(nn.Sequential(nn.Conv2d(3, 16, 3), nn.ReLU()), batch=2, features=(3, 18, 18))
X = np.random.default_rng(0).standard_normal((32, 48), np.float32)


def loops_and_a_refusal() -> str:
    """A convolution and ReLU as loops, and why its sum may not run on cores (guide: loops, the schedule)."""

    @pf.nest
    def conv(x: "f32[34, 34]", w: "f32[3, 3]", y: "f32[32, 32]"):
        for i in range(32):
            for j in range(32):
                for p in range(3):
                    for q in range(3):
                        y[i, j] += x[i + p, j + q] * w[p, q]
                y[i, j] = max(y[i, j], 0)

    return str(pf.Schedule(conv).why_not("bind", "S0", p="cores"))


def another_tile() -> str:
    """Half a tile of the automatic schedule of an MLP and of a CNN (guide: schedules as files)."""
    found = []
    for nest in (MLP, CNN):
        auto = pf.compile(nest, target="cpu", machine="zen5").schedule
        number = [(step.verb, step.args[:2]) for step in auto.steps].index(("split", ("mac0", "j")))
        mine = auto.with_step(number, size=auto.steps[number].args[2] // 2)
        found += [f"{auto.steps[number]} -> {mine.steps[number]}"]
        pf.compile(nest, target="cpu", schedule=mine)
    return "\n".join(found)


def save_and_load_elsewhere() -> str:
    """A schedule that another process compiles with (guide: schedules as files, the command line)."""
    code = "import polyfuse as pf\nfrom polyfuse import nn\nnest = pf.lower(nn.Linear(24, 40), batch=12)\n"
    Path("dense.py").write_text(code, encoding="utf-8")
    pf.compile(pf.lower(nn.Linear(24, 40), batch=12), target="cpu").schedule.save("dense.json")
    command = "-m polyfuse explain dense.py --target cpu --schedule dense.json"
    done = subprocess.run([sys.executable, *command.split()], capture_output=True, text=True, check=True)
    return done.stdout


def predicted_and_measured() -> str:
    """Two schedules, with the model's time and the measured one (guide: prices and profiles)."""
    auto = pf.compile(MLP, target="cpu").schedule
    written = pf.Schedule(MLP)
    return str(pf.compare({"auto": auto, "as written": written}, [X], target="cpu", turns=3))


def cuda_and_ptx() -> str:
    """CUDA source and PTX for an H200, on a machine without a GPU (guide: CUDA without a GPU)."""
    net = pf.compile(MLP, target="cuda", machine="h200", device="none")
    return net.source + "\n".join(net.ptx.values())


def own_activation() -> str:
    """A layer with an activation of one's own (guide: layers)."""
    softplus = pf.scalar("softplus", "log1p(exp(x))")
    net = pf.compile(pf.lower(nn.Sequential(nn.Linear(48, 8), softplus), batch=32), target="cpu")
    return f"{net(X).min():.3f} is above 0; the activation is in {net.kernels[-1]}"


def slowest_kernel() -> str:
    """The kernel that takes most of a call (guide: prices and profiles)."""
    profile = pf.compile(MLP, target="cpu", fuse=False).profile(X, turns=3)
    slowest = max(profile.kernels, key=lambda kernel: kernel.seconds)
    return f"{slowest.kernel}: {slowest.seconds / profile.seconds:.0%} of the call"


def paper() -> str:
    """A published experiment, repeated in small (guide: papers)."""
    command = "-m polyfuse papers run flux_558_conv_bias --quick --out paper"
    done = subprocess.run([sys.executable, *command.split()], capture_output=True, text=True, check=True)
    return done.stdout


def tuned_on_dask() -> str:
    """Schedules measured by a worker of Dask (guide: tuning)."""
    from dask.distributed import Client

    with Client(processes=False, n_workers=1, threads_per_worker=1, dashboard_address=None) as client:
        trials = pf.Trials(count=2, executor=client.get_executor())
        net = pf.compile(MLP, target="cpu", tune=trials)
    return str(net.tuning)


def bound() -> str:
    """The least bytes of any schedule behind a cache of 16 KiB, and this one's beside them (guide: bounds)."""
    net = pf.compile(MLP, target="cpu")
    return str(pf.bounds(net, 16 * 1024))


def explorer() -> str:
    """One offline page with linked views of a compiled nest (guide: the explorer)."""
    return str(pf.compile(MLP, target="cpu").explore("explorer.html"))


TASKS = (
    loops_and_a_refusal,
    another_tile,
    save_and_load_elsewhere,
    predicted_and_measured,
    cuda_and_ptx,
    own_activation,
    slowest_kernel,
    paper,
    tuned_on_dask,
    bound,
    explorer,
)


def main(names: list[str]) -> None:
    """Do the tasks of these names, or all."""
    for task in TASKS:
        if not names or task.__name__ in names:
            print(f"== {task.__name__}: {task.__doc__}\n{task()}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
