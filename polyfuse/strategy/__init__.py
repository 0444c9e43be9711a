"""Strategies: a cost model, the search for groups of statements, and a program of verbs for each target."""

from polyfuse.strategy.cost.composite import planned_costs, schedule_costs
from polyfuse.strategy.cost.roofline import KernelCost, Model, Tiling
from polyfuse.strategy.pipeline import as_written, plan_for
from polyfuse.strategy.plan import Decision, Group, Plan
from polyfuse.strategy.remarks import Reason, Remark

__all__ = [
    "Decision",
    "Group",
    "KernelCost",
    "Model",
    "Plan",
    "Reason",
    "Remark",
    "Tiling",
    "as_written",
    "plan_for",
    "planned_costs",
    "schedule_costs",
]
