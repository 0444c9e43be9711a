"""Strategies: a cost model, the search for groups of statements, and a program of verbs for each target."""

from polyfuse.strategy.cost import KernelCost, Model, Tiling
from polyfuse.strategy.decisions import Decision, Group, Plan
from polyfuse.strategy.plan import plan_for, schedule_costs

__all__ = ["Decision", "Group", "KernelCost", "Model", "Plan", "Tiling", "plan_for", "schedule_costs"]
