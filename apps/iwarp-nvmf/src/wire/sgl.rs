//! SGL descriptors (Base 1.4, 4.4; Fabrics 1.1, 2.3).
//!
//! A target offers two kinds: a keyed data block in the host's memory, and a data block in the
//! capsule at an offset. Any other kind is refused with the status that the specification names.

use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::Status;

/// An SGL descriptor.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct SglDescriptor {
    /// The address, or the offset in the capsule.
    pub address: U64,
    /// Length and key. In a keyed block: three bytes of length, four bytes of key. Otherwise four
    /// bytes of length.
    pub length_key: [u8; 7],
    /// The type in the upper, the subtype in the lower four bits.
    pub identifier: u8,
}

const _: () = assert!(size_of::<SglDescriptor>() == 16);

/// A data block in the capsule: type 0h, subtype 1h.
pub const DATA_BLOCK_OFFSET: u8 = 0x01;
/// A keyed data block: type 4h, subtype 0h.
pub const KEYED_DATA_BLOCK: u8 = 0x40;
/// A keyed data block whose key the response invalidates: type 4h, subtype Fh.
pub const KEYED_DATA_BLOCK_INVALIDATE: u8 = 0x4f;

/// Where the data of a command is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DataPointer {
    /// In the capsule.
    Capsule {
        /// From the end of the submission queue entry.
        offset: u32,
        /// Bytes.
        length: u32,
    },
    /// In the host's memory.
    Keyed {
        /// The tagged offset.
        address: u64,
        /// Bytes.
        length: u32,
        /// The steering tag.
        key: u32,
        /// Whether the response invalidates the key.
        invalidate: bool,
    },
}

impl DataPointer {
    /// Returns the number of bytes.
    pub fn length(&self) -> u32 {
        match *self {
            DataPointer::Capsule { length, .. } | DataPointer::Keyed { length, .. } => length,
        }
    }

    /// Returns the key that the response has to invalidate.
    pub fn key_to_invalidate(&self) -> Option<u32> {
        match *self {
            DataPointer::Keyed { key, invalidate: true, length: 1.., .. } => Some(key),
            _ => None,
        }
    }
}

impl SglDescriptor {
    /// A block of the host's memory.
    pub fn keyed(address: u64, length: u32, key: u32, invalidate: bool) -> Self {
        let ([l0, l1, l2, _], [k0, k1, k2, k3]) = (length.to_le_bytes(), key.to_le_bytes());
        let identifier = if invalidate { KEYED_DATA_BLOCK_INVALIDATE } else { KEYED_DATA_BLOCK };
        SglDescriptor { address: address.into(), length_key: [l0, l1, l2, k0, k1, k2, k3], identifier }
    }

    /// A block in the capsule.
    pub fn in_capsule(offset: u64, length: u32) -> Self {
        let [l0, l1, l2, l3] = length.to_le_bytes();
        let length_key = [l0, l1, l2, l3, 0, 0, 0];
        SglDescriptor { address: offset.into(), length_key, identifier: DATA_BLOCK_OFFSET }
    }

    /// Returns where the data is, in a capsule with `capsule_bytes` of data.
    ///
    /// # Errors
    ///
    /// - [`Status::SGL_DESCRIPTOR_TYPE_INVALID`] for a kind that is not offered.
    /// - [`Status::SGL_OFFSET_INVALID`] for a block that begins beyond the capsule.
    /// - [`Status::DATA_SGL_LENGTH_INVALID`] for a block that ends beyond it.
    pub fn data_pointer(&self, capsule_bytes: u32) -> Result<DataPointer, Status> {
        let [a, b, c, d, e, f, g] = self.length_key;
        match self.identifier {
            KEYED_DATA_BLOCK | KEYED_DATA_BLOCK_INVALIDATE => Ok(DataPointer::Keyed {
                address: self.address.get(),
                length: u32::from_le_bytes([a, b, c, 0]),
                key: u32::from_le_bytes([d, e, f, g]),
                invalidate: self.identifier == KEYED_DATA_BLOCK_INVALIDATE,
            }),
            DATA_BLOCK_OFFSET => {
                let length = u32::from_le_bytes([a, b, c, d]);
                let offset = u32::try_from(self.address.get()).map_err(|_| Status::SGL_OFFSET_INVALID)?;
                let room = capsule_bytes.checked_sub(offset).ok_or(Status::SGL_OFFSET_INVALID)?;
                if length > room {
                    return Err(Status::DATA_SGL_LENGTH_INVALID);
                }
                Ok(DataPointer::Capsule { offset, length })
            }
            _ => Err(Status::SGL_DESCRIPTOR_TYPE_INVALID),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_keyed_block_has_24_bits_of_length_and_32_of_key() {
        let block = SglDescriptor::keyed(0x1122_3344_5566_7788, 0x00ab_cdef, 0x0102_0304, true);
        let bytes = block.as_bytes();
        assert_eq!(bytes[8..], [0xef, 0xcd, 0xab, 0x04, 0x03, 0x02, 0x01, 0x4f]);
        let pointer = block.data_pointer(0).expect("offered");
        assert_eq!(pointer.key_to_invalidate(), Some(0x0102_0304));
        assert_eq!(pointer.length(), 0x00ab_cdef);
    }

    #[test]
    fn a_block_in_the_capsule_stays_inside() {
        let block = |offset, length| SglDescriptor::in_capsule(offset, length).data_pointer(4096);
        assert_eq!(block(96, 4000), Ok(DataPointer::Capsule { offset: 96, length: 4000 }));
        assert_eq!(block(97, 4000), Err(Status::DATA_SGL_LENGTH_INVALID));
        assert_eq!(block(4097, 0), Err(Status::SGL_OFFSET_INVALID));
        assert_eq!(block(u64::MAX, 1), Err(Status::SGL_OFFSET_INVALID));
    }

    /// Base 1.4, 4.4.1: every other type and subtype.
    #[test]
    fn other_kinds_are_refused() {
        let offered = [DATA_BLOCK_OFFSET, KEYED_DATA_BLOCK, KEYED_DATA_BLOCK_INVALIDATE];
        for identifier in (0..=u8::MAX).filter(|one| !offered.contains(one)) {
            let block = SglDescriptor { identifier, ..SglDescriptor::default() };
            assert_eq!(block.data_pointer(4096), Err(Status::SGL_DESCRIPTOR_TYPE_INVALID));
        }
    }
}
