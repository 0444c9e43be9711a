"""Tuning: search the strategy's candidates by measurement.

plan --choose--> schedule --executor--> seconds --> Optuna --> the next choice …  the best one is kept
"""

from polyfuse.tune.search import tuned
from polyfuse.tune.trials import Trials

__all__ = ["Trials", "tuned"]
