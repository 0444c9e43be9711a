"""A greedy search for a faster schedule that talks to polyfuse in JSON alone: `python examples/greedy_search.py`.

It starts `polyfuse serve FILE --stdio`, sends the steps of the strategy's own schedule, asks for legal next steps, has
each measured, and keeps the fastest as long as that helps. Steps are data, so that a searcher can be written in any
language; each is proven, so that no searcher can make a wrong schedule.
"""

import json
import subprocess
import sys

import numpy as np

import polyfuse as pf
from polyfuse import nn

outputs = nn.avg_pool(nn.input("x", (1, 8, 20, 20)), 5, stride=1)


class Server:
    """`polyfuse serve`: one JSON request a line, one JSON answer a line."""

    def __init__(self, file):
        command = [sys.executable, "-m", "polyfuse", "serve", file, "--stdio"]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, encoding="utf-8")

    def ask(self, **request):
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())


def search(server, steps, by="measured", most=4):
    """Return the steps after a greedy search by a field of the verdicts, "measured" or "predicted"."""
    seconds = server.ask(steps=steps, measure=by == "measured")[by]
    for _ in range(most):
        found = []
        for each in server.ask(do="next", steps=steps, most=6)["next"]:
            step = {name: each[name] for name in ("verb", "args", "options")}
            found.append((server.ask(steps=[*steps, step], measure=by == "measured")[by], step))
        best, step = min(found, key=lambda one: one[0], default=(seconds, None))
        if best > 0.97 * seconds:  # no gain beyond noise
            break
        seconds, steps = best, [*steps, step]
    return steps


def main():
    nest = pf.lower(outputs)
    plan = pf.compile(nest, target="cpu").schedule
    steps = [{"verb": s.verb, "args": list(s.args), "options": dict(s.options)} for s in plan.steps]
    found = search(Server(__file__), steps)
    print("found:", *(f"{s['verb']} {s['args']} {s['options']}" for s in found[len(steps) :]), sep="\n  ")
    x = np.random.default_rng(1).random((1, 8, 20, 20), np.float32)
    print(pf.compare({"default": plan, "found": pf.verdict(nest, found).schedule}, [x], turns=31))


if __name__ == "__main__":
    main()
