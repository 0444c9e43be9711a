"""The oracle: runs a nest in its original order with NumPy. It knows no dependences and no schedule."""

from polyfuse.interpret.run import interpret

__all__ = ["interpret"]
