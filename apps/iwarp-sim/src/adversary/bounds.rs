//! The kinds of hostile packets, and the bounds of what one of them may cost.
//!
//! `docs/security.md` has these numbers as a table; a test compares the two.

use super::Habit;

/// A kind of hostile packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Adversary {
    /// Not hostile: a Send of 64 bytes in a segment of its own, to compare with.
    Honest,
    /// Segments with a wrong checksum.
    Garbage,
    /// ARP requests from changing neighbours.
    ArpRequests,
    /// Announcements that move the link address of a neighbour in use.
    ArpFlaps,
    /// IPv6 neighbour solicitations from changing neighbours.
    Solicitations,
    /// Echo requests.
    Echoes,
    /// ICMP errors about segments that were never sent.
    IcmpErrors,
    /// Segments without a connection.
    Unknown,
    /// SYNs from changing addresses.
    Syns,
    /// Connections that send something else than a start-up frame.
    Startups,
    /// FPDUs with a wrong CRC, each on a connection of its own.
    BadCrcs,
    /// Writes with a wrong steering tag, each on a connection of its own.
    BadStags,
    /// FPDUs whose bytes arrive one by one.
    OneByteSegments,
    /// Segments full of Writes of no bytes.
    TinyFpdus,
    /// FPDUs with markers, each segment full.
    Markers,
    /// A connection with a habit.
    Habit(Habit),
}

/// The most that one hostile packet costs, and the most that all of them hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bounds {
    /// Frames sent for a hundred packets.
    pub sent_percent: u64,
    /// Received frames held.
    pub rx_frames: usize,
    /// Transmit units held.
    pub tx_units: usize,
    /// Connections held.
    pub connections: usize,
    /// Instructions for a packet, in hundredths of those for an honest Send.
    pub instructions_percent: u64,
    /// The counter that grows.
    pub counter: &'static str,
}

impl Adversary {
    /// All hostile kinds.
    pub const ALL: [Adversary; 21] = [
        Adversary::Garbage,
        Adversary::ArpRequests,
        Adversary::ArpFlaps,
        Adversary::Solicitations,
        Adversary::Echoes,
        Adversary::IcmpErrors,
        Adversary::Unknown,
        Adversary::Syns,
        Adversary::Startups,
        Adversary::BadCrcs,
        Adversary::BadStags,
        Adversary::OneByteSegments,
        Adversary::TinyFpdus,
        Adversary::Markers,
        Adversary::Habit(Habit::SackSplit),
        Adversary::Habit(Habit::OneByteAcks),
        Adversary::Habit(Habit::ZeroWindow),
        Adversary::Habit(Habit::NoReading),
        Adversary::Habit(Habit::Gaps),
        Adversary::Habit(Habit::Probes),
        Adversary::Habit(Habit::Repeats),
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Adversary::Honest => "honest",
            Adversary::Garbage => "garbage",
            Adversary::ArpRequests => "arp-requests",
            Adversary::ArpFlaps => "arp-flaps",
            Adversary::Solicitations => "solicitations",
            Adversary::Echoes => "echoes",
            Adversary::IcmpErrors => "icmp-errors",
            Adversary::Unknown => "unknown-segments",
            Adversary::Syns => "syns",
            Adversary::Startups => "start-ups",
            Adversary::BadCrcs => "bad-crcs",
            Adversary::BadStags => "bad-stags",
            Adversary::OneByteSegments => "one-byte-segments",
            Adversary::TinyFpdus => "tiny-fpdus",
            Adversary::Markers => "markers",
            Adversary::Habit(habit) => habit.name(),
        }
    }

    /// The kind with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        [Adversary::Honest].into_iter().chain(Adversary::ALL).find(|adversary| adversary.name() == name)
    }

    /// The most that its packets cost.
    pub fn bounds(self) -> Bounds {
        let bounds = |sent_percent, rx_frames, tx_units, connections, instructions_percent, counter| Bounds {
            sent_percent,
            rx_frames,
            tx_units,
            connections,
            instructions_percent,
            counter,
        };
        match self {
            Adversary::Honest => bounds(10, 0, 0, 1, 100, "iwarp_rx_sends"),
            Adversary::Garbage => bounds(0, 0, 0, 0, 60, "net_drop_tcp_checksum"),
            Adversary::ArpRequests => bounds(100, 0, 0, 0, 150, "net_arp_replies_sent"),
            Adversary::ArpFlaps => bounds(100, 0, 0, 1, 160, "net_neighbours_changed"),
            Adversary::Solicitations => bounds(100, 0, 0, 0, 290, "net_nd_advertisements_sent"),
            Adversary::Echoes => bounds(5, 0, 0, 0, 110, "net_drop_echo_rate_limited"),
            Adversary::IcmpErrors => bounds(0, 0, 0, 1, 100, "tcp_drop_icmp"),
            Adversary::Unknown => bounds(20, 0, 0, 0, 150, "tcp_tx_replies_rate_limited"),
            Adversary::Syns => bounds(100, 0, 0, 256, 440, "tcp_syn_cookies_sent"),
            Adversary::Startups => bounds(100, 0, 0, 8, 290, "iwarp_startup_errors"),
            Adversary::BadCrcs => bounds(200, 0, 16, 8, 1070, "iwarp_rx_crc_errors"),
            Adversary::BadStags => bounds(200, 0, 16, 8, 1100, "iwarp_tx_terminates"),
            Adversary::OneByteSegments => bounds(5, 0, 0, 1, 150, "iwarp_rx_fpdus"),
            Adversary::TinyFpdus => bounds(5, 0, 0, 1, 1500, "iwarp_rx_writes"),
            Adversary::Markers => bounds(5, 0, 0, 1, 380, "iwarp_rx_writes"),
            Adversary::Habit(Habit::SackSplit) => bounds(5, 0, 44, 1, 300, "tcp_rx_segments"),
            Adversary::Habit(Habit::OneByteAcks) => bounds(5, 0, 16, 1, 160, "tcp_rx_segments"),
            Adversary::Habit(Habit::ZeroWindow) => bounds(5, 0, 16, 1, 130, "tcp_rx_segments"),
            Adversary::Habit(Habit::NoReading) => bounds(5, 0, 48, 1, 130, "tcp_rx_segments"),
            Adversary::Habit(Habit::Silence) => bounds(5, 0, 16, 1, 130, "tcp_tx_retransmits"),
            Adversary::Habit(Habit::Gaps) => bounds(100, 512, 0, 1, 280, "tcp_rx_out_of_order"),
            Adversary::Habit(Habit::Probes) => bounds(5, 0, 0, 1, 120, "tcp_challenge_acks"),
            Adversary::Habit(Habit::Repeats) => bounds(5, 0, 0, 1, 120, "tcp_drop_outside_window"),
        }
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
