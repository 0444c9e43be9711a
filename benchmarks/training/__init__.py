"""Training steps of whole networks: polyfuse beside torch eager, torch.compile and JAX, from the same weights.

networks        each network once, as a function of a side's operations
by_polyfuse, by_torch, by_jax    the operations, and a step: forward pass, gradients, update
measured        one network in a process of its own: results compared, then times in turns
__main__        all of them, as a table
"""
