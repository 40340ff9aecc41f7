//! A hostile peer of the native memif in either role: messages, descriptors, any words of the
//! shared memory, while this end receives and sends.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    ironwarp_port::memif::hostile_peer(bytes);
});
