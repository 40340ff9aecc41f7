//! Stock smoltcp over a [`Port`]: the baseline of another TCP in user space on the same device.
//!
//! One stream without Nagle's algorithm; everything else is smoltcp's default. A slice has nodes and a connection of its
//! own, so it includes neither end's earlier state. The addresses differ from those of the stack, which drops frames of a
//! slice that are still in a ring. smoltcp computes every checksum in software.

mod device;
mod node;

use ironwarp_port::Port;

use super::stream;
use crate::{Case, ServerSlice, Slice, StopCondition, StopSignal};
use node::Node;

/// The client's part of a slice. Also returns the bytes that the server must wait for. `number`
/// differs from slice to slice.
pub fn client<P: Port>(
    port: &mut P,
    case: &Case,
    until: StopCondition<'_>,
    number: &mut u64,
) -> (Slice, u64) {
    *number += 1;
    let Some(mut node) = Node::connect(port, *number - 1) else {
        // Nothing could be sent.
        return (Slice { errors: 1, ..Slice::default() }, 0);
    };
    let Ok(outcome) = stream::client(&mut node, case, until);
    outcome
}

/// The server's part of a slice.
pub fn server<P: Port>(port: &mut P, case: &Case, stop: &StopSignal) -> ServerSlice {
    let Ok(server) = stream::server(&mut Node::server(port), case, stop);
    server
}

#[cfg(test)]
mod tests;
