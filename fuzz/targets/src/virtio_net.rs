//! Headers of virtio-net and super-segments at a device of the kernel's.

/// Runs one input.
pub fn run(bytes: &[u8]) {
    ironwarp_port::kernel::hostile_device(bytes);
}
