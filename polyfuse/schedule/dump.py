"""Print schedules: polyfuse's own tree, isl's schedule tree, and C-like loops."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import islpy as isl

from polyfuse.ir.nest import Nest
from polyfuse.ir.nest_text import body_text
from polyfuse.ir.tree import Leaf, Loop, Sequence, Tree, to_isl


def tree_text(nest: Nest, tree: Tree) -> str:
    """One line per loop and statement, with what each loop is bound to, its buffers and the barriers."""
    return "\n".join(_lines(nest, tree, 0))


def _lines(nest: Nest, tree: Tree, depth: int) -> list[str]:
    pad = "  " * depth
    match tree:
        case Leaf(name):
            return [f"{pad}{name}: {body_text(nest.statement(name))}"]
        case Loop():
            dates = "; ".join(_date_text(date) for _, date in tree.dates)
            bound = f"  @ {tree.bind}" if tree.bind else ""
            bound += f" of {tree.math} factors" if tree.math != "ieee" else ""
            bound += "  full tiles apart" if tree.apart else ""
            bound += "  memory reused" if tree.reuse else ""
            streams = (f"streams {tensor}" for tensor in tree.streams)
            held = "".join(f"  [{b}]" for b in (*tree.buffers, *tree.fetches, *streams))
            body = _lines(nest, tree.body, depth + 1)
            end = [f"{pad}  {'grid ' if tree.grid else ''}barrier"] if tree.barrier else []
            end += [f"{pad}  handed over in {tree.slots} slots"] if tree.slots else []
            return [f"{pad}for {tree.name}:{bound}{held}    {{ {dates} }}", *body, *end]
        case Sequence():
            lines = []
            for position, child in enumerate(tree.children):
                lines += _lines(nest, child, depth)
                if position in tree.barriers:
                    lines.append(f"{pad}grid barrier" if position in tree.grid else f"{pad}barrier")
            return lines


def _date_text(date: isl.PwAff) -> str:
    text = str(date)
    return text[text.index("{") + 1 : text.rindex("}")].strip().replace("[(", "[").replace(")]", "]")


def tree_to_yaml(nest: Nest, tree: Tree) -> str:
    """The isl schedule tree in isl's block YAML, which isl reads back."""
    schedule = to_isl(tree, nest.domains)
    printer = isl.Printer.to_str(schedule.get_ctx()).set_yaml_style(isl.yaml_style.BLOCK)
    return str(printer.print_schedule(schedule).get_str()).rstrip()


def tree_to_c(nest: Nest, tree: Tree) -> str:
    """The loops as isl's AST generator prints them, in C."""
    build = isl.AstBuild.from_context(nest.context)
    return str(build.node_from_schedule(to_isl(tree, nest.domains)).to_C_str()).rstrip()


TEXTS: Mapping[str, Callable[[Nest, Tree], str]] = {"tree": tree_text, "yaml": tree_to_yaml, "c": tree_to_c}
"""The texts that a tree has by itself, without the verbs that made it."""
