//! Any 64 bytes as a submission queue entry, and any bytes as the data of a command: no panic, and every step stays within
//! what the host described and the namespace has.

use std::collections::BTreeMap;
use std::sync::Arc;

use iwarp_nvmf::target::{
    CapsuleLimits, Namespace, NamespaceInfo, Queue, Step, Subsystem, SubsystemInfo, Target, TargetLimits,
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

fn queues() -> Vec<Queue> {
    let limits = TargetLimits {
        controllers: 8,
        io_queues: 4,
        queue_entries: 16,
        transfer_bytes: 64 << 10,
        capsule_bytes: 4096,
        keep_alive_default_ms: 0,
    };
    let info = NamespaceInfo { backend: 0, block_shift: 9, blocks: BLOCKS, read_only: false, uuid: [7; 16] };
    let namespaces = BTreeMap::from([(1, Namespace::new(info))]);
    let subsystem = SubsystemInfo { nqn: NQN.to_owned(), ..SubsystemInfo::default() };
    let subsystems = vec![Subsystem::new(subsystem, namespaces)];
    let target =
        Arc::new(Target::new(limits, subsystems, vec!["10.0.0.2:4420".parse().expect("an address")]));
    let connect = |qid, cntlid, nqn: &str| {
        let mut queue = Queue::new(target.clone(), qid, 16);
        let mut entry = Connect { recfmt: 0, qid, sqsize: 15, cattr: 0, kato_ms: 0 }.entry(1);
        entry.sgl1 = SglDescriptor::keyed(0, 1024, 1, false);
        let data = ConnectData::new([1; 16], cntlid, nqn, "nqn.2014-08.org.example:host");
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
        Step::ToHost { data, pointer } => prop_assert_eq!(data.len(), pointer.length() as usize),
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
        Step::Respond(_) | Step::Held => {}
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
}
