//! Any 64 bytes as a submission queue entry, and any bytes as the data of a command: no panic, and
//! every step stays within what the host described and the namespace has.

use std::collections::BTreeMap;
use std::sync::Arc;

use iwarp_nvmf::target::{
    CapsuleLimits, Namespace, NamespaceInfo, PIECE_BYTES, Queue, Step, Subsystem, SubsystemInfo, Target,
    TargetLimits,
};
use iwarp_nvmf::wire::SubmissionQueueEntry;
use iwarp_nvmf::wire::fabrics::{
    CNTLID_DYNAMIC, Connect, ConnectData, DISCOVERY_NQN, property, property_set,
};
use iwarp_nvmf::wire::sgl::SglDescriptor;
use proptest::prelude::*;
use zerocopy::{FromBytes, IntoBytes};

const NQN: &str = "nqn.2014-08.org.example:disk";
const BLOCKS: u64 = 1000;

fn target() -> Arc<Target> {
    let limits = TargetLimits {
        controllers: 8,
        io_queues: 4,
        queue_entries: 16,
        transfer_bytes: 64 << 10,
        ..TargetLimits::default()
    };
    let info = NamespaceInfo {
        backend: 0,
        block_shift: 9,
        blocks: BLOCKS,
        read_only: false,
        uuid: [7; 16],
        nguid: [8; 16],
    };
    let namespaces = BTreeMap::from([(1, Namespace::new(info))]);
    let subsystem = SubsystemInfo { nqn: NQN.to_owned(), ..SubsystemInfo::default() };
    let subsystems = vec![Subsystem::new(subsystem, namespaces)];
    Arc::new(Target::new(limits, subsystems, vec!["10.0.0.2:4420".parse().expect("an address")]))
}

fn queues() -> Vec<Queue> {
    let target = target();
    let connect = |qid, cntlid, nqn: &str| {
        let mut queue = Queue::new(target.clone(), qid, 16);
        let mut entry = Connect { recfmt: 0, qid, sqsize: 15, cattr: 0, kato_ms: 0 }.entry(1);
        entry.sgl1 = SglDescriptor::keyed(0, 1024, 1, false);
        let data = ConnectData::new([1; 16], cntlid, nqn, "nqn.2014-08.org.example:host");
        queue.start(0, &entry, CapsuleLimits { bytes: 0, now_ms: 0 });
        queue.received(&entry, data.as_bytes(), 0);
        let enable = property_set(1, property::CC, property::CC_EN | property::CC_ENTRY_SIZES);
        queue.start(0, &enable, CapsuleLimits { bytes: 0, now_ms: 0 });
        queue
    };
    let admin = connect(0, CNTLID_DYNAMIC, NQN);
    let cntlid = admin.controller().expect("connected").cntlid();
    let io = connect(1, cntlid, NQN);
    assert!(io.controller().is_some());
    vec![admin, io, connect(0, CNTLID_DYNAMIC, DISCOVERY_NQN), Queue::new(target.clone(), 2, 16)]
}

/// Fails if a step exceeds the capsule, the descriptor or the namespace.
fn check(step: &Step, capsule_bytes: u32) -> Result<(), TestCaseError> {
    match step {
        Step::ToHost { data, pointer } => {
            prop_assert_eq!(data.len() as u32, pointer.length().min(PIECE_BYTES))
        }
        Step::FromHost { pointer, bytes } => prop_assert!(*bytes <= pointer.length() && *bytes <= 4096),
        Step::Io { command, pointer } => {
            let ranges = [(command.offset, command.bytes)];
            for (offset, bytes) in ranges.iter().chain(&command.ranges) {
                prop_assert!(offset.checked_add(*bytes).is_some_and(|end| end <= BLOCKS << 9));
            }
            if let Some(pointer) = pointer {
                prop_assert_eq!(u64::from(pointer.length()), command.bytes);
                let in_capsule = matches!(pointer, iwarp_nvmf::wire::sgl::DataPointer::Capsule { .. });
                prop_assert!(!in_capsule || pointer.length() <= capsule_bytes);
            }
        }
        Step::Respond(_) | Step::Held | Step::Authenticating | Step::End => {}
    }
    Ok(())
}

/// An opcode that exists more often than chance has it, and mostly a valid PSDT.
fn entry() -> impl Strategy<Value = SubmissionQueueEntry> {
    const OPCODES: &[u8] = &[0, 1, 2, 5, 6, 8, 9, 0x0a, 0x0c, 0x18, 0x7f];
    const SGL: &[u8] = &[0x40, 0x4f, 0x01, 0x00, 0x30];
    const LENGTHS: &[u32] = &[512, 1024, 4096];
    let fields = (
        any::<[u8; 32]>(),
        any::<[u8; 32]>(),
        prop_oneof![4 => prop::sample::select(OPCODES), 1 => any::<u8>()],
        prop_oneof![4 => prop::sample::select(SGL), 1 => any::<u8>()],
        prop_oneof![3 => 0u32..3, 1 => any::<u32>()],
        prop_oneof![prop::sample::select(LENGTHS), any::<u32>()],
        (prop_oneof![0u32..32, any::<u32>()], prop_oneof![0u32..2, any::<u32>()]),
    );
    fields.prop_map(|(low, high, opcode, sgl, nsid, length, (dword10, dword11))| {
        let bytes: Vec<u8> = low.into_iter().chain(high).collect();
        let mut entry = SubmissionQueueEntry::read_from_bytes(&bytes).expect("64 bytes");
        (entry.opcode, entry.nsid, entry.sgl1.identifier) = (opcode, nsid.into(), sgl);
        entry.flags = if entry.flags < 200 { 0x40 } else { entry.flags };
        entry.sgl1.length_key[..4].copy_from_slice(&length.to_le_bytes());
        entry.sgl1.address = u64::from(entry.sgl1.address.get() as u8).into();
        entry.set_dword(10, dword10);
        entry.set_dword(11, dword11);
        entry
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn every_step_stays_inside(
        entries in prop::collection::vec((entry(), 0u32..=4096, prop::collection::vec(any::<u8>(), 0..4096)), 1..40)
    ) {
        for mut queue in queues() {
            for (token, (entry, bytes, data)) in (0..).zip(&entries) {
                let capsule = CapsuleLimits { bytes: *bytes, now_ms: 1 };
                let step = queue.start(token, entry, capsule);
                check(&step, *bytes)?;
                if let Step::FromHost { bytes: wanted, .. } = step {
                    let data = data.get(..wanted as usize).unwrap_or(data);
                    check(&queue.received(entry, data, 1), *bytes)?;
                }
            }
        }
    }

    /// The order of steps of three queues is any: capsules start while the data of others is on its
    /// way, the data arrives in any order, and queues end. Every controller has its admin queue,
    /// and nothing is left.
    #[test]
    fn any_order_of_steps_leaves_every_controller_with_its_queue(
        steps in prop::collection::vec((0usize..3, 0u8..8, any::<prop::sample::Index>()), 1..120)
    ) {
        let (target, mut all) = (target(), Vec::new());
        for qid in [0, 0, 1] {
            all.push((Queue::new(target.clone(), qid, 16), Vec::new()));
        }
        for (number, (at, step, pick)) in steps.into_iter().enumerate() {
            let (queue, in_flight) = &mut all[at];
            let (qid, now_ms) = (queue.qid(), number as u64);
            match step {
                0..=2 => {
                    let mut entry = Connect { recfmt: 0, qid, sqsize: 15, cattr: 0, kato_ms: 1 }.entry(number as u16);
                    entry.sgl1 = SglDescriptor::keyed(0, 1024, 1, false);
                    if let Step::FromHost { .. } = queue.start(0, &entry, CapsuleLimits { bytes: 0, now_ms }) {
                        in_flight.push(entry);
                    }
                }
                3..=5 if !in_flight.is_empty() => {
                    let entry = in_flight.swap_remove(pick.index(in_flight.len()));
                    let cntlid = if qid == 0 { CNTLID_DYNAMIC } else { 1 };
                    let data = ConnectData::new([1; 16], cntlid, NQN, "nqn.2014-08.org.example:host");
                    queue.received(&entry, data.as_bytes(), now_ms);
                }
                6 => {
                    let enable = property_set(1, property::CC, property::CC_EN | property::CC_ENTRY_SIZES);
                    queue.start(0, &enable, CapsuleLimits { bytes: 0, now_ms });
                }
                _ if pick.index(4) == 0 => *queue = Queue::new(target.clone(), qid, 16),
                _ => target.expire_keep_alive(now_ms),
            }
            target.check();
            let listed = target.controllers();
            let owned = all.iter().filter(|(queue, _)| queue.qid() == 0).filter_map(|(queue, _)| queue.controller());
            let live = owned.filter(|one| !one.is_ended()).count();
            prop_assert_eq!(listed.len(), live, "every controller has one owner");
        }
        drop(all);
        prop_assert!(target.controllers().is_empty());
    }
}
