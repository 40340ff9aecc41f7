//! What a hostile end of a TCP connection does once it is established.
//!
//! Sources: RFC 2018 (SACK), RFC 5961 (blind attacks), RFC 9293 s3.8.6 (windows), CVE-2019-11478
//! and CVE-2019-11479.

use ironwarp_testkit::{ACK, Conn, ConnState, Frames, RST, SYN, Segment, WINDOW_BYTES};

use crate::kinds::kinds;

kinds! {
    pub enum Habit {
        /// Its name, the numbers of its [`Bounds`](super::Bounds) in their order, and its counter.
        pub fn row -> (&'static str, [u64; 5], &'static str);

        /// It reports every second byte as received, three bytes to an acknowledgement, and
        /// acknowledges nothing.
        SackSplit => ("sack-split", [5, 0, 44, 1, 300], "tcp_rx_segments"),
        /// It acknowledges one byte at a time.
        OneByteAcks => ("one-byte-acks", [5, 0, 16, 1, 180], "tcp_rx_segments"),
        /// It acknowledges everything and keeps its window closed.
        ZeroWindow => ("zero-window", [5, 0, 16, 1, 150], "tcp_rx_segments"),
        /// It acknowledges everything and reads nothing, so its window closes by and by.
        NoReading => ("no-reading", [5, 0, 48, 1, 150], "tcp_rx_segments"),
        /// It acknowledges nothing.
        Silence => ("silence", [5, 0, 16, 1, 130], "tcp_tx_retransmits"),
        /// It sends bytes beyond a gap that it never fills, each in a segment of its own.
        Gaps => ("gaps", [100, 512, 0, 1, 280], "tcp_rx_out_of_order"),
        /// It sends resets, SYNs and acknowledgements that are nearly right.
        Probes => ("probes", [5, 0, 0, 1, 130], "tcp_challenge_acks"),
        /// It sends its last byte again and again.
        Repeats => ("repeats", [5, 0, 0, 1, 140], "tcp_drop_outside_window"),
    }
}

impl Habit {
    /// Returns whether it needs a peer that sends.
    pub fn is_about_acknowledgements(self) -> bool {
        !matches!(self, Habit::Gaps | Habit::Probes | Habit::Repeats)
    }
}

/// A habit of a connection, and the state that it keeps.
pub struct Abuse {
    habit: Habit,
    cursor: u32,
    /// Where the habit began in the peer's stream.
    began: u32,
}

impl Abuse {
    pub fn begin(habit: Habit, conn: &mut Conn) -> Self {
        conn.acknowledges = false;
        Abuse { habit, cursor: conn.rcv_nxt, began: conn.rcv_nxt }
    }

    pub fn on_data(&mut self, conn: &mut Conn, out: &mut Frames) {
        let window = match self.habit {
            Habit::SackSplit | Habit::OneByteAcks => return self.step(conn, out),
            Habit::Silence => return,
            Habit::ZeroWindow => 0,
            Habit::NoReading => self.unread_room(conn),
            Habit::Gaps | Habit::Probes | Habit::Repeats => WINDOW_BYTES,
        };
        conn.last_ack = conn.rcv_nxt;
        out.push(conn.frame(&conn.ack(window)));
    }

    pub fn step(&mut self, conn: &mut Conn, out: &mut Frames) {
        if conn.state != ConnState::Open {
            return;
        }
        match self.habit {
            Habit::SackSplit => self.split(conn, out),
            Habit::OneByteAcks => {
                if conn.last_ack != conn.rcv_nxt {
                    conn.last_ack = conn.last_ack.wrapping_add(1);
                    out.push(conn.frame(&conn.ack(WINDOW_BYTES)));
                }
            }
            Habit::ZeroWindow => out.push(conn.frame(&conn.ack(0))),
            Habit::NoReading => out.push(conn.frame(&conn.ack(self.unread_room(conn)))),
            Habit::Silence => {}
            Habit::Gaps => {
                self.cursor = self.cursor.wrapping_add(1);
                // Two bytes apart, so that no two of them touch, and within any window.
                let offset = 2 * (1 + self.cursor % GAPS);
                out.push(conn.data(conn.snd_nxt().wrapping_add(offset), &[0]));
            }
            Habit::Probes => {
                self.cursor = self.cursor.wrapping_add(1);
                out.push(conn.frame(&probe(conn, self.cursor)));
            }
            Habit::Repeats => out.push(conn.data(conn.snd_nxt().wrapping_sub(1), &[conn.last_byte()])),
        }
    }

    /// The window of a host that has read nothing since its habit began.
    fn unread_room(&self, conn: &Conn) -> u32 {
        UNREAD_BYTES.saturating_sub(conn.rcv_nxt.wrapping_sub(self.began))
    }

    /// Reports the next three of every second byte.
    fn split(&mut self, conn: &Conn, out: &mut Frames) {
        let span = conn.rcv_nxt.wrapping_sub(conn.last_ack);
        if span < BLOCKS_BYTES + 2 {
            return;
        }
        let mut from = self.cursor.wrapping_sub(conn.last_ack);
        if from + BLOCKS_BYTES > span {
            from = 1;
        }
        self.cursor = conn.last_ack.wrapping_add(from + BLOCKS_BYTES);
        // RFC 2018 s3: the option with three blocks of a byte.
        let mut options = vec![1, 1, 5, 2 + 3 * 8];
        for start in (0..3).map(|block| conn.last_ack.wrapping_add(from + 2 * block)) {
            options.extend([start, start.wrapping_add(1)].map(u32::to_be_bytes).concat());
        }
        out.push(conn.frame(&Segment { options, ..conn.ack(WINDOW_BYTES) }));
    }
}

/// A reset, a SYN or an acknowledgement that is in the window and wrong.
fn probe(conn: &Conn, number: u32) -> Segment {
    let near = conn.snd_nxt().wrapping_add(1 + number % 1_000);
    match number % 3 {
        0 => conn.at(near, RST | ACK),
        1 => Segment { options: Vec::new(), ..conn.at(near, SYN) },
        // RFC 5961 s5: data that was never sent is acknowledged.
        _ => Segment { ack: conn.last_ack.wrapping_add(1 << 24), ..conn.at(conn.snd_nxt(), ACK) },
    }
}

/// Bytes that the three blocks of an acknowledgement span.
const BLOCKS_BYTES: u32 = 6;

/// Different bytes beyond a gap.
const GAPS: u32 = 4_000;

/// Bytes that a host which reads nothing has room for.
const UNREAD_BYTES: u32 = 64 << 10;
