"""The cells of the matrix, by subject."""

from . import rping, startup, verbs, faults, endurance  # noqa: F401
