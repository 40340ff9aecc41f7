"""The cells of the matrix, by subject."""

from . import rping  # noqa: F401
