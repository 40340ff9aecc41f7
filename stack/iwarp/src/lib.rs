//! MPA, DDP and RDMAP.
