"""Schedules and their verbs, one family a file."""

from polyfuse.schedule.schedule import Schedule
from polyfuse.schedule.step import VERBS, Step

__all__ = ["VERBS", "Schedule", "Step"]
