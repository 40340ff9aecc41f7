//! The rings of the native memif alone, with a hostile peer that moves indices and writes
//! descriptors and any words: no socket and no system call, so that many more inputs are tried than
//! with `memif`.

/// Runs one input.
pub fn run(bytes: &[u8]) {
    ironwarp_port::memif::hostile_rings(bytes);
}
