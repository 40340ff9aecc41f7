//! Atomic operations of many connections on few words, and the history that must be linearizable.
//!
//! Host 0 is the server of the words. It gives each connection several tags of them: the region, a window and a fast
//! region. All other hosts are clients, which post atomic operations, Reads of words, Sends, immediates, and Writes
//! with immediates. A [`history`] records every invocation and completion, and what the server observes in its memory.
//! At the end there must be an order of all effects that explains every result, keeps every stream's order and ends
//! with the contents of memory ([`checker`]).
//!
//! Sources: RFC 7306 s5 (operations and their order), s6 (immediates), s7 (order among messages).

mod app;
mod atomics_oracle;
mod checker;
mod history;
mod word_memory;

pub use app::AtomicsApp;
pub use atomics_oracle::{AtomicsOracle, SharedAtomicsOracle};
