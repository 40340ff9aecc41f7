//! The fast path beside the general path: two streams that get the same requests, segments and
//! acknowledgements, one with each path, cannot be told apart.

use ironwarp_arch::crc32c;
use ironwarp_arch::one_pass::PrefixCrc;
use proptest::prelude::*;

use super::*;

const AREA: usize = 8192;

const OPCODES: [SendOpcode; 6] = [
    SendOpcode::Send,
    SendOpcode::Write,
    SendOpcode::SendSolicited,
    SendOpcode::SendInvalidate,
    SendOpcode::SendSolicitedInvalidate,
    SendOpcode::Read,
];

/// A request of the application.
#[derive(Clone, Debug)]
struct Post {
    opcode: SendOpcode,
    flags: SendFlags,
    /// Pieces of the source: offset and length.
    list: Vec<(usize, u32)>,
    inline: bool,
    /// The list ends in memory that was revoked.
    revoked: bool,
}

/// A segment of the peer, honest or not.
#[derive(Clone, Debug)]
enum Ulpdu {
    /// The message number relative to the next one, the offset, the queue, the operation, and the
    /// payload's length.
    Send {
        last: bool,
        ahead: u32,
        mo: u32,
        qn: u32,
        opcode: u8,
        bytes: usize,
    },
    Write {
        last: bool,
        at: u64,
        bytes: usize,
    },
    ReadRequest {
        bytes: u32,
    },
    Octets(Vec<u8>),
}

#[derive(Clone, Debug)]
enum Step {
    Post(Post),
    Receive {
        at: usize,
        lens: [u32; 2],
    },
    Pull {
        room: usize,
    },
    /// All octets that were pulled, or all but some.
    Ack {
        without: u64,
    },
    /// FPDUs, of which the last lacks `held` octets until the next step, or has a wrong CRC.
    Arrive {
        ulpdus: Vec<Ulpdu>,
        held: usize,
        bad_crc: bool,
        knows_crc: bool,
    },
}

fn posts() -> impl Strategy<Value = Post> {
    let len = prop_oneof![4 => 0..100u32, 1 => 240..300u32, 2 => 0..2_000u32];
    let list = prop::collection::vec((0..AREA - 2_000, len), 0..3);
    let flags = (prop::bool::weighted(0.8), prop::bool::weighted(0.1), prop::bool::weighted(0.1));
    let opcode = prop_oneof![5 => 0..2usize, 2 => 0..OPCODES.len()];
    (opcode, flags, list, prop::bool::weighted(0.2), prop::bool::weighted(0.02)).prop_map(
        |(opcode, (signaled, fence, local_fence), list, inline, revoked)| {
            let mut flags = SendFlags::empty();
            flags.set(SendFlags::SIGNALED, signaled);
            flags.set(SendFlags::FENCE, fence);
            flags.set(SendFlags::LOCAL_FENCE, local_fence);
            Post { opcode: OPCODES[opcode], flags, list, inline, revoked }
        },
    )
}

fn arriving() -> impl Strategy<Value = Ulpdu> {
    let bytes = prop_oneof![3 => 0..70usize, 1 => 250..600usize];
    let mostly = |value: u32| prop_oneof![30 => Just(value), 1 => 0..4u32];
    let opcode = prop_oneof![20 => Just(3u8), 5 => Just(5), 1 => 0..16u8];
    let last = prop::bool::weighted(0.9);
    prop_oneof![
        8 => (last, mostly(0), mostly(0), mostly(0), opcode, bytes.clone()).prop_map(
            |(last, ahead, mo, qn, opcode, bytes)| Ulpdu::Send { last, ahead, mo, qn, opcode, bytes }
        ),
        3 => (last, 0..AREA as u64 + 9, bytes).prop_map(|(last, at, bytes)| Ulpdu::Write { last, at, bytes }),
        1 => (0..900u32).prop_map(|bytes| Ulpdu::ReadRequest { bytes }),
        1 => prop::collection::vec(any::<u8>(), 0..40).prop_map(Ulpdu::Octets),
    ]
}

fn steps() -> impl Strategy<Value = Step> {
    let held = prop_oneof![4 => Just(0), 1 => 0..40usize];
    let received = (0..AREA - 1_400, [0..700u32, 0..700u32]);
    let ulpdus = prop::collection::vec(arriving(), 1..4);
    prop_oneof![
        4 => posts().prop_map(Step::Post),
        4 => received.prop_map(|(at, lens)| Step::Receive { at, lens }),
        5 => (fpdu::SEGMENT_BYTES_MIN..3_000).prop_map(|room| Step::Pull { room }),
        3 => prop_oneof![Just(0), 0..300u64].prop_map(|without| Step::Ack { without }),
        4 => (ulpdus, held, prop::bool::weighted(0.02), any::<bool>()).prop_map(
            |(ulpdus, held, bad_crc, knows_crc)| Step::Arrive { ulpdus, held, bad_crc, knows_crc }
        ),
    ]
}

/// Two streams over the same regions.
struct Twins {
    fast: Endpoint,
    general: Endpoint,
    /// The memory that is sent.
    source: Region,
    /// The memory of receives and Writes.
    target: Region,
    /// Memory that is gone.
    revoked: Sge,
    sends: u32,
    reads: u32,
    posted: u64,
    /// What the last FPDU lacks.
    held: Vec<u8>,
}

impl Twins {
    fn new(crc: bool, complete_on_copy: bool) -> Self {
        let config = StreamConfig { complete_on_copy, ..config() };
        let fast = Endpoint::started(config, Role::Initiator, crc);
        let memory = fast.table.core(CoreId(1)).unwrap();
        let off = StreamConfig { fast_path: false, ..config };
        let general = Endpoint { memory, ..Endpoint::started(off, Role::Initiator, crc) };
        let (source, target) = (fast.filled(AREA, EVERYTHING), fast.region(AREA, EVERYTHING));
        let revoked = all(&fast.region(16, EVERYTHING));
        let held = Vec::new();
        Twins { fast, general, source, target, revoked, sends: 0, reads: 0, posted: 0, held }
    }

    fn post(&mut self, post: &Post) {
        let mut list: Vec<Sge> =
            post.list.iter().map(|&(at, len)| self.source.slice(at, len).unwrap()).collect();
        if post.revoked {
            list.push(self.revoked);
        }
        self.posted += 1;
        for side in [&mut self.fast, &mut self.general] {
            side.post(self.posted, post.opcode, |wqe| {
                wqe.flags = post.flags;
                at_remote(wqe, &list, (STag(9), 77));
                if post.inline && post.opcode != SendOpcode::Read {
                    wqe.set_inline(&pattern(post.list.len() * 13));
                }
            });
        }
    }

    fn receive(&mut self, at: usize, [first, second]: [u32; 2]) {
        let list =
            [self.target.slice(at, first).unwrap(), self.target.slice(at + first as usize, second).unwrap()];
        self.posted += 1;
        for side in [&mut self.fast, &mut self.general] {
            side.receive(self.posted, &list);
        }
    }

    /// Returns the ULPDU, with numbers that continue those before it.
    fn ulpdu(&mut self, ulpdu: &Ulpdu) -> Vec<u8> {
        let untagged = |last: bool, opcode: u8, [qn, msn, mo]: [u32; 3]| {
            let mut ulpdu = vec![u8::from(last) << 6 | 1, 0x40 | opcode, 0, 0, 0, 0];
            [qn, msn, mo].iter().for_each(|field| ulpdu.extend(field.to_be_bytes()));
            ulpdu
        };
        match *ulpdu {
            Ulpdu::Send { last, ahead, mo, qn, opcode, bytes } => {
                self.sends += u32::from(last);
                let msn = self.sends.max(1) + ahead;
                [untagged(last, opcode, [qn, msn, mo]), pattern(bytes)].concat()
            }
            Ulpdu::Write { last, at, bytes } => {
                let mut ulpdu = vec![0x81 | u8::from(last) << 6, 0x40];
                ulpdu.extend(self.target.stag().0.to_be_bytes());
                ulpdu.extend((self.target.base_to() + at).to_be_bytes());
                [ulpdu, pattern(bytes)].concat()
            }
            Ulpdu::ReadRequest { bytes } => {
                self.reads += 1;
                let mut ulpdu = untagged(true, 1, [1, self.reads, 0]);
                ulpdu.extend([0; 12]);
                ulpdu.extend(bytes.to_be_bytes());
                ulpdu.extend(self.source.stag().0.to_be_bytes());
                ulpdu.extend(self.source.base_to().to_be_bytes());
                ulpdu
            }
            Ulpdu::Octets(ref octets) => octets.clone(),
        }
    }

    /// The octets of a segment: what the last one held back, then whole FPDUs but for `held`
    /// octets.
    fn octets(&mut self, ulpdus: &[Ulpdu], held: usize, bad_crc: bool) -> Vec<u8> {
        let mut octets = core::mem::take(&mut self.held);
        for ulpdu in ulpdus {
            let ulpdu = self.ulpdu(ulpdu);
            octets.extend(framed(&ulpdu));
        }
        if bad_crc && let Some(last) = octets.last_mut() {
            *last ^= 1;
        }
        self.held = octets.split_off(octets.len() - held.min(octets.len()));
        octets
    }

    /// Both streams read the octets, one as TCP lends them in their frame, the other from TCP's
    /// queue, and place the same into the same memory.
    fn arrive(&mut self, octets: &[u8], knows_crc: bool) {
        let before = Endpoint::bytes(&self.target);
        let fast = read_lent(&mut self.fast, octets, knows_crc);
        let placed = Endpoint::bytes(&self.target);
        self.target.write_at(0, &before).unwrap();
        let general = self.general.feed(octets);
        assert_eq!((fast, placed), (general, Endpoint::bytes(&self.target)));
        assert_eq!(self.fast.arrived.available(), self.general.arrived.available());
    }

    fn run(&mut self, step: &Step) {
        match step {
            Step::Post(post) => self.post(post),
            Step::Receive { at, lens } => self.receive(*at, *lens),
            Step::Pull { room } => {
                let [fast, general] = [&mut self.fast, &mut self.general].map(|side| side.pull(*room));
                assert_eq!(fast, general);
            }
            Step::Ack { without } => {
                for side in [&mut self.fast, &mut self.general] {
                    let total = side.pulled.saturating_sub(*without);
                    side.with(|stream, io| stream.on_acked(total, io));
                }
            }
            Step::Arrive { ulpdus, held, bad_crc, knows_crc } => {
                let octets = self.octets(ulpdus, *held, *bad_crc);
                self.arrive(&octets, *knows_crc);
            }
        }
        self.compare();
    }

    fn compare(&mut self) {
        let [fast, general] = [&mut self.fast, &mut self.general].map(|side| {
            side.check();
            let wants_tx = side.with(|stream, io| (stream.wants_tx(io), stream.is_drained(io)));
            let counters = [
                Counter::IwarpRxFpdus,
                Counter::IwarpTxFpdus,
                Counter::IwarpRxSends,
                Counter::IwarpRxWrites,
                Counter::IwarpRxReadRequests,
                Counter::IwarpWrsFlushed,
                Counter::IwarpLocalErrors,
            ];
            let counted = counters.map(|counter| side.counted(counter));
            let completions = (side.log.sends.clone(), side.log.receives.clone());
            (side.stream.state(), side.stream.error(), wants_tx, counted, completions)
        });
        assert_eq!(fast, general);
    }
}

/// Reads octets as the core loop reads a fast segment: in their frame, unless earlier octets wait
/// or the stream reads from the queue only. What it leaves is queued.
fn read_lent(side: &mut Endpoint, octets: &[u8], knows_crc: bool) -> Result<(), StreamError> {
    if side.arrived.available() > 0 || !side.stream.reads_lent_bytes() {
        return side.feed(octets);
    }
    let covered = fpdu::covered_bytes(octets);
    let crc = match side.stream.sum_with_crc(octets) {
        Some((sum, crc)) => {
            assert_eq!(checksum::fold(sum), checksum::fold(checksum::sum(octets)));
            crc
        }
        None if knows_crc => PrefixCrc { bytes: covered as u32, crc: crc32c(&octets[..covered]) },
        None => PrefixCrc::default(),
    };
    let taken = side.with(|stream, io| stream.on_readable_fast(octets, crc, io));
    side.arrived.push(&octets[taken..]);
    side.check();
    side.stream.error().map_or(Ok(()), Err)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_500))]

    /// Units, placements, completions, counters and ends are the same, whatever is posted and
    /// arrives. RFC 5040 s5.3 and s5.5; RFC 5041 s5.2 and s5.3; RFC 5044 s4.4.
    #[test]
    fn the_fast_path_cannot_be_told_from_the_general_path(
        crc in prop::bool::weighted(0.8),
        complete_on_copy in prop::bool::weighted(0.2),
        steps in prop::collection::vec(steps(), 1..50),
    ) {
        let mut twins = Twins::new(crc, complete_on_copy);
        steps.iter().for_each(|step| twins.run(step));
    }
}

/// Otherwise the property above would compare the general path with itself.
#[test]
fn a_send_takes_every_shortcut_if_the_fast_path_is_on() {
    let mut twins = Twins::new(true, false);
    for side in [&mut twins.fast, &mut twins.general] {
        let FastPaths { completes, on, places } = side.stream.fast;
        assert_eq!([completes == 1, on, places], [side.stream.config.fast_path; 3]);
    }
    twins.receive(0, [64, 0]);
    for ulpdu in [
        Ulpdu::Send { last: true, ahead: 0, mo: 0, qn: 0, opcode: 3, bytes: 64 },
        Ulpdu::Write { last: true, at: 0, bytes: 64 },
        Ulpdu::Write { last: false, at: 64, bytes: 600 },
    ] {
        let octets = twins.ulpdu(&ulpdu);
        assert!(twins.fast.with(|stream, io| stream.place_fast(&octets, io)).is_some(), "{ulpdu:?}");
        assert!(twins.general.with(|stream, io| stream.place_fast(&octets, io)).is_none(), "{ulpdu:?}");
    }
    let flags = SendFlags::SIGNALED;
    for bytes in [64, 3 * SEGMENT_BYTES as u32] {
        let list = vec![(0, bytes)];
        twins.post(&Post { opcode: SendOpcode::Send, flags, list, inline: false, revoked: false });
    }
    let mut room = [0; SEGMENT_BYTES];
    twins.fast.with(|_, io| io.sends.refresh());
    assert!(twins.fast.with(|stream, io| stream.fill_fast::<_, true>(&mut room, io)).is_some());
    twins.fast.pull(SEGMENT_BYTES);
    assert_eq!(twins.fast.with(|stream, io| stream.fill_middle(&mut room, io)), Some(SEGMENT_BYTES));
}
