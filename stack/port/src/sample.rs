//! Frames to test with.

/// A TCP segment from 10.0.0.1:1000 to 10.0.0.2:2000 over IPv4 and Ethernet, with right checksums.
pub(crate) fn segment(payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x08, 0x00];
    let total = (40 + payload.len()) as u16;
    let mut ip = [0x45, 0, 0, 0, 0, 1, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
    ip[2..4].copy_from_slice(&total.to_be_bytes());
    let ip_sum = inverted_sum(&[&ip]);
    ip[10..12].copy_from_slice(&ip_sum.to_be_bytes());
    let mut tcp = [0x03, 0xe8, 0x07, 0xd0, 0, 0, 0, 1, 0, 0, 0, 2, 0x50, 0x18, 1, 0, 0, 0, 0, 0];
    let pseudo = pseudo_header(payload);
    let tcp_sum = inverted_sum(&[&pseudo, &tcp, payload]);
    tcp[16..18].copy_from_slice(&tcp_sum.to_be_bytes());
    frame.extend_from_slice(&ip);
    frame.extend_from_slice(&tcp);
    frame.extend_from_slice(payload);
    frame
}

/// The same from fd00::1 to fd00::2 over IPv6.
pub(crate) fn segment6(payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x86, 0xdd];
    let length = ((20 + payload.len()) as u16).to_be_bytes();
    let address = |host| [0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, host];
    let addresses = [address(1), address(2)].concat();
    let mut tcp = [0x03, 0xe8, 0x07, 0xd0, 0, 0, 0, 1, 0, 0, 0, 2, 0x50, 0x18, 1, 0, 0, 0, 0, 0];
    let tcp_sum = inverted_sum(&[&addresses, &length, &[0, 6], &tcp, payload]);
    tcp[16..18].copy_from_slice(&tcp_sum.to_be_bytes());
    frame.extend_from_slice(&[0x60, 0, 0, 0, length[0], length[1], 6, 64]);
    frame.extend_from_slice(&addresses);
    frame.extend_from_slice(&tcp);
    frame.extend_from_slice(payload);
    frame
}

/// The same segment as it is handed to a device that fills in both checksums.
pub(crate) fn unfilled_segment(payload: &[u8]) -> Vec<u8> {
    let mut frame = segment(payload);
    let pseudo = !inverted_sum(&[&pseudo_header(payload)]);
    frame[24..26].fill(0);
    frame[50..52].copy_from_slice(&pseudo.to_be_bytes());
    frame
}

fn pseudo_header(payload: &[u8]) -> [u8; 12] {
    let length = (20 + payload.len()) as u16;
    let [high, low] = length.to_be_bytes();
    [10, 0, 0, 1, 10, 0, 0, 2, 0, 6, high, low]
}

/// RFC 1071 s4.1, word by word; every part but the last has an even length.
fn inverted_sum(parts: &[&[u8]]) -> u16 {
    let mut total = 0u32;
    for pair in parts.iter().flat_map(|part| part.chunks(2)) {
        total += u32::from(pair[0]) << 8 | pair.get(1).map_or(0, |low| u32::from(*low));
    }
    while total > 0xffff {
        total = (total & 0xffff) + (total >> 16);
    }
    !(total as u16)
}
