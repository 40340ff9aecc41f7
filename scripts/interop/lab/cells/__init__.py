"""The cells of the matrix, by subject."""

from . import rping, startup, verbs, dropin, faults, endurance, pci, nvmf_kernel, nvmf, nvmf_faults, nvmf_host  # noqa: F401
