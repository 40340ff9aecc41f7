//! Requests of RFC 7306 that break its rules, from a fake peer: they end their connection and no
//! other.

use crate::common;

use common::contents;
use common::messages::{fpdu, untagged};
use common::peer::Scene;
use ironwarp::{Access, AlignedBuf, CompletionStatus, Extensions, QpAttr, QpState};

/// RFC7306-5.1.1-03 to RFC7306-5.1.1-05 and RFC7306-8.2-07: a misaligned word ends the requester's
/// connection. The application gets an event, memory is unchanged, and no other queue pair is
/// affected.
#[test]
fn a_misaligned_atomic_ends_only_its_connection() {
    let mut scene = Scene::new(|config| config.rdmap.extensions = Extensions::Rfc7306);
    let rights = Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC;
    let memory = AlignedBuf::pages(4096).unwrap();
    let target = scene.node.ctx.register(scene.node.pd, memory, rights).unwrap();
    let attr = QpAttr::new(scene.node.cq);
    let idle = scene.node.ctx.create_qp(scene.node.pd, &attr).unwrap();
    scene.called();
    let to = target.base_to() + 4;
    let operands = [&1u64.to_be_bytes()[..], &[0; 16], &[0xff; 8]].concat();
    let head = [[0; 8].as_slice(), &target.stag().0.to_be_bytes(), &to.to_be_bytes()].concat();
    scene.peer.say(&fpdu(&untagged(10, 1, 1, 0, &[head, operands].concat())));
    let (sent, terminate) = scene.terminated();
    assert_eq!((sent, terminate.layer, terminate.etype, terminate.code), (true, 0, 2, 7));
    assert_eq!(contents(&target)[..8], [0; 8]);
    assert_eq!(scene.node.ctx.qp_state(idle).unwrap(), ironwarp::QpState::Idle);
}

/// RFC7306-6.3-07: seven or nine octets end the peer's connection, and no other.
#[test]
fn an_immediate_of_wrong_length_ends_only_its_connection() {
    for bytes in [7, 9] {
        let mut scene = Scene::new(|config| config.rdmap.extensions = Extensions::Rfc7306);
        let (idle, _) = (scene.qp(), scene.node.memory(&[0; 8]));
        let (qp, inbox) = scene.called();
        scene.peer.say(&fpdu(&untagged(8, 0, 1, 0, &vec![5; bytes])));
        let (sent, terminate) = scene.terminated();
        assert_eq!((sent, terminate.layer, terminate.etype, terminate.code), (true, 0, 2, 0xff));
        scene.until("the flushed receive", |scene| !scene.node.completions.is_empty());
        assert_eq!(scene.node.completions[0].status, CompletionStatus::FlushedInError);
        assert_eq!(contents(&inbox), [0; 64]);
        assert_eq!(scene.node.ctx.qp_state(qp).unwrap(), QpState::Error);
        assert_eq!(scene.node.ctx.qp_state(idle).unwrap(), QpState::Idle);
    }
}
