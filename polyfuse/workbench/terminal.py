"""Print for the commands: colours, rules and tables in a terminal, the same text without them elsewhere."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.syntax import Syntax
from rich.table import Table

from polyfuse.errors import BadArgument, PolyfuseError
from polyfuse.errors.tracebacks import SWITCH, asked_in_full, users_lines
from polyfuse.measure import STAGES

PLAIN_WIDTH = 120
"""Columns where the output is no terminal: tables must not be cut to the 80 that rich assumes."""


class Terminal:
    """Standard output for results, standard error for progress and errors."""

    def __init__(self) -> None:
        out, err = Console(), Console(stderr=True)
        self.out = out if out.is_terminal else Console(width=PLAIN_WIDTH)
        self.err = err if err.is_terminal else Console(stderr=True, width=PLAIN_WIDTH)

    def title(self, text: str) -> None:
        """A line that starts a part."""
        self.out.print()
        self.out.rule(f"[bold]{escape(text)}", align="left")

    def heading(self, text: str) -> None:
        """A line above a block."""
        self.out.print(f"\n[bold]{escape(text)}[/bold]")

    def text(self, text: str) -> None:
        """A block as it is: neither wrapped nor marked up."""
        self.out.print(text, markup=False, highlight=False, soft_wrap=True)

    def code(self, source: str) -> None:
        """Python source; coloured in a terminal."""
        if self.out.is_terminal:
            coloured = Syntax("", "python", theme="ansi_dark").highlight(source)
            self.out.print(coloured, soft_wrap=True)
        else:
            self.text(source)

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """A table; all columns but the first are aligned right."""
        table = Table(box=None, pad_edge=False, header_style="bold")
        for number, column in enumerate(columns):
            table.add_column(column, justify="right" if number else "left", no_wrap=True)
        for row in rows:
            table.add_row(*map(escape, row))
        self.out.print(table)

    @contextmanager
    def working(self, what: str) -> Iterator[None]:
        """Show that something takes a while: a line, with the stage of a compile and the elapsed time in a terminal."""
        if not self.err.is_terminal:
            self.err.print(f"{what} …", markup=False, highlight=False)
            yield
            return
        columns = SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn()
        with Progress(*columns, console=self.err, transient=True) as shown:
            task = shown.add_task(f"{what} …", total=None)
            with _stages(lambda stage: shown.update(task, description=f"{what}: {stage} …")):
                yield


@contextmanager
def _stages(show: Callable[[str], None]) -> Iterator[None]:
    """Tell `show` each stage of a compile as it begins."""
    listener = logging.Handler()
    listener.emit = lambda record: show(record.getMessage())  # type: ignore[method-assign]
    before = STAGES.level
    STAGES.addHandler(listener)
    STAGES.setLevel(logging.INFO)
    try:
        yield
    finally:
        STAGES.setLevel(before)
        STAGES.removeHandler(listener)


@contextmanager
def errors_as_messages() -> Iterator[None]:
    """An error ends the command with its message in red, after the user's lines that led to it, and exit code 1.

    One that polyfuse does not raise on purpose is a fault, and says so. With POLYFUSE_TRACEBACK=full errors go on.
    """
    try:
        yield
    except PolyfuseError as error:
        if asked_in_full():
            raise
        _print_error(error, str(error))
        raise SystemExit(1) from None
    except Exception as error:
        if asked_in_full():
            raise
        fault = f"{type(error).__name__}: {error}\na fault of polyfuse; {SWITCH}=full shows where"
        _print_error(error, fault)
        raise SystemExit(1) from None


def _print_error(error: Exception, message: str) -> None:
    console = Console(stderr=True)
    for line in users_lines(error):
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    console.print(
        f"[bold red]error:[/bold red] [red]{escape(message)}[/red]", highlight=False, soft_wrap=True
    )


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn an operating-system error while a file is written into a BadArgument that names the file."""
    try:
        yield
    except OSError as error:
        raise BadArgument(f"cannot write {path}: {error.strerror}") from error


def folder_to_write(path: Path) -> Path:
    """Return a folder, made if it is not there; BadArgument if it cannot be made."""
    with writing(path):
        path.mkdir(parents=True, exist_ok=True)
    return path
