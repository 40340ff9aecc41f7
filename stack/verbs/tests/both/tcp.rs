//! The tests of operations of stacks with both transports, over TCP.

#[path = "../operations.rs"]
mod operations;

mod common {
    pub use crate::common::*;

    use ironwarp::config::TransportKind;

    pub fn joined() -> Pair {
        crate::both::joined(TransportKind::Tcp)
    }
}
