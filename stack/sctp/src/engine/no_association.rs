//! Packets without an association: "out of the blue" (RFC 9260 s8.4).
//!
//! INIT and COOKIE ECHO, rules 3 and 4, are in `set_up`. `net` has dropped what is not unicast,
//! rule 1. Replies are limited, since anybody can trigger them.

use ironwarp_port::Port;
use ironwarp_stats::Counter;

use super::Sctp;
use crate::output::{Io, Route};
use crate::packet::{CauseCode, Chunk, ChunkType, PacketView};

impl<P: Port> Sctp<P> {
    pub(super) fn on_no_association(view: PacketView<'_>, route: Route<'_>, io: &mut Io<'_, P>) {
        io.shared.count(Counter::SctpDropNoAssociation);
        let has = |kind| view.chunks().any(|chunk| chunk.kind == kind);
        let is_silent = has(ChunkType::ABORT)
            || !has(ChunkType::SHUTDOWN_ACK)
                && (has(ChunkType::SHUTDOWN_COMPLETE)
                    || has(ChunkType::COOKIE_ACK)
                    || has_stale_cookie(view));
        if is_silent || !io.may_reply() {
            return;
        }
        let route = Route { tag: view.tag, ..route };
        if has(ChunkType::SHUTDOWN_ACK) {
            io.send_shutdown_complete(route, true);
        } else {
            io.send_abort(route, true, None);
        }
    }
}

fn has_stale_cookie(view: PacketView<'_>) -> bool {
    view.chunks().filter_map(|chunk| chunk.parse()).any(|chunk| match chunk {
        Chunk::Error(causes) => causes.has_cause(CauseCode::STALE_COOKIE),
        _ => false,
    })
}
