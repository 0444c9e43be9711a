"""Strategies: a cost model, the search for groups of statements, and a program of verbs for each target."""

from polyfuse.strategy.cost import KernelCost, Model, Tiling
from polyfuse.strategy.decisions import Decision, Group, Plan
from polyfuse.strategy.finished import planned_costs, schedule_costs
from polyfuse.strategy.plan import as_written, plan_for

__all__ = [
    "Decision",
    "Group",
    "KernelCost",
    "Model",
    "Plan",
    "Tiling",
    "as_written",
    "plan_for",
    "planned_costs",
    "schedule_costs",
]
