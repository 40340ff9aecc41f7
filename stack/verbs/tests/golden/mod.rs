//! Golden vectors: the octets of every message kind on the wire, in both directions.
//!
//! Each vector under `vectors/` is octets with their meaning, written manually from the figures of
//! RFC 5044, RFC 6581, RFC 5041, RFC 5040 and RFC 7306 with its drafts. The tests use it in five
//! ways. Our node sends exactly these octets over TCP (`sent`, `startup`). It does what they say
//! when a peer sends them (`received`, `startup`). The stack's decoders read the same fields from
//! them (`decoders`), so does an independent decoder (`figures`), and so does Wireshark
//! (`wireshark`).

mod decoders;
mod figures;
mod received;
mod sent;
mod startup;
mod vector;
mod wireshark;

use figures::Framing;
use vector::Reading;

/// Every field of every figure: the independent decoder reads what the file says, and reads all
/// octets.
#[test]
fn rfc_figures_match_the_vectors() {
    for vector in vector::all() {
        let framing = Framing { crc: vector.crc, markers: vector.markers };
        let read = match vector.is_startup() {
            true => figures::startup(&vector.octets),
            false => figures::fpdus(&vector.octets, framing),
        };
        assert_eq!(read, Ok(vector.reading()), "{}", vector.name);
    }
}

/// Every field that the stack uses: its own decoders read what the file says.
#[test]
fn our_decoders_match_the_vectors() {
    for vector in vector::all() {
        let mut want = Reading { markers: Vec::new(), ..vector.reading() };
        want.fields.retain(|(name, _)| !decoders::is_unread(&vector, name));
        assert_eq!(decoders::reading(&vector), want, "{}", vector.name);
    }
}

/// Every vector is sent and received by a test that names it.
#[test]
fn every_vector_is_sent_and_received() {
    for name in vector::names(false) {
        let named = format!("\"{name}\"");
        assert!(include_str!("sent.rs").contains(&named), "no test sends {name}");
        assert!(include_str!("received.rs").contains(&named), "no test receives {name}");
    }
    for name in vector::names(true) {
        // A name in a table there is both sent and received.
        assert!(include_str!("startup.rs").contains(&format!("\"{name}\"")), "{name} is in no table");
    }
}
