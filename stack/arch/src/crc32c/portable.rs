//! CRC-32C by eight tables, eight bytes a step: for processors without a CRC instruction, and for
//! Miri.

/// The Castagnoli polynomial with its bits reversed, as a reflected CRC wants it.
const POLYNOMIAL: u32 = 0x82f6_3b78;

/// `TABLES[k][b]`: what byte `b` contributes when `k` more bytes follow it.
static TABLES: [[u32; 256]; 8] = tables();

pub(super) fn advance(mut state: u32, bytes: &[u8]) -> u32 {
    let (chunks, rest) = bytes.as_chunks::<8>();
    for chunk in chunks {
        state = step(u64::from_le_bytes(*chunk) ^ u64::from(state));
    }
    for byte in rest {
        state = TABLES[0][usize::from(state as u8 ^ byte)] ^ (state >> 8);
    }
    state
}

/// The remainder of eight bytes, the first of them already mixed with the state.
#[inline]
fn step(mixed: u64) -> u32 {
    let mut state = 0;
    for (table, byte) in TABLES.iter().rev().zip(mixed.to_le_bytes()) {
        state ^= table[usize::from(byte)];
    }
    state
}

const fn tables() -> [[u32; 256]; 8] {
    let mut tables = [[0; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        tables[0][byte] = remainder(byte as u32);
        byte += 1;
    }
    let mut index = 256;
    while index < 8 * 256 {
        let (table, byte) = (index / 256, index % 256);
        let shorter = tables[table - 1][byte];
        tables[table][byte] = tables[0][(shorter & 0xff) as usize] ^ (shorter >> 8);
        index += 1;
    }
    tables
}

const fn remainder(mut value: u32) -> u32 {
    let mut bit = 0;
    while bit < 8 {
        value = (value >> 1) ^ (POLYNOMIAL & (value & 1).wrapping_neg());
        bit += 1;
    }
    value
}
