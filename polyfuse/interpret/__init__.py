"""The oracle: run a nest in its original order with NumPy. It uses no dependences and no schedule."""

from polyfuse.interpret.run import interpret

__all__ = ["interpret"]
