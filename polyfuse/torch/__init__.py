"""The backend of `torch.compile(model, backend="polyfuse")`, and a page on what it did with a model."""

from polyfuse.torch.dynamo import backend
from polyfuse.torch.page import explain

__all__ = ["backend", "explain"]
