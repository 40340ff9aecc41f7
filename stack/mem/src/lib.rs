//! Registered memory: regions, STag table, access checks, placement.
