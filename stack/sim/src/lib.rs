//! A deterministic network in virtual time: event heap, links, faults.
