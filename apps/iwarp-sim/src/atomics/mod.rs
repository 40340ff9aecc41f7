//! Atomic operations of many sessions on few words, and the history that must be linearizable.
//!
//! Host 0 is the server of the words. It gives each session several tags of them: the region, a
//! window and a fast region. All other hosts are clients, whose mix of operations has atomic
//! operations, Reads of words, Sends, immediates, and Writes with immediates. A [`history`] records
//! every invocation and completion, and what the server observes in its memory. At the end there
//! must be an order of all effects that explains every result, keeps every stream's order and ends
//! with the contents of memory ([`checker`]).
//!
//! Sources: RFC 7306 s5 (operations and their order), s6 (immediates), s7 (order among messages),
//! s8 (errors).

mod checker;
mod history;
mod requests;
mod server;
mod word_memory;

use ironwarp::{AtomicOp, CompletionOpcode, RemoteMemory, Terminate};
use ironwarp_types::{Entropy, SeededEntropy};

use crate::app::Tag;
use crate::app::{Session, Stage};
use crate::plan::{AtomicsPlan, BadAtomic, BadRequest, Values};
use history::{History, OpKind};
pub use server::WordServer;

/// Tags of the words that a session has: the region itself, a window and a fast region.
pub const NAMES: usize = 3;

/// What all hosts share about the words.
pub struct Words {
    pub plan: AtomicsPlan,
    history: History,
    /// The last known value of each word.
    latest: Vec<u64>,
}

/// A session's use of the words, in one attempt to connect.
#[derive(Default)]
pub struct SessionWords {
    /// Its history stream, once it has one.
    stream: Option<usize>,
    /// The window and the fast region of the server.
    tags: Option<[Tag; 2]>,
    /// The address of the first word by each tag, and an address after the end of their memory.
    bound: Option<([RemoteMemory; NAMES], RemoteMemory)>,
    /// The same, once the binds have completed.
    published: Option<([RemoteMemory; NAMES], RemoteMemory)>,
    /// Which tags were invalidated.
    revoked: [bool; NAMES],
}

/// An operation of a request on the words.
#[derive(Clone, Copy, Debug)]
pub struct WordOp {
    kind: OpKind,
    /// Which of the session's tags it uses.
    name: usize,
    /// Its index in the session's history stream, once it is posted.
    index: usize,
}

impl Words {
    pub fn new(plan: &AtomicsPlan) -> Self {
        Words { plan: plan.clone(), history: History::default(), latest: vec![0; plan.words] }
    }

    /// A request was posted. Nothing has run since.
    pub fn invoke(&mut self, words: &mut SessionWords, op: &mut WordOp) {
        let stream = *words.stream.get_or_insert_with(|| self.history.new_stream());
        op.index = self.history.invoke(stream, op.kind, op.name);
        if words.revoked[op.name] {
            self.history.mark_without_effect(stream, op.index);
        }
    }

    /// A request has read these words.
    pub fn complete(&mut self, words: &SessionWords, op: WordOp, seen: &[u8]) -> Result<(), String> {
        let Some(stream) = words.stream else { return Err(format!("{op:?} was not posted")) };
        let seen = seen.as_chunks::<8>().0.iter().map(|word| u64::from_ne_bytes(*word)).collect::<Vec<_>>();
        let record = &self.history.streams[stream][op.index];
        if record.effect_deadline < record.invoked_at {
            return Err(format!("{record:?} saw {seen:x?} by a tag that was invalid"));
        }
        let (first, count) = op.kind.words();
        self.latest[first..first + count].copy_from_slice(&seen);
        self.history.complete(stream, op.index, seen);
        Ok(())
    }

    fn operation(&self, word: usize, swaps: bool, rng: &mut SeededEntropy) -> AtomicOp {
        let small = self.plan.values == Values::Small;
        // A Swap matches any value, so among small values it could take effect anywhere in the
        // order.
        let kind = rng.below(if swaps && !small { 5 } else { 4 });
        let number = |rng: &mut SeededEntropy| if small { rng.below(8) } else { rng.next_u64() };
        match kind {
            0 | 1 => {
                let masks = [0, 0, 1 << 63, 0x8000_0000_8000_0000, rng.next_u64() & rng.next_u64(), u64::MAX];
                let mask = masks[rng.below(if small { 2 } else { 6 }) as usize];
                AtomicOp::FetchAdd { add: number(rng), mask }
            }
            2 | 3 => {
                let (compare_mask, swap_mask) = if small || rng.chance(400_000) {
                    (u64::MAX, u64::MAX)
                } else {
                    let compare_masks = [0, u64::MAX, rng.next_u64() & rng.next_u64()];
                    (compare_masks[rng.below(3) as usize], rng.next_u64())
                };
                let compare = if rng.chance(800_000) { self.latest[word] } else { number(rng) };
                AtomicOp::CmpSwap { compare, compare_mask, swap: number(rng), swap_mask }
            }
            _ => AtomicOp::Swap { swap: number(rng) },
        }
    }
}

impl SessionWords {
    /// The server's binds have completed.
    pub fn publish(&mut self) {
        self.published = self.bound;
    }

    /// The session is over: frees its tags.
    pub fn release(&mut self) {
        self.tags = None;
    }
}

impl Session {
    /// RFC 7306 s8: the error of an invalidated tag is that of an unknown tag. Notes that the
    /// server has refused a request by such a tag, and returns whether a Terminate says so.
    pub fn is_refused_by(&mut self, side: usize, sent: bool, terminate: Terminate) -> bool {
        let bad_request = BadRequest::Atomic(BadAtomic::Unknown);
        let is_revoked = self.words.revoked.contains(&true);
        let is_refused = is_revoked && terminate == bad_request.terminate() && sent == (side == 1);
        if is_refused {
            self.posted_bad_request.get_or_insert((0, bad_request));
        }
        is_refused
    }

    /// Returns whether the session is over, or established with its tags.
    fn has_words(&self) -> bool {
        let is_up = self.sides.iter().all(|side| side.stage == Stage::Up);
        self.is_over || (is_up && self.words.published.is_some())
    }
}

fn opcode_of(operation: &AtomicOp) -> CompletionOpcode {
    match operation {
        AtomicOp::FetchAdd { .. } => CompletionOpcode::FetchAdd,
        AtomicOp::CmpSwap { .. } => CompletionOpcode::CmpSwap,
        AtomicOp::Swap { .. } => CompletionOpcode::Swap,
    }
}
