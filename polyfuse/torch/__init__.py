"""The backend "polyfuse" of torch.compile, a page on what it did with a model, and nests as operators of torch."""

from polyfuse.torch.custom_op import custom_op
from polyfuse.torch.dynamo import backend
from polyfuse.torch.page import explain

__all__ = ["backend", "custom_op", "explain"]
