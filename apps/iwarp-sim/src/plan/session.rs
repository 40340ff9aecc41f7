//! What one session is to do: how much of what, and how it ends.

use ironwarp::CompletionOpcode;
use ironwarp_types::{Nanos, SeededEntropy};

use super::attack::Attack;
use super::bad_request::BadRequest;

/// How a session ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ending {
    /// One side disconnects when both have done everything.
    Graceful {
        /// Which side.
        by: usize,
    },
    /// One side disconnects after so many requests of its own, whatever the other does.
    Early {
        /// Which side.
        by: usize,
        /// Its requests before that.
        after: u64,
    },
    /// One side gives its queue pair up after so many requests of its own.
    Destroy {
        /// Which side.
        by: usize,
        /// Its requests before that.
        after: u64,
    },
    /// The responder refuses.
    Reject,
    /// One side posts a request that ends the connection, after so many of its own.
    BadRequest {
        /// Which side.
        by: usize,
        /// Its requests before that.
        after: u64,
        /// What it does.
        bad_request: BadRequest,
    },
    /// The initiator is a hostile host, which speaks well for so many messages and then does this.
    Attack {
        /// Messages before that.
        after: u64,
        /// What it does.
        attack: Attack,
    },
}

/// In what order a host places the segments of tagged messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Placement {
    /// As they were sent.
    InOrder,
    /// Those beyond a gap too, save for the last of a message.
    OutOfOrder,
}

/// What one session is to do. Rates are requests in a million.
#[derive(Clone, Debug)]
pub struct SessionPlan {
    /// Sets its bytes apart from those of others.
    pub key: u64,
    /// The hosts of the initiator and the responder.
    pub hosts: [usize; 2],
    /// Whether they meet by IPv6.
    pub by_v6: bool,
    /// Where the responder listens.
    pub port: u16,
    /// When it begins.
    pub start: Nanos,
    /// How it ends.
    pub ending: Ending,
    /// Requests of each side.
    pub ops: [u32; 2],
    /// Payload bytes of each side; beyond them messages are small.
    pub bytes: usize,
    /// Bytes of the largest message.
    pub bytes_max: usize,
    /// Receives that a side keeps posted.
    pub receives: u32,
    /// Depth of the send queue.
    pub send_depth: u32,
    /// Reads outstanding each way.
    pub reads: u16,
    /// Elements of a list.
    pub sges: usize,
    /// How often Sends, Writes and Reads are chosen, in relation to each other.
    pub weights: [u32; 3],
    /// Requests that tell only failure.
    pub unsignaled_ppm: u32,
    /// Sends that ask for an event.
    pub solicited_ppm: u32,
    /// Requests that wait for earlier Reads, or for everything before them.
    pub fence_ppm: u32,
    /// Requests that are posted together with others.
    pub chain_max: u64,
    /// Requests whose own memory has a tag for them alone, in a million.
    pub local_tag_ppm: u32,
    /// Sides that take their receives from their host's shared queue.
    pub shared: [bool; 2],
    /// How the host of each side places what arrives.
    pub placement: [Placement; 2],
    /// Cores of the host of each side.
    pub cores: [usize; 2],
    /// Whether requests complete when their bytes are copied.
    pub complete_on_copy: bool,
    /// Requests of which a side lends memory, or ends a loan, in a million.
    pub grant_ppm: u32,
    /// Whether there are more sessions than a host may have connections.
    pub over_limits: bool,
}

impl SessionPlan {
    /// The next request's kind.
    pub fn opcode(&self, rng: &mut SeededEntropy) -> CompletionOpcode {
        let [send, write, read] = self.weights.map(u64::from);
        let pick = rng.below(send + write + read);
        match () {
            () if pick < send => CompletionOpcode::Send,
            () if pick < send + write => CompletionOpcode::Write,
            () => CompletionOpcode::Read,
        }
    }

    /// The next message's bytes: none, one, a few, about a segment's, or many, as long as `left` lasts.
    pub fn message_bytes(&self, left: usize, rng: &mut SeededEntropy) -> usize {
        let most = self.bytes_max.min(left.max(SMALL_BYTES));
        let pick = rng.below(100);
        let wanted = match pick {
            0..6 => 0,
            6..12 => 1,
            12..35 => 2 + rng.below(126) as usize,
            35..60 => rng.below(4_000) as usize,
            // Around the edges of segments.
            60..75 => 1_300 * (1 + rng.below(6) as usize) + rng.below(300) as usize,
            75..97 => rng.below(most as u64 / 4 + 1) as usize,
            _ => rng.below(most as u64 + 1) as usize,
        };
        wanted.min(most)
    }
}

/// What messages may have when a session has sent its share.
const SMALL_BYTES: usize = 64;
