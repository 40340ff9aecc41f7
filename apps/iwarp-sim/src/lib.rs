//! Whole nodes on bad links in virtual time.
//!
//! [`tcp`] has nodes that end at TCP, for curves and for peers that nobody here wrote.
#![forbid(unsafe_code)]

pub mod tcp;
