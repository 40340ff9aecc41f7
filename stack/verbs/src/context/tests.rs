//! Messages to a core that name what their context does not have.

use ironwarp_port::memory::{MemoryConfig, pair};

use super::*;
use crate::core_loop::channel::FirstStep;
use crate::{Completion, Config, QpAttr, Stack};

/// Every slot is tried: those of another context, those that are empty, and those that no table
/// has.
#[test]
fn a_message_that_names_nothing_of_its_context_has_no_effect() {
    let (port, _other) = pair(&MemoryConfig::default(), &MemoryConfig::default());
    let config = Config::in_memory("10.0.0.1/24").unwrap();
    let (stack, mut worker) = Stack::builder(config).memory_port(port).build_one().unwrap();
    let [mut owner, mut other] = [stack.context().unwrap(), stack.context().unwrap()];
    let (pd, cq) = (owner.alloc_pd(), owner.create_cq(4).unwrap());
    let srq = owner.create_srq(pd, 4, 1).unwrap();
    let qp = owner.create_qp(pd, &QpAttr { srq: Some(srq), ..QpAttr::new(cq) }).unwrap();
    owner.connect(qp, "10.0.0.2:1".parse().unwrap(), b"").unwrap();
    let memory = owner.register(pd, crate::AlignedBuf::pages(8).unwrap(), Access::LOCAL_WRITE).unwrap();
    let (_, target) = owner.mem.local_word(&memory, 0).unwrap();
    worker.poll(1);
    let before = worker.resource_usage();
    for slot in [0, 1, u32::MAX] {
        for message in [
            ControlMessage::StartQp { slot, first: FirstStep::Abort },
            ControlMessage::CreateCq { slot },
            ControlMessage::CreateSrq { slot },
            ControlMessage::ResizeCq { slot },
            ControlMessage::ArmSrq { slot, limit: 4, arming: 1 },
            ControlMessage::DestroySrq { slot },
            ControlMessage::DestroyQp { slot, in_order: false },
            ControlMessage::DestroyCq { slot },
            ControlMessage::Reject { slot, generation: 0 },
            ControlMessage::Disconnect { slot },
            ControlMessage::Abort { slot },
            ControlMessage::SetRemoteAccess { slot, granted: Access::empty() },
            ControlMessage::Atomic { cq: slot, wr_id: 0, target, operation: AtomicOp::add(1) },
        ] {
            other.send_control(0, message).unwrap();
        }
    }
    (0..16).for_each(|_| {
        worker.poll(1);
    });
    assert_eq!(worker.resource_usage(), before);
    assert_eq!([owner.next_notification(0), other.next_notification(0)].map(|one| one.is_none()), [true; 2]);
    owner.atomic(cq, 7, (&memory, 0), &AtomicOp::add(1)).unwrap();
    worker.poll(1);
    let mut done = [Completion::default(); 2];
    assert_eq!((owner.poll_cq(cq, &mut done).unwrap(), done[0].original()), (1, Some(0)));
}
