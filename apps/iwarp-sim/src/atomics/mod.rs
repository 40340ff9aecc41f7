//! Atomic operations of many connections on few words, and the history that they must make.
//!
//! Host 0 keeps the words, and several names for them: a region, and for each connection a window and a fast region. All
//! other hosts call it, and post operations, Reads of words, Sends, immediates, and Writes with immediates. Whatever is
//! asked and answered stands in a [`history`], beside what the keeper itself sees in its memory; at the end there must be an
//! order of all effects that explains every answer, keeps every connection's own order and ends with what memory holds
//! ([`checker`]).
//!
//! Sources: RFC 7306 s5 (operations and their order), s6 (immediates), s7 (order among messages).

mod app;
mod atomics_oracle;
mod checker;
mod history;
mod word_memory;

pub use app::AtomicsApp;
pub use atomics_oracle::{AtomicsOracle, SharedAtomicsOracle};
