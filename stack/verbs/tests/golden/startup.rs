//! Each start-up vector: our node sends it as initiator or responder, and receives it.

use ironwarp::{
    AcceptParams, Config, ConnectParams, Event, MpaRevision, NegotiatedParams, READS_UNNEGOTIATED,
    ReadDepths, RejectParams, RtrKinds,
};

use crate::common::messages::NODE;
use crate::common::peer::{PEER, Scene};
use crate::golden::vector::{Vector, named};

const LONG: [u8; 512] = [0xa5; 512];
const LONG_BACK: [u8; 512] = [0x5a; 512];
const ONE: ConnectParams<'static> = ConnectParams {
    transport: None,
    source: None,
    revision: Some(MpaRevision::One),
    private_data: b"",
    reads: None,
    peer_to_peer: None,
    rtr: None,
    first_fpdu_holdoff: None,
    extensions: None,
};

fn depths(ird: u16, ord: u16) -> ReadDepths {
    ReadDepths { ird, ord }
}

/// The parameters that produce each request. The node's configuration sets CRCs and markers.
fn requests() -> Vec<(&'static str, ConnectParams<'static>)> {
    let two = ConnectParams { revision: Some(MpaRevision::Two), ..ONE };
    let client_server = ConnectParams { peer_to_peer: Some(false), ..two };
    let unsaid = depths(READS_UNNEGOTIATED, READS_UNNEGOTIATED);
    let by = |rtr| ConnectParams { rtr: Some(rtr), reads: Some(depths(4, 8)), ..two };
    vec![
        ("request rev1", ONE),
        ("request rev1 crc", ONE),
        ("request rev1 markers", ONE),
        ("request rev1 markers crc private", ConnectParams { private_data: b"hello", ..ONE }),
        ("request rev1 longest private", ConnectParams { private_data: &LONG, ..ONE }),
        ("request rev2 client-server", client_server),
        ("request rev2 no crc", client_server),
        ("request rev2 unnegotiated", ConnectParams { reads: Some(unsaid), ..client_server }),
        ("request rev2 every indication", two),
        ("request rev2 write", by(RtrKinds::WRITE)),
        ("request rev2 read", by(RtrKinds::READ)),
        ("request rev2 send", by(RtrKinds::SEND)),
        (
            "request rev2 markers private",
            ConnectParams { private_data: b"hello", reads: Some(depths(1, 2)), ..two },
        ),
    ]
}

/// Each reply, the request that it belongs to, and the private data of the responder's application.
const REPLIES: [(&str, &str, &[u8]); 16] = [
    ("reply rev1", "request rev1", b""),
    ("reply rev1 crc", "request rev1 crc", b""),
    ("reply rev1 markers", "request rev1", b""),
    ("reply rev1 markers crc private", "request rev1 crc", b"welcome"),
    ("reply rev1 longest private", "request rev1 crc", &LONG_BACK),
    ("reply rev1 reject", "request rev1 crc", b""),
    ("reply rev1 reject private", "request rev1 crc", b"busy"),
    ("reply rev2 client-server", "request rev2 client-server", b""),
    ("reply rev2 no crc", "request rev2 no crc", b""),
    ("reply rev2 unnegotiated", "request rev2 unnegotiated", b""),
    ("reply rev2 every indication", "request rev2 every indication", b""),
    ("reply rev2 write", "request rev2 write", b""),
    ("reply rev2 read", "request rev2 read", b""),
    ("reply rev2 send", "request rev2 send", b""),
    ("reply rev2 markers private", "request rev2 markers private", b"welcome"),
    ("reply rev2 reject", "request rev2 every indication", b"busy"),
];

/// A node that asks for CRCs and markers as the frame says.
fn scene_as(vector: &Vector) -> Scene {
    let set = |config: &mut Config| {
        (config.mpa.markers, config.mpa.crc) = (vector.number("m") == 1, vector.number("c") == 1);
        config.mpa.long_private_data = true;
    };
    Scene::new(set)
}

/// A node that connects with the parameters of the request `name`.
fn called(name: &str) -> Scene {
    let requests = requests();
    let (_, params) = requests.iter().find(|(one, _)| *one == name).expect("parameters for the request");
    let mut scene = scene_as(&named(name));
    let qp = scene.qp();
    scene.node.ctx.connect_with(qp, PEER.parse().unwrap(), params).unwrap();
    scene
}

fn is_refusal(vector: &Vector) -> bool {
    vector.number("r") == 1
}

fn peer_reads(vector: &Vector) -> Option<ReadDepths> {
    (vector.number("rev") == 2).then(|| depths(vector.number("ird") as u16, vector.number("ord") as u16))
}

/// RFC 5044 s7.1.1, RFC 6581 s6, s9: each request is sent octet for octet, in one segment.
#[test]
fn requests_are_sent() {
    for (name, _) in requests() {
        let want = named(name).octets;
        let mut scene = called(name);
        assert_eq!(scene.hear(name, want.len()), want, "{name}");
        scene.turns(50);
        assert_eq!((&scene.peer.segments[..], &scene.peer.heard[..]), (&[want.len()][..], &[][..]), "{name}");
    }
}

/// RFC 5044 s7.1.1, RFC 6581 s9: what each request reports to the application.
#[test]
fn requests_are_received() {
    for (name, _) in requests() {
        let vector = named(name);
        let mut scene = Scene::new(|_| {});
        scene.node.ctx.listen(NODE.parse().unwrap()).unwrap();
        scene.turn();
        scene.peer.connect(NODE);
        scene.peer.say(&vector.octets);
        let (asked, said) = scene.event(name, |event| match event {
            Event::ConnectRequest { mpa_request: asked, private_data, .. } => {
                Some((*asked, private_data.to_vec()))
            }
            _ => None,
        });
        assert_eq!(u64::from(asked.revision), vector.number("rev"), "{name}");
        assert_eq!((asked.peer_reads, said), (peer_reads(&vector), vector.field("private_data")), "{name}");
        let peer_to_peer = vector.number("rev") == 2 && vector.number("flag_a") == 1;
        assert_eq!(asked.peer_to_peer, peer_to_peer, "{name}");
    }
}

/// RFC 5044 s7.1.1, s7.1.2, RFC 6581 s9.1, s9.2: each reply is sent octet for octet.
#[test]
fn replies_are_sent() {
    for (name, asked, private_data) in REPLIES {
        let vector = named(name);
        let mut scene = scene_as(&vector);
        let (request, _) = scene.is_asked(&named(asked).octets);
        if is_refusal(&vector) {
            let reads = peer_reads(&vector);
            scene
                .node
                .ctx
                .reject_with(request, &RejectParams { private_data, reads, ..RejectParams::default() })
                .unwrap();
        } else {
            let qp = scene.qp();
            let params = AcceptParams { private_data, ..Default::default() };
            scene.node.ctx.accept_with(request, qp, &params).unwrap();
        }
        assert_eq!(scene.hear(name, vector.octets.len()), vector.octets, "{name}");
        scene.turns(50);
        assert!(scene.peer.heard.is_empty(), "{name}");
    }
}

/// RFC 5044 s7.1.1, s7.1.2, RFC 6581 s9.1: what each reply reports to the application.
#[test]
fn replies_are_received() {
    for (name, asked, private_data) in REPLIES {
        let (vector, asked_for) = (named(name), named(asked));
        let mut scene = called(asked);
        scene.hear(asked, asked_for.octets.len());
        scene.peer.say(&vector.octets);
        if is_refusal(&vector) {
            let heard = scene.event(name, |event| match event {
                Event::Rejected { private_data, peer_reads, .. } => {
                    Some((private_data.to_vec(), *peer_reads))
                }
                _ => None,
            });
            assert_eq!(heard, (private_data.to_vec(), peer_reads(&vector)), "{name}");
            continue;
        }
        let (said, negotiated) = scene.event(name, |event| match event {
            Event::Established { private_data, negotiated, .. } => Some((private_data.to_vec(), *negotiated)),
            _ => None,
        });
        let revision = vector.number("rev") as u8;
        // Every responder here allows as many Reads as requested, or leaves the numbers
        // unnegotiated.
        let own = peer_reads(&asked_for).filter(|reads| reads.ird != READS_UNNEGOTIATED);
        let reads = own.unwrap_or(depths(16, 16));
        assert_eq!(
            negotiated,
            NegotiatedParams { revision, peer_reads: peer_reads(&vector), reads },
            "{name}"
        );
        assert_eq!(said, private_data, "{name}");
    }
}
