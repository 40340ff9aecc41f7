//! Segments of DDP with the messages of RDMAP, each of one segment unless its octets are changed.
//!
//! Sources: RFC 5041 s4, RFC 5040 s4, RFC 7306 s5.2 and s6.

/// The operations of RFC 5040 s4.2 and RFC 7306 s4.
pub const WRITE: u8 = 0;
/// See above.
pub const READ_REQUEST: u8 = 1;
/// See above.
pub const READ_RESPONSE: u8 = 2;
/// See above.
pub const SEND: u8 = 3;
/// See above.
pub const SEND_INVALIDATE: u8 = 4;
/// See above.
pub const TERMINATE: u8 = 7;
/// See above.
pub const IMMEDIATE: u8 = 8;
/// See above.
pub const ATOMIC_REQUEST: u8 = 10;
/// See above.
pub const ATOMIC_RESPONSE: u8 = 11;

/// RFC 5041 s4.2: a tagged message.
pub fn tagged(opcode: u8, stag: u32, to: u64, payload: &[u8]) -> Vec<u8> {
    [&[0xc1, 0x40 | opcode][..], &stag.to_be_bytes(), &to.to_be_bytes(), payload].concat()
}

/// RFC 5041 s4.3: an untagged message.
pub fn untagged(opcode: u8, queue: u32, msn: u32, mo: u32, payload: &[u8]) -> Vec<u8> {
    let fields = [0, queue, msn, mo].map(u32::to_be_bytes).concat();
    [&[0x41, 0x40 | opcode][..], &fields, payload].concat()
}

/// A Send, which may invalidate a steering tag.
pub fn send(msn: u32, payload: &[u8], invalidates: Option<u32>) -> Vec<u8> {
    let opcode = if invalidates.is_some() { SEND_INVALIDATE } else { SEND };
    let mut send = untagged(opcode, 0, msn, 0, payload);
    send[2..6].copy_from_slice(&invalidates.unwrap_or(0).to_be_bytes());
    send
}

/// RFC 5040 s4.4: a Read Request with `sink` and `source`, each a steering tag and a tagged offset.
pub fn read_request(msn: u32, sink: (u32, u64), bytes: u32, source: (u32, u64)) -> Vec<u8> {
    let address = |(stag, to): (u32, u64)| [&stag.to_be_bytes()[..], &to.to_be_bytes()].concat();
    let payload = [&address(sink)[..], &bytes.to_be_bytes(), &address(source)].concat();
    untagged(READ_REQUEST, 1, msn, 0, &payload)
}

/// RFC 7306 s5.2.1, figure 4: an Atomic Request about the word at a steering tag and a tagged
/// offset. Its operands are data and mask, compare data and compare mask.
pub fn atomic_request(msn: u32, id: u32, operation: u32, word: (u32, u64), operands: [u64; 4]) -> Vec<u8> {
    let head = [operation, id, word.0].map(u32::to_be_bytes).concat();
    let operands = operands.map(u64::to_be_bytes).concat();
    untagged(ATOMIC_REQUEST, 1, msn, 0, &[&head[..], &word.1.to_be_bytes(), &operands].concat())
}

/// RFC 7306 s5.2.2, figure 6: an Atomic Response.
pub fn atomic_response(msn: u32, id: u32, original: u64) -> Vec<u8> {
    untagged(ATOMIC_RESPONSE, 3, msn, 0, &[&id.to_be_bytes()[..], &original.to_be_bytes()].concat())
}

/// RFC 7306 s6.3: Immediate Data, which should be eight octets.
pub fn immediate(msn: u32, octets: &[u8]) -> Vec<u8> {
    untagged(IMMEDIATE, 0, msn, 0, octets)
}

/// RFC 5040 s4.8: a Terminate with this header.
pub fn terminate(header: &[u8]) -> Vec<u8> {
    untagged(TERMINATE, 2, 1, 0, header)
}
