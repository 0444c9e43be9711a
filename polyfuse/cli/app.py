"""The commands: arguments and help here, what they do in the modules beside this one."""

from __future__ import annotations

import enum
from math import inf
from pathlib import Path
from typing import Annotated

import typer

from polyfuse.terminal import Terminal

app = typer.Typer(
    help="Affine loop nests in, checked and fused kernels out.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


cache = typer.Typer(help="The cache of compiled programs.", no_args_is_help=True)
app.add_typer(cache, name="cache")
papers = typer.Typer(help="Published experiments, repeated here.", no_args_is_help=True)
app.add_typer(papers, name="papers")


class Target(enum.StrEnum):
    """What is compiled for."""

    auto = "auto"
    cpu = "cpu"
    cuda = "cuda"


class PaperTarget(enum.StrEnum):
    """What an experiment compiles for."""

    cpu = "cpu"
    cuda = "cuda"


class DeviceName(enum.StrEnum):
    """Where CUDA kernels run."""

    gpu = "gpu"
    lockstep = "lockstep"
    simulator = "simulator"
    none = "none"


class Picture(enum.StrEnum):
    """What `draw` draws."""

    domain = "domain"
    dependences = "dependences"
    tree = "tree"


class CheckDevice(enum.StrEnum):
    """Where gpu-check runs its cases."""

    gpu = "gpu"
    lockstep = "lockstep"


FILE_HELP = (
    "A Python file, or file.py:name. It defines `nest` (a Nest), `model` (a layer such as nn.Sequential), `layers` "
    "(a list of them), `outputs` (values of the functional form), or one function under @pf.nest. A model needs a "
    "batch: --batch, or a variable `batch` in the file."
)
File = Annotated[str, typer.Argument(metavar="FILE", help=FILE_HELP)]
TargetOption = Annotated[Target, typer.Option(help="auto is cuda where a GPU can be used, else cpu.")]
MachineOption = Annotated[
    str | None, typer.Option(help="A preset the cost model plans for: h200, a100, zen5, …")
]
DeviceOption = Annotated[
    DeviceName | None, typer.Option(help="Where CUDA kernels run; none: only to be read.")
]
BatchOption = Annotated[int | None, typer.Option(help="The batch of a model; overrides the file's.")]
FeaturesOption = Annotated[list[int] | None, typer.Option(help="The shape of one input; once per dimension.")]
FuseOption = Annotated[
    bool, typer.Option("--fuse/--no-fuse", help="Without: every operation a kernel of its own.")
]


@app.command()
def demo(
    turns: Annotated[int, typer.Option(min=1, help="How often each candidate is timed, in turns.")] = 25,
) -> None:
    """Two dense networks: lowered, scheduled, compiled, run, checked against NumPy, and timed in turns.

    4 × Linear(512) + ReLU at batch 64, then 8 × Linear(64) + ReLU at batch 1; on the CPU, and on a GPU where there is
    one. Prints the nest, the schedule tree, the explanation, the kernels, and the times, lost ones too.
    """
    from polyfuse.cli.demo import run_demo

    run_demo(Terminal(), turns)


@app.command("compile")
def compile_file(
    file: File,
    target: TargetOption = Target.auto,
    machine: MachineOption = None,
    device: DeviceOption = None,
    batch: BatchOption = None,
    features: FeaturesOption = None,
    fuse: FuseOption = True,
    emit: Annotated[
        Path | None, typer.Option(help="Write sources, schedule and report into this folder.")
    ] = None,
) -> None:
    """Compile a nest or a model; print its kernels and the report."""
    from polyfuse.cli.compiling import compiled, emit_files, show_kernels

    terminal = Terminal()
    net = compiled(terminal, file, target, machine, device, batch, features, fuse)
    show_kernels(terminal, net)
    if emit is not None:
        for path in emit_files(net, emit):
            terminal.text(f"wrote {path}")


@app.command()
def explain(
    file: File,
    target: TargetOption = Target.auto,
    machine: MachineOption = None,
    device: DeviceOption = None,
    batch: BatchOption = None,
    features: FeaturesOption = None,
) -> None:
    """Print which fusions were taken and which refused, and why."""
    from polyfuse.cli.compiling import compiled

    terminal = Terminal()
    terminal.text(compiled(terminal, file, target, machine, device, batch, features, True).explain())


@app.command()
def draw(
    file: File,
    out: Annotated[
        Path,
        typer.Option("--out", "-o", help="Where to; .svg, .png, .pdf, …, or .tex, .html, .dot for text."),
    ],
    picture: Annotated[Picture, typer.Option(help="What a picture shows.")] = Picture.tree,
    schedule: Annotated[
        Path | None, typer.Option(help="Python that makes a schedule s of nest, as compile --emit writes.")
    ] = None,
    statement: Annotated[
        list[str] | None, typer.Option(help="For domain: whose instances; once per statement.")
    ] = None,
    dim: Annotated[
        list[str] | None, typer.Option(help="For domain: a dimension to plot, horizontal first.")
    ] = None,
    size: Annotated[list[str] | None, typer.Option(help="For domain: a symbolic size, as N=8.")] = None,
    at: Annotated[
        list[str] | None, typer.Option(help="For domain: where a dimension that is not plotted is held.")
    ] = None,
    batch: BatchOption = None,
    features: FeaturesOption = None,
) -> None:
    """Draw a nest, or a schedule of it, into a file: iteration domain, dependence graph, or schedule tree.

    The suffix says the format. As text: .tex is the statements, .html the nest or schedule, .dot the dependence graph.
    """
    from polyfuse.cli.draw import draw as draw_file

    lists = (statement or [], dim or [], size or [], at or [])
    draw_file(file, out, picture.value, schedule, *lists, batch, features)
    Terminal().text(f"wrote {out}")


Seed = Annotated[int | None, typer.Option(help="For the inputs; without it they are fresh.")]


@app.command("gpu-check")
def gpu_check(
    device: Annotated[
        CheckDevice, typer.Option(help="lockstep: a dry run on the stand-in.")
    ] = CheckDevice.gpu,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for the results file. On a GPU benchmarks/results; a dry run has none."),
    ] = None,
    only: Annotated[str | None, typer.Option(help="Only cases whose name contains this.")] = None,
    seed: Seed = None,
    sanitize: Annotated[
        bool, typer.Option("--sanitize", help="Under compute-sanitizer: memcheck, then racecheck.")
    ] = False,
    jobs: Annotated[
        int, typer.Option(min=1, help="So many cases at a time, each in a process; they share the GPU.")
    ] = 1,
    minutes: Annotated[
        float, typer.Option(min=0, help="No case begins later than this; the file names those left.")
    ] = inf,
    resume: Annotated[
        bool, typer.Option(help="Keep what passed in today's file of this commit and GPU.")
    ] = False,
) -> None:
    """Run every CUDA kernel of the test suite on this machine's GPU and compare with the oracle.

    Prints one line a case, and writes the results with date, GPU, driver and commit.
    """
    from polyfuse.checks.gpu_check import Run, run_check
    from polyfuse.checks.sanitize import run_sanitized

    run = Run(jobs, 60 * minutes, resume)
    if sanitize:
        raise typer.Exit(0 if run_sanitized(Terminal(), device.value, out, only, seed, run) else 1)
    raise typer.Exit(0 if run_check(Terminal(), device.value, out, only, seed, run) else 1)


@app.command("gpu-bench")
def gpu_bench(
    parts: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[PART]…",
            help="calls, gemm, memory, conv, lstm, ensembles, strassen, grid; all without.",
        ),
    ] = None,
    device: Annotated[
        CheckDevice, typer.Option(help="lockstep: a dry run on the stand-in, without times.")
    ] = CheckDevice.gpu,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for the results; on a GPU benchmarks/results, else a new one."),
    ] = None,
    minutes: Annotated[float, typer.Option(min=0, help="For each part; another run goes on.")] = 8,
    turns: Annotated[int, typer.Option(min=2, help="How often each side is timed, in turns.")] = 15,
    seed: Seed = None,
    resume: Annotated[
        bool, typer.Option(help="Keep what this commit's latest run on this GPU measured.")
    ] = True,
    jobs: Annotated[
        int, typer.Option(min=1, help="Compile ours in so many processes before anything is measured.")
    ] = 1,
    only: Annotated[
        list[str] | None, typer.Option(help="Only what has this in its name, such as gemm-2048.")
    ] = None,
    without: Annotated[
        list[str] | None, typer.Option(help="No peer that has this in its name, such as max-autotune.")
    ] = None,
) -> None:
    """Measure polyfuse on this machine's GPU beside torch (eager, compiled, in graphs) and cuBLAS, part by part.

    Every result is checked first. Writes rows with date, GPU, driver, clocks and commit; prints a short table last.
    """
    from polyfuse.cli.gpu_bench import run_bench

    done = run_bench(
        Terminal(),
        parts or (),
        device.value,
        out,
        minutes,
        turns,
        seed,
        resume,
        jobs,
        only or (),
        without or (),
    )
    raise typer.Exit(0 if done else 1)


@app.command()
def info() -> None:
    """Print versions, targets, the machine as the cost model sees it, and the cache directory."""
    from polyfuse.cli.info import show_info

    show_info(Terminal())


@cache.command("info")
def cache_info() -> None:
    """Print where compiled programs and kernels are kept, how many, and how much they may take."""
    from polyfuse.cli.cache_command import show_cache

    show_cache(Terminal())


@cache.command("clear")
def cache_clear() -> None:
    """Remove all compiled programs and sources that are kept."""
    from polyfuse.cli.cache_command import clear_cache

    clear_cache(Terminal())


@papers.command("list")
def papers_list() -> None:
    """Print the experiments there are."""
    from polyfuse.cli.papers import show_papers

    show_papers(Terminal())


@papers.command("run")
def papers_run(
    name: Annotated[str, typer.Argument(help="As `papers list` prints it.")],
    target: Annotated[
        PaperTarget, typer.Option(help="cuda without a GPU runs on a stand-in: counts, no times.")
    ] = PaperTarget.cpu,
    quick: Annotated[bool, typer.Option("--quick", help="Small sizes, seconds: does it still run?")] = False,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for rows and figure; else the paper's results, a new one for --quick."),
    ] = None,
) -> None:
    """Run an experiment; it checks what it computes, and writes rows and a figure."""
    from polyfuse.cli.papers import run_paper

    run_paper(Terminal(), name, target.value, quick, out)
