//! Words shared out among cores that call each other: real threads, mailboxes, sums and chains that
//! must be exact.
#![cfg(not(loom))]

use ironwarp_mem::{
    Access, AccessScope, AlignedBuf, AtomicCall, AtomicOp, AtomicReply, AtomicTarget, CoreMem, MemLimits,
    MemTable, Region, SHARE_AFTER_MAX,
};
use ironwarp_rings::mailbox::{self, Mailboxes};
use ironwarp_types::{CoreId, PdId, QpNum};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

const STREAM: AccessScope = AccessScope::new(PdId(1), QpNum(1));
const CORES: usize = 2;
const WORDS: usize = 16;
/// One line for each word, so that both cores own some.
const WORD_STRIDE: usize = 64;
const CREDITS: usize = 32;
/// Additions altogether: each core gives every word as many.
const ADDITIONS: usize = if cfg!(miri) { 96 } else { 1_000_000 };
const _: () = assert!(ADDITIONS.is_multiple_of(CORES * WORDS));
/// Calls of the other core after which an owner shares a line: at the first, and in the middle.
const AFTER: &[u8] = if cfg!(miri) { &[1, 2] } else { &[1, 16, SHARE_AFTER_MAX] };

/// A core that asks for operations and answers for the words that are its own.
struct Core<'a> {
    mem: CoreMem,
    mailboxes: Mailboxes<AtomicCall, AtomicReply>,
    region: &'a Region,
}

impl Core<'_> {
    fn target(&self, word: usize) -> AtomicTarget {
        let to = self.region.base_to() + (word * WORD_STRIDE) as u64;
        AtomicTarget { stag: self.region.stag(), to, scope: STREAM, need: Access::REMOTE_ATOMIC }
    }

    /// Runs the operation, or mails it: `None` when no credit was left, the original value when it
    /// is known at once. A shared word waits for earlier calls, as in a stream: one of them may be
    /// for this word.
    fn start(&mut self, word: usize, operation: AtomicOp) -> Option<Option<u64>> {
        let target = self.target(word);
        match self.mem.word(&target).expect("a live word").claim() {
            Ok(claimed) if claimed.is_shared() && self.mailboxes.outstanding() > 0 => None,
            Ok(claimed) => Some(Some(claimed.apply(&operation).unwrap())),
            Err(owner) => {
                let call = AtomicCall::new(word as u64, &target, operation);
                self.mailboxes.call(owner.0, call).is_ok().then_some(None)
            }
        }
    }

    /// The rest of an iteration.
    fn poll(&mut self, mut on_reply: impl FnMut(usize, u64)) {
        let mem = &self.mem;
        self.mailboxes.serve(|_, call| call.run(mem));
        self.mailboxes
            .replies(|_, reply| on_reply(reply.token as usize, reply.outcome.expect("a live word")));
        self.mem.quiesce();
        thread::yield_now();
    }
}

/// Runs `work` on each core in a thread of its own, answering until all are done. Gives what the
/// words hold then. Owners share a line after `share_after` calls of the other core.
fn on_every_core<R: Send>(
    share_after: u8,
    work: impl Fn(&mut Core<'_>, usize) -> R + Sync,
) -> (Vec<R>, Vec<u64>) {
    let limits = MemLimits { regions_max: 16, cores_max: CORES as u16 };
    let table = MemTable::with_secret(limits, [1, 2]).expect("a table");
    table.share_lines_after(share_after);
    let words = AlignedBuf::zeroed(WORDS * WORD_STRIDE, 64).expect("memory");
    let access = Access::LOCAL_WRITE | Access::REMOTE_ATOMIC;
    let region = table.register(PdId(1), words, access).expect("a region");
    let resting = AtomicUsize::new(0);
    let outcomes = thread::scope(|scope| {
        let (work, region, resting) = (&work, &region, &resting);
        let cores: Vec<_> = mailbox::mesh(CORES, CREDITS)
            .into_iter()
            .enumerate()
            .map(|(name, mailboxes)| {
                let mem = table.core(CoreId(name as u16)).expect("a free core");
                scope.spawn(move || {
                    let mut core = Core { mem, mailboxes, region };
                    let outcome = work(&mut core, name);
                    assert_eq!(core.mailboxes.outstanding(), 0);
                    resting.fetch_add(1, Ordering::AcqRel);
                    while resting.load(Ordering::Acquire) < CORES {
                        core.poll(|_, _| unreachable!("nothing was asked"));
                    }
                    outcome
                })
            })
            .collect();
        cores.into_iter().map(|core| core.join().expect("a core that ran")).collect()
    });
    let words = (0..WORDS).map(|word| region.load_u64_acquire(word * WORD_STRIDE).expect("in range"));
    (outcomes, words.collect())
}

/// RFC7306-5-01, RFC7306-5.3-01 and RFC7306-5.4-02: a million additions by two cores to sixteen
/// words, each word owned by one of them. Every addition saw a value that no other saw, and none is
/// missing from the sum.
#[test]
fn a_million_additions_from_two_cores_lose_none() {
    million_additions(0);
}

/// The same while the owners share their lines, at the first call or in the middle.
#[test]
fn additions_while_lines_become_shared_lose_none() {
    AFTER.iter().copied().for_each(million_additions);
}

fn million_additions(share_after: u8) {
    const EACH: usize = ADDITIONS / CORES;
    let (seen, words) = on_every_core(share_after, |core, _| {
        let mut originals: Vec<Vec<u64>> = vec![vec![]; WORDS];
        let mut started = 0;
        while started < EACH || core.mailboxes.outstanding() > 0 {
            for _ in 0..CREDITS.min(EACH - started) {
                let word = started % WORDS;
                let Some(original) = core.start(word, AtomicOp::add(1)) else { break };
                originals[word].extend(original);
                started += 1;
            }
            core.poll(|word, original| originals[word].push(original));
        }
        originals
    });
    assert_eq!(words, [(ADDITIONS / WORDS) as u64; WORDS]);
    for (word, &sum) in words.iter().enumerate() {
        let of_word = || seen.iter().map(|originals| &originals[word]);
        assert!(of_word().all(|originals| originals.is_sorted_by(|a, b| a < b)), "each core's own order");
        let mut all: Vec<u64> = of_word().flatten().copied().collect();
        all.sort_unstable();
        assert_eq!(all, (0..sum).collect::<Vec<_>>());
    }
}

/// RFC7306-5.1.2-03: two cores advance each word by comparing and swapping. The core that saw the
/// expected value made the step, and nobody else did.
#[test]
fn chains_of_compare_and_swap_have_one_winner_a_link() {
    [0].iter().chain(AFTER).copied().for_each(compare_and_swap_chains);
}

fn compare_and_swap_chains(share_after: u8) {
    // Under Miri each core tries each word once.
    const TRIES: usize = if cfg!(miri) { WORDS } else { ADDITIONS / 20 };
    let (won, words) = on_every_core(share_after, |core, name| {
        let (mut won, mut expected) = ([0u64; WORDS], [0u64; WORDS]);
        // One try a word at a time, so that what is expected is known when the reply comes.
        let mut asked = [false; WORDS];
        let mut tries = 0;
        while tries < TRIES || core.mailboxes.outstanding() > 0 {
            let mut on_reply = |word: usize, original: u64, expected: &mut [u64; WORDS]| {
                let matched = original == expected[word];
                won[word] += u64::from(matched);
                expected[word] = if matched { original + 1 } else { original };
            };
            for word in (0..WORDS).map(|at| (at + name * WORDS / CORES) % WORDS) {
                if tries == TRIES || asked[word] {
                    continue;
                }
                let link = AtomicOp::compare_and_swap(expected[word], expected[word] + 1);
                match core.start(word, link) {
                    Some(Some(original)) => on_reply(word, original, &mut expected),
                    Some(None) => asked[word] = true,
                    None => break,
                }
                tries += 1;
            }
            core.poll(|word, original| {
                asked[word] = false;
                on_reply(word, original, &mut expected);
            });
        }
        won
    });
    let links: Vec<u64> = (0..WORDS).map(|word| won.iter().map(|core| core[word]).sum()).collect();
    assert_eq!(links, words);
    assert!(words.iter().all(|&links| links > 0));
}
