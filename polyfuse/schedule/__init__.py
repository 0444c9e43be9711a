"""Schedules and their verbs, one family a file."""

from polyfuse.schedule.schedule import VERBS, Schedule, Step

__all__ = ["VERBS", "Schedule", "Step"]
