//! The plan of one session: its operations, and how it ends.

use ironwarp::{CompletionOpcode, Extensions};
use ironwarp_types::{Nanos, SeededEntropy};

use super::attack::Attack;
use super::bad_request::BadRequest;

/// How a session ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ending {
    /// One side disconnects after both have done everything.
    Graceful {
        by: usize,
    },
    /// One side disconnects after this many of its own requests, whatever the other does.
    Early {
        by: usize,
        after: u64,
    },
    /// One side destroys its queue pair after this many of its own requests.
    Destroy {
        by: usize,
        after: u64,
    },
    Reject,
    /// One side posts a bad request after this many of its own requests.
    BadRequest {
        by: usize,
        after: u64,
        bad_request: BadRequest,
    },
    /// The initiator is a hostile host, which sends this many valid messages and then attacks.
    Attack {
        after: u64,
        attack: Attack,
    },
}

impl Default for Ending {
    fn default() -> Self {
        Ending::Graceful { by: 0 }
    }
}

/// The order in which a host places the segments of tagged messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Placement {
    /// In the order in which they were sent.
    #[default]
    InOrder,
    /// Also those after a gap, except the last one of a message.
    OutOfOrder,
}

/// The plan of one session. Rates are requests in a million.
#[derive(Clone, Debug, Default)]
pub struct SessionPlan {
    /// Makes its byte patterns differ from those of other sessions.
    pub key: u64,
    /// The hosts of the initiator and the responder.
    pub hosts: [usize; 2],
    pub by_v6: bool,
    pub port: u16,
    pub start: Nanos,
    pub ending: Ending,
    /// Requests of each side.
    pub ops: [u32; 2],
    /// Payload bytes of each side; beyond them messages are small.
    pub bytes: usize,
    pub bytes_max: usize,
    /// Receives that a side keeps posted.
    pub receives: u32,
    pub send_depth: u32,
    pub reads: u16,
    /// Most elements of a scatter/gather list.
    pub sges: usize,
    /// Relative frequencies of Sends, Writes and Reads.
    pub weights: [u32; 3],
    /// Unsignaled requests.
    pub unsignaled_ppm: u32,
    /// Solicited Sends.
    pub solicited_ppm: u32,
    /// Requests with a read fence or a local fence.
    pub fence_ppm: u32,
    /// Most requests that are posted together.
    pub chain_max: u64,
    /// Requests whose local buffer has a tag of its own.
    pub local_tag_ppm: u32,
    /// Sides that use their host's shared receive queue.
    pub shared: [bool; 2],
    pub placement: [Placement; 2],
    /// Number of cores of the host of each side.
    pub cores: [usize; 2],
    /// Whether requests complete when their bytes are copied.
    pub complete_on_copy: bool,
    /// Requests that grant memory or invalidate a grant.
    pub grant_ppm: u32,
    /// Whether there are more sessions than a host allows connections.
    pub over_limits: bool,
    /// Whether links may be cut for longer than its transport tries.
    pub may_be_cut_off: bool,
    /// What it carries, if not what all connections of its hosts do.
    pub extensions: Option<Extensions>,
    /// Its operations on the words of its responder, in place of other ones.
    pub words: Option<WordsMix>,
}

/// The operations of a session on words.
#[derive(Clone, Debug)]
pub struct WordsMix {
    /// Relative frequencies of atomic operations, Reads of words and messages.
    pub weights: [u64; 3],
    /// The server invalidates one of the session's tags after the client has posted this many
    /// requests. A client that uses the tag after that gets a Terminate.
    pub revoked: Option<(u64, usize)>,
}

impl SessionPlan {
    /// Draws the next operation.
    pub fn opcode(&self, rng: &mut SeededEntropy) -> CompletionOpcode {
        let [send, write, read] = self.weights.map(u64::from);
        let pick = rng.below(send + write + read);
        match () {
            () if pick < send => CompletionOpcode::Send,
            () if pick < send + write => CompletionOpcode::Write,
            () => CompletionOpcode::Read,
        }
    }

    /// Draws the next message's length: 0, 1, a few, about a segment's, or many bytes, as long as
    /// `left` lasts.
    pub fn message_bytes(&self, left: usize, rng: &mut SeededEntropy) -> usize {
        let most = self.bytes_max.min(left.max(SMALL_BYTES));
        let pick = rng.below(100);
        let wanted = match pick {
            0..6 => 0,
            6..12 => 1,
            12..35 => 2 + rng.below(126) as usize,
            35..60 => rng.below(4_000) as usize,
            // Around multiples of a segment's size.
            60..75 => 1_300 * (1 + rng.below(6) as usize) + rng.below(300) as usize,
            75..97 => rng.below(most as u64 / 4 + 1) as usize,
            _ => rng.below(most as u64 + 1) as usize,
        };
        wanted.min(most)
    }
}

/// Largest messages after a session has sent its share.
const SMALL_BYTES: usize = 64;
