//! What a hostile end of a TCP connection does once it is established.
//!
//! Sources: RFC 2018 (SACK), RFC 5961 (blind attacks), RFC 9293 s3.8.6 (windows), CVE-2019-11478 and CVE-2019-11479.

use smoltcp::wire::{TcpControl, TcpRepr};

use super::conn::{RawConn, WINDOW_BYTES};

/// A habit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Habit {
    /// It reports every second byte as received, three bytes to an acknowledgement, and acknowledges nothing.
    SackSplit,
    /// It acknowledges one byte at a time.
    OneByteAcks,
    /// It acknowledges everything and keeps its window closed.
    ZeroWindow,
    /// It acknowledges everything and reads nothing, so its window closes by and by.
    NoReading,
    /// It acknowledges nothing.
    Silence,
    /// It sends bytes beyond a gap that it never fills, each in a segment of its own.
    Gaps,
    /// It sends resets, SYNs and acknowledgements that are nearly right.
    Probes,
    /// It sends its last byte again and again.
    Repeats,
}

impl Habit {
    /// All habits.
    pub const ALL: [Habit; 8] = [
        Habit::SackSplit,
        Habit::OneByteAcks,
        Habit::ZeroWindow,
        Habit::NoReading,
        Habit::Silence,
        Habit::Gaps,
        Habit::Probes,
        Habit::Repeats,
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Habit::SackSplit => "sack-split",
            Habit::OneByteAcks => "one-byte-acks",
            Habit::ZeroWindow => "zero-window",
            Habit::NoReading => "no-reading",
            Habit::Silence => "silence",
            Habit::Gaps => "gaps",
            Habit::Probes => "probes",
            Habit::Repeats => "repeats",
        }
    }

    /// Returns whether it needs a peer that sends.
    pub fn is_about_acknowledgements(self) -> bool {
        !matches!(self, Habit::Gaps | Habit::Probes | Habit::Repeats)
    }

    /// Data has arrived.
    pub(super) fn on_data(self, conn: &mut RawConn, out: &mut Vec<Vec<u8>>) {
        let window = match self {
            Habit::SackSplit | Habit::OneByteAcks => return self.step(conn, out),
            Habit::Silence => return,
            Habit::ZeroWindow => 0,
            Habit::NoReading => unread_room(conn),
            Habit::Gaps | Habit::Probes | Habit::Repeats => WINDOW_BYTES,
        };
        conn.last_ack = conn.rcv_nxt;
        out.push(conn.frame(&conn.ack(window)));
    }

    /// Time has passed.
    pub(super) fn step(self, conn: &mut RawConn, out: &mut Vec<Vec<u8>>) {
        match self {
            Habit::SackSplit => split(conn, out),
            Habit::OneByteAcks => {
                if conn.last_ack != conn.rcv_nxt {
                    conn.last_ack = conn.last_ack.wrapping_add(1);
                    out.push(conn.frame(&conn.ack(WINDOW_BYTES)));
                }
            }
            Habit::ZeroWindow => out.push(conn.frame(&conn.ack(0))),
            Habit::NoReading => out.push(conn.frame(&conn.ack(unread_room(conn)))),
            Habit::Silence => {}
            Habit::Gaps => {
                conn.cursor = conn.cursor.wrapping_add(1);
                // Two bytes apart, so that no two of them touch, and within any window.
                let offset = 2 * (1 + conn.cursor % GAPS);
                out.push(conn.data(conn.snd_nxt().wrapping_add(offset), &[0]));
            }
            Habit::Probes => {
                conn.cursor = conn.cursor.wrapping_add(1);
                out.push(conn.frame(&probe(conn, conn.cursor)));
            }
            Habit::Repeats => out.push(conn.data(conn.snd_nxt().wrapping_sub(1), &[conn.last_byte()])),
        }
    }
}

/// The window of a host that has read nothing since its habit began.
fn unread_room(conn: &RawConn) -> u32 {
    UNREAD_BYTES.saturating_sub(conn.rcv_nxt.wrapping_sub(conn.began))
}

/// Reports the next three of every second byte.
fn split(conn: &mut RawConn, out: &mut Vec<Vec<u8>>) {
    let span = conn.rcv_nxt.wrapping_sub(conn.last_ack);
    if span < BLOCKS_BYTES + 2 {
        return;
    }
    let mut from = conn.cursor.wrapping_sub(conn.last_ack);
    if from + BLOCKS_BYTES > span {
        from = 1;
    }
    let block = |number: u32| {
        let start = conn.last_ack.wrapping_add(from + 2 * number);
        Some((start, start.wrapping_add(1)))
    };
    let sack_ranges = [block(0), block(1), block(2)];
    conn.cursor = conn.last_ack.wrapping_add(from + BLOCKS_BYTES);
    out.push(conn.frame(&TcpRepr { sack_ranges, ..conn.ack(WINDOW_BYTES) }));
}

/// A reset, a SYN or an acknowledgement that is in the window and wrong.
fn probe(conn: &RawConn, number: u32) -> TcpRepr<'static> {
    let near = conn.at(conn.snd_nxt().wrapping_add(1 + number % 1_000));
    match number % 3 {
        0 => TcpRepr { control: TcpControl::Rst, ..near },
        1 => TcpRepr { control: TcpControl::Syn, ack_number: None, ..near },
        // RFC 5961 s5: data that was never sent is acknowledged.
        _ => TcpRepr {
            seq_number: conn.at(conn.snd_nxt()).seq_number,
            ack_number: conn.at(0).ack_number.map(|ack| ack + (1 << 24)),
            ..near
        },
    }
}

/// Bytes that the three blocks of an acknowledgement span.
const BLOCKS_BYTES: u32 = 6;

/// Different bytes beyond a gap.
const GAPS: u32 = 4_000;

/// Bytes that a host which reads nothing has room for.
const UNREAD_BYTES: u32 = 64 << 10;
