"""A greedy search for a faster schedule that talks to polyfuse in JSON alone: `python examples/greedy_search.py`.

It starts `polyfuse serve FILE --stdio`, sends the steps of the strategy's own schedule, asks for legal next steps, and
keeps the fastest as long as that helps, by predicted times, or by measured ones on a machine without other work. Steps
are data, so that a searcher can be written in any language; each is proven, so that none can make a wrong schedule.
"""

import json
import subprocess
import sys
import time
from functools import partial

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


def search(server, steps, by="predicted", most=4):
    """Return the steps after a greedy search by a field of the verdicts, "measured" or "predicted"."""
    seconds = server.ask(steps=steps, measure=by == "measured")[by]
    for _ in range(most):
        found = []
        for each in server.ask(do="next", steps=steps, most=6)["next"]:
            step = {name: each[name] for name in ("verb", "args", "options")}
            found.append((server.ask(steps=[*steps, step], measure=by == "measured")[by], step))
        best, step = min(found, key=lambda one: one[0], default=(seconds, None))
        if best > 0.9 * seconds:  # no gain beyond noise
            break
        seconds, steps = best, [*steps, step]
    return steps


def main():
    nest = pf.lower(outputs)
    plan = pf.compile(nest, target="cpu").schedule
    steps = [{"verb": s.verb, "args": list(s.args), "options": dict(s.options)} for s in plan.steps]
    server = Server(__file__)
    found = search(server, steps)
    server.process.communicate()  # no more requests: it ends
    print("found:", *(f"{s['verb']} {s['args']} {s['options']}" for s in found[len(steps) :]), sep="\n  ")
    x = np.random.default_rng(1).random((1, 8, 20, 20), np.float32)
    schedules = {"default": plan, "found": pf.verdict(nest, found).schedule}
    nets = {name: pf.compile(nest, target="cpu", schedule=each) for name, each in schedules.items()}
    assert np.allclose(nets["default"](x), nets["found"](x))
    calls = {name: partial(net, x) for name, net in nets.items()}
    for name, times in pf.measure.in_turns(calls, turns=15, clock=time.process_time).items():
        print(f"{name:8} {1e6 * times.best:6.2f} µs")


if __name__ == "__main__":
    main()
