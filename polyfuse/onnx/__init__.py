"""The backend of ONNX's own interface: `polyfuse.onnx.backend.prepare(model).run(inputs)`."""

from polyfuse.onnx.backend import Backend

__all__ = ["Backend"]
