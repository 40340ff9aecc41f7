//! A hostile peer of the native memif in either role: messages, descriptors, any words of the
//! shared memory, while this end receives and sends.

/// Runs one input.
pub fn run(bytes: &[u8]) {
    ironwarp_port::memif::hostile_peer(bytes);
}
