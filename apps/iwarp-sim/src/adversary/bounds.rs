//! The kinds of hostile packets, and the bounds of what one of them may cost.
//!
//! `docs/security.md` has these numbers as a table; a test compares the two.

use super::Habit;
use crate::kinds::kinds;

kinds! {
    /// A kind of hostile packets.
    pub enum Adversary {
        /// Its name, what its packets need, the numbers of its [`Bounds`] in their order, and its
        /// counter.
        fn table_row -> (&'static str, Needs, [u64; 5], &'static str);

        /// Not hostile: a Send of 64 bytes in a segment of its own, to compare with.
        Honest => ("honest", Needs::Conn, [10, 0, 0, 1, 100], "iwarp_rx_sends"),
        /// Segments with a wrong checksum.
        Garbage => ("garbage", Needs::Nothing, [0, 0, 0, 0, 70], "net_drop_l4_checksum"),
        /// ARP requests from changing neighbours.
        ArpRequests => ("arp-requests", Needs::Nothing, [100, 0, 0, 0, 120], "net_arp_replies_sent"),
        /// Announcements that move the link address of a neighbour in use.
        ArpFlaps => ("arp-flaps", Needs::Conn, [100, 0, 0, 1, 120], "net_neighbours_changed"),
        /// IPv6 neighbour solicitations from changing neighbours.
        Solicitations => ("solicitations", Needs::Nothing, [100, 0, 0, 0, 260], "net_nd_advertisements_sent"),
        /// Echo requests.
        Echoes => ("echoes", Needs::Nothing, [5, 0, 0, 0, 80], "net_drop_echo_rate_limited"),
        /// ICMP errors about segments that were never sent.
        IcmpErrors => ("icmp-errors", Needs::Conn, [0, 0, 0, 1, 70], "tcp_drop_icmp"),
        /// Segments without a connection.
        Unknown => ("unknown-segments", Needs::Nothing, [20, 0, 0, 0, 160], "tcp_tx_replies_rate_limited"),
        /// SYNs from changing addresses.
        Syns => ("syns", Needs::Nothing, [100, 0, 0, 256, 440], "tcp_syn_cookies_sent"),
        /// Connections that send something else than a start-up frame.
        Startups => ("start-ups", Needs::FreshConn, [100, 0, 0, 8, 290], "iwarp_startup_errors"),
        /// FPDUs with a wrong CRC, each on a connection of its own.
        BadCrcs => ("bad-crcs", Needs::FreshConn, [200, 0, 16, 8, 1070], "iwarp_rx_crc_errors"),
        /// Writes with a wrong steering tag, each on a connection of its own.
        BadStags => ("bad-stags", Needs::FreshConn, [200, 0, 16, 8, 1100], "iwarp_tx_terminates"),
        /// FPDUs whose bytes arrive one by one.
        OneByteSegments => ("one-byte-segments", Needs::Conn, [5, 0, 0, 1, 170], "iwarp_rx_fpdus"),
        /// Segments full of Writes of no bytes.
        TinyFpdus => ("tiny-fpdus", Needs::Conn, [5, 0, 0, 1, 1070], "iwarp_rx_writes"),
        /// FPDUs with markers, each segment full.
        Markers => ("markers", Needs::Conn, [5, 0, 0, 1, 380], "iwarp_rx_writes"),
        ;
        /// A connection with a habit, whose row is its own.
        Habit(Habit) => ("", Needs::Conn, [0; 5], "")
    }
}

/// What the packets of a kind need.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Needs {
    Nothing,
    Conn,
    /// A connection for each packet, which is its last.
    FreshConn,
}

/// The most that one hostile packet costs, and the most that all of them hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bounds {
    /// Frames sent for a hundred packets.
    pub sent_percent: u64,
    pub rx_frames: usize,
    pub tx_units: usize,
    pub connections: usize,
    /// Instructions for a packet, in hundredths of those for an honest Send.
    pub instructions_percent: u64,
    pub counter: &'static str,
}

impl Adversary {
    /// All hostile kinds. Silence sends no packets.
    pub fn all() -> impl Iterator<Item = Adversary> {
        let habits = Habit::ALL.iter().filter(|habit| **habit != Habit::Silence);
        Adversary::ALL[1..].iter().copied().chain(habits.map(|habit| Adversary::Habit(*habit)))
    }

    pub fn from_name(name: &str) -> Option<Self> {
        Adversary::all().chain([Adversary::Honest]).find(|adversary| adversary.name() == name)
    }

    fn row_of_kind(self) -> (&'static str, Needs, [u64; 5], &'static str) {
        match self {
            Adversary::Habit(habit) => {
                let (name, bounds, counter) = habit.row();
                (name, Needs::Conn, bounds, counter)
            }
            kind => kind.table_row(),
        }
    }

    pub fn name(self) -> &'static str {
        self.row_of_kind().0
    }

    pub fn needs(self) -> Needs {
        self.row_of_kind().1
    }

    /// The most that its packets cost.
    pub fn bounds(self) -> Bounds {
        let (.., [sent_percent, rx_frames, tx_units, connections, instructions_percent], counter) =
            self.row_of_kind();
        let [rx_frames, tx_units, connections] =
            [rx_frames, tx_units, connections].map(|count| count as usize);
        Bounds { sent_percent, rx_frames, tx_units, connections, instructions_percent, counter }
    }

    /// Its row of the table in `docs/security.md`.
    pub fn row(self) -> String {
        let Bounds { sent_percent, rx_frames, tx_units, connections, instructions_percent, counter } =
            self.bounds();
        format!(
            "| `{}` | {}.{:02} | {rx_frames} | {tx_units} | {connections} | {}.{} | `{counter}` |",
            self.name(),
            sent_percent / 100,
            sent_percent % 100,
            instructions_percent / 100,
            instructions_percent % 100 / 10,
        )
    }
}
