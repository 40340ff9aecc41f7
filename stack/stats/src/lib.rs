//! Counters declared once, one page a core, readable from outside.
