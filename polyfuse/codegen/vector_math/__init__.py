"""exp, log, tanh, erf, pow, sin and cos on vector lanes, as LLVM code."""
