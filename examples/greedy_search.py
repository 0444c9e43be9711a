"""A greedy search for a schedule that talks to polyfuse in JSON alone: `python examples/greedy_search.py`.

It starts `polyfuse serve FILE --stdio`, sends the steps of the strategy's own schedule, asks for legal next steps, and
keeps the one that the cost model expects to be fastest, as long as that helps. Steps are data, so that a searcher can
be written in any language; each is proven, so that no searcher can make a wrong schedule.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import polyfuse as pf
from polyfuse import nn

MACHINE = "zen5"
model, batch = nn.Sequential(nn.Linear(7, 9), nn.ReLU(), nn.Linear(9, 5)), 3


class Server:
    """`polyfuse serve`: one JSON request a line, one JSON answer a line."""

    def __init__(self, file):
        command = [sys.executable, "-m", "polyfuse", "serve", file, "--stdio", "--machine", MACHINE]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, encoding="utf-8")

    def ask(self, **request):
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def close(self):
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


def search(server, steps, most=12):
    """Return the steps after a greedy search, and their predicted seconds."""
    seconds = server.ask(do="verdict", steps=steps)["predicted"]
    for _ in range(most):
        found = server.ask(do="next", steps=steps, most=1)["next"]
        if not found or found[0]["seconds"] >= seconds:
            break
        seconds = found[0].pop("seconds")
        steps = [*steps, found[0]]
    return steps, seconds


def main():
    plan = pf.compile(pf.lower(model, batch=batch), target="cpu", machine=MACHINE).schedule
    with tempfile.TemporaryDirectory() as folder:
        plan.save(Path(folder) / "plan.json")
        steps = json.loads((Path(folder) / "plan.json").read_text(encoding="utf-8"))["steps"]
    server = Server(__file__)
    found, seconds = search(server, steps)
    server.close()
    before = pf.cost(plan, MACHINE).seconds
    print(f"the strategy's schedule: {1e6 * before:.3f} µs predicted; found: {1e6 * seconds:.3f} µs, with")
    for step in found[len(steps) :]:
        print(f"  {step['verb']} {step['args']} {step['options']}")
    return before, seconds


if __name__ == "__main__":
    main()
