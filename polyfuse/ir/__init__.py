"""The intermediate representation: tensors, accesses, statements, nests, their order and their dependences."""

from polyfuse.errors.refusals import Instance, Violation
from polyfuse.ir.access import Access
from polyfuse.ir.bindings import Binding
from polyfuse.ir.dependences import Dependences
from polyfuse.ir.nest import Nest
from polyfuse.ir.nest_text import statement
from polyfuse.ir.number_types import DType
from polyfuse.ir.statement import Statement
from polyfuse.ir.tensor import Role, Tensor

__all__ = [
    "Access",
    "Binding",
    "DType",
    "Dependences",
    "Instance",
    "Nest",
    "Role",
    "Statement",
    "Tensor",
    "Violation",
    "statement",
]
