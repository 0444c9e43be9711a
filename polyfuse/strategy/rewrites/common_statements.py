"""Compute equal values once, where the model expects that this costs less.

    bins = place(x);  counts[bins[i]] += 1;  again = place(x);  sums[again[i]] += y[i]
    ->  bins = place(x);  counts[bins[i]] += 1;                 sums[bins[i]] += y[i]

`np.histogram` called twice on the same numbers finds their bins twice. Temporaries that may be equal have equal keys
(`_key`): those of different keys are never compared. Where values that are kept for longer need more memory at once,
they are computed again, as gradients with a limit of memory ask for; those that fit into the first cache are not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate

from polyfuse.errors import IllegalRewrite
from polyfuse.ir import Nest, Statement
from polyfuse.ir.tree import parts
from polyfuse.machine import Machine
from polyfuse.measure import duration
from polyfuse.rewrite.common_statements import Shared, body_key, form_of, share, writers_in_order
from polyfuse.strategy.candidates import Choose, cheapest
from polyfuse.strategy.cost.counts import Counts
from polyfuse.strategy.fusion.alignments import Searches
from polyfuse.strategy.fusion.price_nest import price
from polyfuse.strategy.remarks import Reason, Remark, refused, weighed

PASS = "common statements"


def computed_once(
    nest: Nest, machine: Machine, choose: Choose = cheapest, searches: Searches | None = None
) -> tuple[Nest, tuple[Remark, ...]]:
    """The nest without the temporaries that hold the values of others, if it is cheaper so; and why."""
    maybe = _with_equal_bodies(nest)
    if not maybe:
        return nest, ()
    counts, small = Counts(nest), machine.levels[0].size
    said: list[Remark] = []
    found = tuple(_shared(nest, maybe, choose, said))
    if found and _most_bytes(found[-1].nest) > _most_bytes(nest):
        held = tuple(each.removed for each in found if counts.tensor_bytes(each.removed) > small)
        names = tuple(s.name for tensor in held for s in nest.writers(tensor))
        line = f"{', '.join(held)}: kept for longer, the equal values take more memory at once."
        said = [refused(PASS, names, Reason.DEARER, f"computed again is {line}")] if held else []
        found = tuple(_shared(nest, [t for t in maybe if t not in held], choose, said))
    if not found:
        return nest, tuple(said)
    known = searches or Searches()
    usual, so = (price(each, machine, known) for each in (nest, found[-1].nest))
    names = tuple(name for each in found for name in each.statements)
    numbers = f"{duration(so)} expected so, {duration(usual)} with each computed"
    taken = choose.takes(PASS, names, so < usual)
    pairs = ", ".join(f"{each.kept} for {each.removed}" for each in found)
    line = f"equal values are computed once: {pairs}"
    text = f"{line}: {numbers}." if taken else f"not taken: {line}; {numbers}."
    said.append(weighed(PASS, names, taken, text, so, usual, choose.wished(PASS, names)))
    return found[-1].nest if taken else nest, tuple(said)


def _with_equal_bodies(nest: Nest) -> list[str]:
    """The temporaries whose writers compute the same of what they read as those of another one, in order."""
    bodies: dict[object, list[str]] = {}
    for tensor, writers in writers_in_order(nest).items():
        known = nest.tensor(tensor)
        if known.role == "temporary":
            key = known.shape, known.dtype, tuple(map(body_key, writers))
            bodies.setdefault(key, []).append(tensor)
    equal = {tensor for some in bodies.values() if len(some) > 1 for tensor in some}
    return [tensor for tensor in writers_in_order(nest) if tensor in equal] if equal else []


def _shared(nest: Nest, maybe: Sequence[str], choose: Choose, said: list[Remark]) -> Iterator[Shared]:
    """The rewrites one after the other, each of the nest that the one before made; remarks on those refused."""
    kept: dict[object, str] = {}
    written = writers_in_order(nest)
    for tensor in maybe:
        writers = written[tensor]
        first = kept.setdefault(_key(nest, tensor, writers), tensor)
        names = tuple(s.name for s in writers)
        if first == tensor or not choose.asks(PASS, names):
            continue
        try:
            made = share(nest, first, tensor)
        except IllegalRewrite as error:
            said.append(refused(PASS, names, Reason.ILLEGAL, str(error)))
            continue
        nest = made.nest
        written = writers_in_order(nest)
        yield made


def _key(nest: Nest, tensor: str, writers: tuple[Statement, ...]) -> object:
    """Equal for temporaries whose writers are equal but for names and read the same other tensors."""
    known = nest.tensor(tensor)
    read = tuple(tuple("" if t == tensor else t for t in s.tensors) for s in writers)
    return known.shape, known.dtype, tuple(map(form_of, writers)), read


def _most_bytes(nest: Nest) -> int:
    """The bytes of the temporaries that hold values at once, at most, with the nest's parts run one by one."""
    counts, every = Counts(nest), parts(nest.order)
    change = [0] * (len(every) + 1)
    for tensor in nest.with_role("temporary"):
        users = counts.users[tensor.name]
        used = [place for place, part in enumerate(every) if not part.members.isdisjoint(users)]
        if used:
            change[used[0]] += counts.tensor_bytes(tensor.name)
            change[used[-1] + 1] -= counts.tensor_bytes(tensor.name)
    return max(accumulate(change), default=0)
