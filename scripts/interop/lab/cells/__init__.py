"""The cells of the matrix, by subject."""

from . import rping, startup, verbs, dropin, faults, endurance, pci, pci_sleep, nvmf_kernel, nvmf, nvmf_faults, nvmf_host, sctp, sctp_programs  # noqa: F401
