"""What a GPU says of its clocks while it works: asked for beside a side's calls, since an idle GPU lowers them."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Sequence
from itertools import cycle

from benchmarks.gpu.clock import Call, Clock

ASKED = ("clocks.sm", "clocks.mem", "power.draw", "temperature.gpu")

COMMAND = ("nvidia-smi", f"--query-gpu={','.join(ASKED)}", "--format=csv,noheader")

MOST_SECONDS = 10.0
"""How long nobody waits for an answer."""


def under_load(calls: Sequence[Call], clock: Clock, command: Sequence[str] = COMMAND) -> dict[str, str]:
    """The answers, by what was asked for; none where there is no nvidia-smi, or it has nothing to say."""
    try:
        asking = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    except OSError:
        return {}
    start, ring = time.monotonic(), cycle(calls)

    def work() -> None:
        while asking.poll() is None and time.monotonic() - start < MOST_SECONDS:
            next(ring)()

    with asking:
        clock(work)
        asking.kill()
        said = asking.stdout.read().splitlines() if asking.stdout is not None else []
    values = [text.strip() for text in said[0].split(",")] if said else []
    return dict(zip(ASKED, values, strict=True)) if len(values) == len(ASKED) else {}
