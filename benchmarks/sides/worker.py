"""The process of one side: builds a workload, calls it when asked, says how long a call took.

python -m benchmarks.sides.worker SIDE FORM THREADS FOLDER

Requests and answers are lines of JSON (see the package). What cannot be built or called ends the process: the last
answer is {"failed": why}. A kind that the side does not have is {"missing": why}, and the process goes on.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from importlib import import_module, metadata
from pathlib import Path
from typing import Any, TextIO

Call = Callable[[], Any]


def main(side: str, form: str, threads: int, folder: Path) -> None:
    answers = own_output()
    use_cpus(threads)
    try:
        library = import_module(f"benchmarks.sides.by_{side}")
        library.use(form, threads)
        say(answers, {"versions": versions(library.PACKAGES)})
        serve(library, folder, answers)
    except Exception as error:
        say(answers, {"failed": words(error)})
        raise


def own_output() -> TextIO:
    """Standard output for answers alone; what libraries print goes to standard error."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return answers


def use_cpus(threads: int) -> None:
    """As many CPUs as threads, the same for every side: some libraries have no other way to be told."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-threads:])


def versions(packages: tuple[str, ...]) -> dict[str, str]:
    return {name: metadata.version(name) for name in packages}


def words(error: Exception) -> str:
    """An error in one line, of its first three."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {' / '.join(lines[:3])}"[:300]


def say(answers: TextIO, answer: Mapping[str, Any]) -> None:
    print(json.dumps(answer), file=answers, flush=True)


def serve(library: Any, folder: Path, answers: TextIO) -> None:
    """Answer each line of standard input."""
    from benchmarks.sides import memory

    call: Call | None = None
    before = memory.resident()
    for line in sys.stdin:
        request = json.loads(line)
        if request["do"] == "build":
            call = None  # what was built before goes first
            gc.collect()
            make = library.KINDS.get(request["kind"])
            if make is None:
                say(answers, {"missing": f"{request['kind']} is not written for it"})
                continue
            call, answer = built(make, folder, request["name"])
            say(answers, answer)
        elif request["do"] == "time":
            assert call is not None, "a workload is built before it is timed"
            say(answers, {"seconds": seconds(call, request["calls"])})
        else:
            assert call is not None, "a workload is built before its memory is read"
            say(answers, memory.of(call, before))


def built(make: Callable[[dict[str, Any]], Call], folder: Path, name: str) -> tuple[Call, dict[str, float]]:
    """(the call, seconds to make it and of the first run), after writing what the first run gives."""
    import numpy as np

    arrays = {path.stem: np.load(path) for path in sorted((folder / name).glob("*.npy"))}
    start = time.perf_counter()
    call = make(arrays)
    middle = time.perf_counter()
    results = call()
    end = time.perf_counter()
    out = folder / name / "results" / str(os.getpid())
    out.mkdir(parents=True, exist_ok=True)
    for number, result in enumerate(results):
        np.save(out / f"{number}.npy", result.numpy() if hasattr(result, "numpy") else np.asarray(result))
    return call, {"build_s": middle - start, "first_s": end - middle}


def seconds(call: Call, calls: int) -> float:
    """Of one of several calls, after one that is not counted."""
    call()
    start = time.perf_counter()
    for _ in range(calls):
        call()
    return (time.perf_counter() - start) / calls


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), Path(sys.argv[4]))
