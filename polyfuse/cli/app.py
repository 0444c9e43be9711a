"""The commands: arguments and help; the neighbouring modules implement them."""

from __future__ import annotations

import enum
from functools import partial
from importlib import metadata
from math import inf
from pathlib import Path
from typing import Annotated

import typer

from polyfuse.cli.early_checks import (
    GPU_PARTS,
    existing,
    file_to_write,
    gpu_parts,
    known_machine,
    machine_names,
    numbers,
    paper_names,
    picture_file,
    schedule_file,
    schedule_to_write,
    sized,
)
from polyfuse.workbench.terminal import Terminal

app = typer.Typer(
    help="Compile affine loop nests into checked, fused kernels.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


cache = typer.Typer(help="The cache of compiled programs.", no_args_is_help=True)
app.add_typer(cache, name="cache")
papers = typer.Typer(help="Reproduce published experiments.", no_args_is_help=True)
app.add_typer(papers, name="papers")


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"polyfuse {metadata.version('polyfuse')}")
        raise typer.Exit


@app.callback()
def every_command(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Compile affine loop nests into checked, fused kernels."""


class Target(enum.StrEnum):
    """The target of a compile."""

    auto = "auto"
    cpu = "cpu"
    cuda = "cuda"


class PaperTarget(enum.StrEnum):
    """The target of an experiment."""

    cpu = "cpu"
    cuda = "cuda"


class DeviceName(enum.StrEnum):
    """The device that runs CUDA kernels."""

    gpu = "gpu"
    lockstep = "lockstep"
    simulator = "simulator"
    none = "none"


class Picture(enum.StrEnum):
    """The kinds of picture that `draw` makes."""

    domain = "domain"
    dependences = "dependences"
    tree = "tree"


class ExplanationForm(enum.StrEnum):
    """The forms of an explanation."""

    text = "text"
    summary = "summary"
    json = "json"
    html = "html"


class CheckDevice(enum.StrEnum):
    """The device on which gpu-check runs its cases."""

    gpu = "gpu"
    lockstep = "lockstep"


FILE_HELP = (
    "A Python file, or file.py:name. It defines `nest` (a Nest), `model` (a layer such as nn.Sequential), `layers` "
    "(a list of them), `outputs` (values of the functional form), or one function under @pf.nest. A model needs a "
    "batch: --batch, or a variable `batch` in the file."
)
File = Annotated[str, typer.Argument(metavar="FILE", help=FILE_HELP, callback=existing)]
ScheduleOption = Annotated[
    Path | None,
    typer.Option(
        help="A schedule of the nest: .json as Schedule.save writes, or .py that makes a schedule s of nest, as "
        "compile --emit writes.",
        callback=schedule_file,
    ),
]
TargetOption = Annotated[Target, typer.Option(help="auto: cuda if a GPU can be used, else cpu.")]
MachineOption = Annotated[
    str | None,
    typer.Option(
        help="The machine for the cost model: h200, a100, zen5, …",
        callback=known_machine,
        autocompletion=machine_names,
    ),
]
DeviceOption = Annotated[DeviceName | None, typer.Option(help="Where CUDA kernels run; none: compile only.")]
BatchOption = Annotated[int | None, typer.Option(help="The batch of a model; overrides the file's.")]
FeaturesOption = Annotated[list[int] | None, typer.Option(help="The shape of one input; once per dimension.")]
FuseOption = Annotated[bool, typer.Option("--fuse/--no-fuse", help="--no-fuse: one kernel per operation.")]


@app.command()
def demo(
    turns: Annotated[int, typer.Option(min=1, help="Timed turns per candidate.")] = 25,
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
    schedule: ScheduleOption = None,
    emit: Annotated[
        Path | None, typer.Option(help="Write sources, schedule and report into this folder.")
    ] = None,
) -> None:
    """Compile a nest or a model; print its kernels and the report."""
    from polyfuse.cli.compiling import compiled, emit_files, show_kernels
    from polyfuse.cli.load import loaded
    from polyfuse.workbench.terminal import folder_to_write

    terminal = Terminal()
    if emit is not None:
        folder_to_write(emit)
    nest = loaded(terminal, file, batch, features)
    net = compiled(terminal, nest, target, machine, device, fuse, schedule)
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
    schedule: ScheduleOption = None,
    statement: Annotated[
        list[str] | None, typer.Option(help="Only decisions about this statement; repeatable.")
    ] = None,
    form: Annotated[ExplanationForm, typer.Option("--format", help="The form of the output.")] = (
        ExplanationForm.text
    ),
) -> None:
    """Print which fusions were taken and which refused, and why."""
    from polyfuse.cli.load import loaded, possible_statements

    terminal = Terminal()
    nest = loaded(terminal, file, batch, features)
    possible_statements(nest, statement or [])
    # the compiler takes as long to import as all before: a name that cannot be is refused without it
    from polyfuse.cli.compiling import compiled, explanation_text

    net = compiled(terminal, nest, target, machine, device, schedule=schedule)
    terminal.text(explanation_text(net.explain(*statement or []), form.value))


@app.command()
def profile(
    file: File,
    target: TargetOption = Target.auto,
    machine: MachineOption = None,
    batch: BatchOption = None,
    features: FeaturesOption = None,
    fuse: FuseOption = True,
    schedule: ScheduleOption = None,
    size: Annotated[list[str] | None, typer.Option(help="A symbolic size, as N=8.", callback=sized)] = None,
    turns: Annotated[int, typer.Option(min=1, help="Timed turns; the median counts.")] = 9,
    seed: Annotated[int, typer.Option(help="The seed of the random inputs.")] = 0,
) -> None:
    """Compile a nest or a model, and measure each of its kernels on random inputs, beside the predictions."""
    from polyfuse.cli.compiling import compiled
    from polyfuse.cli.load import loaded
    from polyfuse.cli.measuring import random_arrays, show_profile

    terminal = Terminal()
    nest = loaded(terminal, file, batch, features)
    arrays = random_arrays("profile", nest, numbers(size or []), seed)
    net = compiled(terminal, nest, target, machine, None, fuse, schedule)
    show_profile(terminal, net, arrays, turns)


@app.command()
def tune(
    file: File,
    count: Annotated[int, typer.Option(min=1, help="Schedules to try.")] = 50,
    seconds: Annotated[float | None, typer.Option(min=0, help="Start no trial after this time.")] = None,
    machine: MachineOption = None,
    batch: BatchOption = None,
    features: FeaturesOption = None,
    save: Annotated[
        Path | None,
        typer.Option(help="Write the fastest schedule here, as JSON.", callback=schedule_to_write),
    ] = None,
    seed: Annotated[int, typer.Option(help="The sampler's seed.")] = 0,
) -> None:
    """Measure other schedules than the cost model's choice, on the CPU, and keep the fastest."""
    from polyfuse.cli.compiling import compiled
    from polyfuse.cli.load import loaded
    from polyfuse.cli.measuring import show_tuning
    from polyfuse.tune import Trials

    terminal = Terminal()
    trials = Trials(count=count, seconds=seconds, seed=seed)
    nest = loaded(terminal, file, batch, features)
    net = compiled(terminal, nest, Target.cpu, machine, tune=trials)
    show_tuning(terminal, net, save)


@app.command()
def draw(
    file: File,
    out: Annotated[
        Path,
        typer.Option(
            "--out",
            "-o",
            help="Output file: .svg, .png, .pdf, …; or .tex, .html, .dot for text.",
            callback=picture_file,
        ),
    ],
    picture: Annotated[Picture, typer.Option(help="The kind of picture.")] = Picture.tree,
    schedule: ScheduleOption = None,
    statement: Annotated[
        list[str] | None, typer.Option(help="For domain: the statement to plot; repeatable.")
    ] = None,
    dim: Annotated[
        list[str] | None, typer.Option(help="For domain: a dimension to plot, horizontal first.")
    ] = None,
    size: Annotated[
        list[str] | None, typer.Option(help="For domain: a symbolic size, as N=8.", callback=sized)
    ] = None,
    at: Annotated[
        list[str] | None, typer.Option(help="For domain: the value of a dimension that is not plotted.")
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


@app.command()
def explore(
    file: File,
    out: Annotated[Path, typer.Option("--out", "-o", help="Output file.", callback=file_to_write)] = Path(
        "explorer.html"
    ),
    target: TargetOption = Target.auto,
    machine: MachineOption = None,
    device: DeviceOption = None,
    batch: BatchOption = None,
    features: FeaturesOption = None,
    fuse: FuseOption = True,
    as_json: Annotated[bool, typer.Option("--json", help="Write the page's data instead, as JSON.")] = False,
    assembly: Annotated[
        bool,
        typer.Option("--assembly/--no-assembly", help="--no-assembly: no machine code beside the source."),
    ] = True,
) -> None:
    """Compile a nest or a model, and write the explorer: one HTML file that needs no server and no network."""
    from polyfuse.cli.compiling import compiled
    from polyfuse.cli.load import loaded
    from polyfuse.workbench.terminal import writing

    terminal = Terminal()
    nest = loaded(terminal, file, batch, features)
    net = compiled(terminal, nest, target, machine, device, fuse)
    with terminal.working("exploring the schedule"):
        explorer = net.explore(assembly=assembly)
    with writing(out):
        out.write_text(explorer.json() if as_json else explorer.html(), encoding="utf-8")
    terminal.text(f"wrote {out}")


@app.command("serve")
def serve_command(
    file: File,
    stdio: Annotated[
        bool,
        typer.Option(
            "--stdio", help="Read requests from stdin, write answers to stdout; the one form there is."
        ),
    ] = True,
    machine: MachineOption = None,
    batch: BatchOption = None,
    features: FeaturesOption = None,
) -> None:
    """Give verdicts on proposed steps of a schedule: one JSON request a line, one JSON answer a line."""
    import sys

    from polyfuse.cli.load import load_nest
    from polyfuse.cli.serve import serve
    from polyfuse.machine import Machine

    nest = load_nest(file, batch, features)
    serve(nest, Machine.preset(machine) if machine else Machine.detect(), sys.stdin, sys.stdout)


@app.command("reduce")
def reduce_command(
    file: File,
    target: TargetOption = Target.cpu,
    machine: MachineOption = None,
    device: DeviceOption = None,
    size: Annotated[
        list[str] | None, typer.Option(help="A symbolic size, as N=8; others are 5.", callback=sized)
    ] = None,
    limit: Annotated[float, typer.Option(min=0, help="Seconds after which a trial is a time-out.")] = 60,
    minutes: Annotated[float, typer.Option(min=0, help="Start no trial after this time.")] = 10,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Write the smallest program here.", callback=file_to_write),
    ] = None,
    batch: BatchOption = None,
    features: FeaturesOption = None,
) -> None:
    """Make a program smaller that gives a wrong value, crashes or does not end; exit 1 if it does none of these.

    The source of a function under @pf.nest is edited. Any other nest, such as a network, is written as statements and
    edited so; its inputs and constants are small whole numbers then.
    """
    from polyfuse.checks.reduce import Options, reduce_file
    from polyfuse.cli.load import load_nest

    sizes = tuple(numbers(size or []).items())
    options = Options(target.value, machine, device and device.value, sizes, limit)
    load = partial(load_nest, file, batch, features)
    if not reduce_file(file, options, 60 * minutes, out, Terminal(), load):
        raise typer.Exit(1)


Seed = Annotated[int | None, typer.Option(help="The seed of the inputs; random by default.")]


@app.command("gpu-check")
def gpu_check(
    device: Annotated[
        CheckDevice, typer.Option(help="lockstep: a dry run in the CPU emulator.")
    ] = CheckDevice.gpu,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder for the results file. Default: benchmarks/results on a GPU, none for a dry run."
        ),
    ] = None,
    only: Annotated[str | None, typer.Option(help="Only cases whose name contains this.")] = None,
    seed: Seed = None,
    sanitize: Annotated[
        bool, typer.Option("--sanitize", help="Run under compute-sanitizer: memcheck, then racecheck.")
    ] = False,
    jobs: Annotated[
        int, typer.Option(min=1, help="Cases to run at a time, each in a process; they share the GPU.")
    ] = 1,
    minutes: Annotated[
        float, typer.Option(min=0, help="Start no case after this time; the file lists those left.")
    ] = inf,
    resume: Annotated[
        bool, typer.Option(help="Keep the cases that passed in today's file of this commit and GPU.")
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
            help=f"{', '.join(GPU_PARTS)}; default: all.",
            callback=gpu_parts,
        ),
    ] = None,
    device: Annotated[
        CheckDevice, typer.Option(help="lockstep: a dry run in the CPU emulator, without times.")
    ] = CheckDevice.gpu,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for the results. Default: benchmarks/results on a GPU, else a new one."),
    ] = None,
    minutes: Annotated[
        float, typer.Option(min=0, help="Time limit of each part; the next run continues.")
    ] = 8,
    turns: Annotated[int, typer.Option(min=2, help="Timed turns per side.")] = 15,
    seed: Seed = None,
    resume: Annotated[
        bool, typer.Option(help="Keep the measurements of this commit's latest run on this GPU.")
    ] = True,
    jobs: Annotated[
        int, typer.Option(min=1, help="Processes that compile polyfuse's kernels before measuring.")
    ] = 1,
    only: Annotated[
        list[str] | None, typer.Option(help="Only cases whose name contains this, such as gemm-2048.")
    ] = None,
    without: Annotated[
        list[str] | None, typer.Option(help="Skip peers whose name contains this, such as max-autotune.")
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
    name: Annotated[
        str, typer.Argument(help="The paper's name, as printed by `papers list`.", autocompletion=paper_names)
    ],
    target: Annotated[
        PaperTarget, typer.Option(help="cuda without a GPU runs in the CPU emulator: counts, no times.")
    ] = PaperTarget.cpu,
    quick: Annotated[
        bool, typer.Option("--quick", help="Small sizes: a check that it runs, in seconds.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder for rows and figure. Default: the paper's results, a new folder for --quick."
        ),
    ] = None,
) -> None:
    """Run an experiment; it checks what it computes, and writes rows and a figure."""
    from polyfuse.cli.papers import run_paper

    run_paper(Terminal(), name, target.value, quick, out)
