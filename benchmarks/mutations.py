"""Seeded faults: one line of polyfuse is made wrong, and the tests of its package have to say so.

python -m benchmarks.mutations [--named TEXT] [--nightly]

Each fault is put into a copy of the tree, and the tests named beside it run there until the first fails: those of
`make test`, or with --nightly those of `make nightly` too; without a fault they have to pass. Prints a table of which
test caught which fault, and a total; the exit status is 1 if a fault was missed. The faults are in conditions that
refuse something or keep something in order, because a wrong one of these lets a wrong program through; what would only
cost time is not among them.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent

COPIED = ("polyfuse", "tests", "benchmarks", "docs", "papers", "pyproject.toml", "README.md", "Makefile")
"""Files and folders that tests read, so that a mutated copy of the tree needs them."""

LIMIT = 300
"""Seconds for the tests of one fault; a fault that makes them take longer is found."""


@dataclass(frozen=True)
class Fault:
    """One line of one file made wrong, and the tests that have to find it.

    Attributes:
        file: The file, below `polyfuse/`.
        right: A text that stands in it once.
        wrong: What takes its place.
        tests: Files and folders below `tests/`.
    """

    file: str
    right: str
    wrong: str
    tests: tuple[str, ...]

    @property
    def name(self) -> str:
        """The fault in one line."""
        return f"{self.file}: {self.right.strip()}  ->  {self.wrong.strip()}"


BARRIERS = ("analysis/test_barriers.py", "analysis/test_validation.py")
PROOFS = ("analysis",)
VERBS = ("schedule/test_schedule.py", "schedule/test_verbs.py", "schedule/test_updates.py")
DEPENDENCES = ("ir/test_dependences.py", "random/test_random_programs.py")

FAULTS = (
    # -- proofs of a schedule
    Fault(
        "analysis/barriers.py", "any(p < _position(node, below)", "any(p <= _position(node, below)", BARRIERS
    ),
    Fault(
        "analysis/barriers.py",
        "any(p >= _position(node, below)",
        "any(p >= _position(node, below) - 1",
        BARRIERS,
    ),
    Fault(
        "analysis/barriers.py",
        "less = pair.map.intersect(source.lt_map(sink))",
        "less = pair.map.intersect(source.gt_map(sink))",
        BARRIERS,
    ),
    Fault("analysis/barriers.py", 'if buffer.memory != "shared":', 'if buffer.memory == "shared":', BARRIERS),
    Fault(
        "analysis/across_blocks.py",
        "if tensor not in own and",
        "if tensor in own and",
        ("schedule/test_grid_barriers.py",),
    ),
    Fault(
        "analysis/legality.py",
        '("vector", "lane") and pair.kind != "reduction"',
        '("vector", "lane") and pair.kind == "flow"',
        (*PROOFS, *VERBS),
    ),
    Fault(
        "analysis/legality.py",
        'behind = pair.where(source, ">", sink)',
        'behind = pair.where(source, "<", sink)',
        (*PROOFS, *VERBS),
    ),
    Fault("analysis/legality.py", "first > second\n", "first > second + 1\n", (*PROOFS, *VERBS)),
    Fault(
        "analysis/legality.py",
        'pairs_where(source, "<", sink).intersect(pairs_where(first, ">", second))',
        'pairs_where(source, "<", sink).intersect(pairs_where(first, "<", second))',
        (*PROOFS, *VERBS),
    ),
    Fault(
        "analysis/stages.py",
        "isl.Val(stages - 1)",
        "isl.Val(stages)",
        ("schedule/promote/test_stages.py", "analysis"),
    ),
    Fault(
        "analysis/storage.py",
        "kept = kept.intersect(same_value(mine, other, pair.map))",
        "kept = kept.union(same_value(mine, other, pair.map).intersect(kept))",
        ("analysis", "schedule/promote"),
    ),
    Fault("analysis/validation.py", "if not when.is_injective():", "if when.is_empty():", PROOFS),
    Fault(
        "analysis/validation.py",
        "for access in (*s.reads, *((s.write,) if s.is_reduction else ())):",
        "for access in s.reads:",
        PROOFS,
    ),
    Fault(
        "analysis/validation.py",
        "apart = stop <= begin or end <= start",
        "apart = stop >= begin or end <= start",
        PROOFS,
    ),
    Fault(
        "analysis/liveness.py",
        "self.first <= other.last",
        "self.first < other.last",
        ("analysis", "runtime/memory"),
    ),
    Fault(
        "analysis/once.py",
        "p.sink in early and p.source not in early",
        "p.sink in early and not p.source",
        ("analysis", "runtime/test_once_per_program.py"),
    ),
    Fault(
        "analysis/doacross.py",
        'if pair.kind == "reduction" else {pair.sink}',
        'if pair.kind == "output" else {pair.sink}',
        ("analysis",),
    ),
    Fault(
        "analysis/lanes.py",
        "if not element.is_single_valued():",
        "if element.is_empty():",
        ("schedule/test_lanes.py", "analysis"),
    ),
    Fault("analysis/copies.py", "here.is_subset(cleared):", "not here.is_empty():", PROOFS),
    Fault(
        "analysis/hardware_bindings.py",
        "if staged and tree.bind is not None:",
        "if staged and tree.bind is None and around:",
        ("analysis", "schedule/promote"),
    ),
    # -- dependences
    Fault(
        "ir/dependences.py",
        '(self.where(source, ">", sink).is_empty and self',
        '(self.where(source, ">", sink).is_empty or self',
        (*DEPENDENCES, *PROOFS),
    ),
    Fault(
        "ir/dependences.py",
        "isl.Map.lex_le_map if decided else isl.Map.lex_lt_map",
        "isl.Map.lex_le_map",
        DEPENDENCES,
    ),
    Fault(
        "ir/dependences.py",
        "isl.Map.lex_le_map if decided else isl.Map.lex_lt_map",
        "isl.Map.lex_lt_map",
        DEPENDENCES,
    ),
    Fault(
        "ir/dependences.py",
        "meeting(self._assigning(to_assigns, 1), self._assigning(behind, 0))",
        "meeting(to_assigns, behind)",
        DEPENDENCES,
    ),
    Fault(
        "ir/dependences.py",
        "pairs.unhidden(pairs.to_reads, pairs.to_reads).union(gathered.subtract(own))",
        "pairs.unhidden(pairs.to_reads, pairs.to_reads)",
        DEPENDENCES,
    ),
    Fault(
        "ir/dependences.py",
        "if first is not None and first == second:",
        "if first is not None and second is not None:",
        DEPENDENCES,
    ),
    Fault(
        "ir/dependences.py",
        'return self.sink if self.kind == "anti" else self.source',
        "return self.source",
        ("ir", "rewrite/views", "rewrite/reductions"),
    ),
    # -- verbs
    Fault(
        "schedule/binding.py",
        "and x.bind not in BLOCKS]",
        "and x.bind in BLOCKS]",
        ("schedule/test_schedule.py", "schedule/test_grid_barriers.py", "analysis"),
    ),
    Fault(
        "schedule/promote/copy_order.py",
        "if not before.apply_range(after).intersect(served).is_empty():",
        "if before.apply_range(after).intersect(served).is_empty():",
        ("schedule/promote",),
    ),
    # -- conditions of rewrites
    Fault("rewrite/inline.py", "if len(types) > 1:", "if len(types) > 2:", ("rewrite/test_inline.py",)),
    Fault(
        "rewrite/common_statements.py",
        "behind = removed if name == kept else name",
        "continue",
        ("rewrite/test_common_statements.py",),
    ),
    Fault(
        "rewrite/common_statements.py",
        "pairs = _differs(wanted, _flow(made, kept, s.name))",
        "pairs = None",
        ("rewrite/test_common_statements.py",),
    ),
    Fault(
        "rewrite/inline.py",
        "if twice is not None:",
        "if twice is None and other:",
        ("rewrite/test_inline.py",),
    ),
    Fault(
        "rewrite/index_set_splitting.py",
        "if not (fed.is_injective() and fed.is_single_valued()):",
        "if not fed.is_single_valued():",
        ("rewrite/test_index_set_splitting.py",),
    ),
    Fault(
        "rewrite/reductions/online_softmax.py",
        'if known or pair.kind == "reduction":',
        'if known or pair.kind != "flow":',
        ("rewrite/reductions/test_online_softmax.py",),
    ),
    Fault(
        "rewrite/reductions/split_reduction.py",
        "for d in range(s.write.map.dim(OUT)))",
        "for d in range(1, s.write.map.dim(OUT)))",
        ("rewrite/reductions/test_split_reduction.py",),
    ),
    Fault(
        "rewrite/reductions/factor_out.py",
        "return zero if first and written.is_equal(",
        "return zero if written.is_equal(",
        ("rewrite/reductions",),
    ),
    Fault(
        "rewrite/storage/privatize_scratch.py",
        "earlier(assigned, reads, dates).range()",
        "earlier(reads, assigned, dates).domain()",
        ("rewrite/storage",),
    ),
    Fault(
        "rewrite/storage/expansion.py",
        "all(_agrees(loop, pair) for pair in web.flow)]",
        "any(_agrees(loop, pair) for pair in web.flow)]",
        ("rewrite/storage",),
    ),
    Fault(
        "rewrite/views/read_through.py",
        "for other in sources[:position]:",
        "for other in sources[:0]:",
        ("rewrite/views",),
    ),
    # -- guards and barriers of generated code
    Fault(
        "codegen/looptree/guards.py",
        "for each in least]",
        "for each in least[:1]]",
        ("codegen/looptree", "codegen/cuda/rewrites"),
    ),
    Fault(
        "codegen/looptree/verify.py",
        "if node.threads > WARP and self.apart is not None:",
        "if node.threads < WARP and self.apart is not None:",
        ("codegen/looptree",),
    ),
    Fault(
        "codegen/looptree/verify.py",
        "if self.depends(value):",
        "if not self.depends(value):",
        ("codegen/looptree",),
    ),
    Fault(
        "codegen/lowering/barrier_statements.py",
        "found.grid.update(added.names if position in tree.grid else ())",
        "found.grid.update(())",
        ("schedule/test_grid_barriers.py", "codegen/lowering"),
    ),
    Fault(
        "codegen/lowering/partition_loops.py",
        "= full.insert_dims(SET, 0, serial[-1])",
        "= every.insert_dims(SET, 0, serial[-1])",
        ("strategy/cuda/gemm/test_register_tiles.py",),
    ),
    Fault(
        "codegen/cuda/rewrites/eliminate_guards.py",
        "bool(np.all(eval(",
        "bool(np.any(eval(",
        ("codegen/cuda/rewrites",),
    ),
    Fault(
        "codegen/cuda/rewrites/warp_sync.py",
        "len(known) == len(extents) and prod(known) % WARP == 0",
        "len(known) == len(extents)",
        ("codegen/cuda/rewrites", "schedule/test_lanes.py"),
    ),
    Fault(
        "codegen/cuda/rewrites/zero_filled_copies.py",
        "case Store(operation=VectorCopy(ahead=True) as copy) if node.target.array in buffers:",
        "case Store(operation=VectorCopy(ahead=True) as copy) if node.target.array not in buffers:",
        ("codegen/cuda/rewrites",),
    ),
    Fault(
        "codegen/cuda/proofs/implied_conditions.py",
        "low is not None and low >= 0 for low in lows",
        "low is not None and low >= -1 for low in lows",
        ("codegen/cuda/rewrites/test_zero_fill.py",),
    ),
    # -- what a strategy leaves alone
    Fault(
        "strategy/claims.py",
        "*(one.names for one in self.passes), *under_maxima",
        "*under_maxima",
        ("strategy/test_claims.py",),
    ),
    Fault(
        "strategy/claims.py",
        "if set(names) <= set(each[0].names)), None)",
        "if set(names) & set(each[0].names)), None)",
        ("strategy/test_claims.py",),
    ),
    Fault(
        "strategy/passes/equal_kernels.py",
        "return tensor in self.fixed,",
        "return True,",
        ("strategy/passes", "strategy/test_plans.py"),
    ),
    Fault(
        "strategy/cpu/nontemporal.py",
        "if alone and not use.read and",
        "if alone and",
        ("schedule/test_nontemporal_verb.py", "runtime/memory/test_results.py"),
    ),
)


def main() -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.mutations", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--named", default="", metavar="TEXT", help="only faults whose line contains this")
    parser.add_argument("--nightly", action="store_true", help="the tests of `make nightly` too")
    options = parser.parse_args()
    chosen = [fault for fault in FAULTS if options.named in fault.name]
    missed = 0
    sound: set[tuple[str, ...]] = set()
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        copy_to(tree)
        for fault in chosen:
            if fault.tests not in sound:
                failed = first_failure(fault.tests, tree, options.nightly)
                if failed is not None:
                    raise RuntimeError(f"{failed} fails without a fault")
                sound.add(fault.tests)
            start = time.perf_counter()
            by = caught_by(fault, tree, options.nightly)
            missed += by is None
            print(f"| `{fault.name}` | {by or 'MISSED'} | {time.perf_counter() - start:.0f} s |", flush=True)
    print(f"{len(chosen) - missed} of {len(chosen)} faults caught")
    return min(missed, 1)


def copy_to(tree: Path) -> None:
    """Copy what tests read of the repository."""
    tree.mkdir()
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, tree / name, ignore=shutil.ignore_patterns("__pycache__", "_build"))
        else:
            shutil.copy(source, tree / name)


def caught_by(fault: Fault, tree: Path, nightly: bool) -> str | None:
    """The test that fails first with a fault in the tree; None if all of the fault's pass.

    Raises:
        ValueError: if the right text does not stand in the file once.
    """
    file = tree / "polyfuse" / fault.file
    text = file.read_text(encoding="utf-8")
    if text.count(fault.right) != 1:
        raise ValueError(f"{fault.file} has {text.count(fault.right)} times {fault.right!r}, not once")
    file.write_text(text.replace(fault.right, fault.wrong), encoding="utf-8")
    try:
        return first_failure(fault.tests, tree, nightly)
    finally:
        file.write_text(text, encoding="utf-8")


def first_failure(tests: tuple[str, ...], tree: Path, nightly: bool) -> str | None:
    """The test that fails first, or that does not end; None if all pass."""
    marked = [] if nightly else ["-m", "not nightly"]
    named = [f"tests/{name}" for name in tests]
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-rfE", "-p", "no:cacheprovider", *marked, *named]
    environment = {**os.environ, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(
            command, cwd=tree, env=environment, capture_output=True, text=True, timeout=LIMIT
        )
    except subprocess.TimeoutExpired:
        return f"a test that takes more than {LIMIT} s"
    if done.returncode == 0:
        return None
    failed = re.search(r"^(?:FAILED|ERROR) tests/(\S+)", done.stdout, re.MULTILINE)
    if failed is None:
        raise RuntimeError(f"pytest could not run: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    return failed.group(1)


if __name__ == "__main__":
    sys.exit(main())
