"""The backend of `torch.compile(model, backend="polyfuse")`, operators of torch made of nests, and an explaining page."""

from polyfuse.torch.custom_op import custom_op
from polyfuse.torch.dynamo import backend
from polyfuse.torch.page import explain

__all__ = ["backend", "custom_op", "explain"]
