//! The table of connections in a page: a bounded number of rows for each core.
//!
//! The core's thread writes a row at a time through [`ConnectionRows`], on its housekeeping timer
//! and never for a frame. [`StatsReader::connections`](crate::StatsReader::connections) reads them.
//! A row is one line of words behind a version, which is odd while the row changes: a reader takes
//! a row only if two reads in a row show the same even version. Numbers are as the machine stores
//! them; a byte that names no state, and an address of no family, make a row that is left out.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use core::sync::atomic::Ordering::{Relaxed, Release};
use core::sync::atomic::fence;

use ironwarp_arch::shared::{LINE_WORDS, SharedWords};

/// The rows of each core. With more connections than that, the core chooses which it shows.
pub const CONNECTION_ROWS: usize = 64;

/// Words of a row in this build: one line.
pub(crate) const ROW_WORDS: usize = LINE_WORDS;

/// The word that is odd while the row changes.
const VERSION: usize = 0;

/// The other words of a row, by index.
#[derive(Clone, Copy)]
#[repr(usize)]
enum Word {
    /// The state in the lowest byte, the address family (4 or 6) in the next; 0: the row is free.
    Kind = VERSION + 1,
    /// The local port, and the remote one shifted by 16 bits.
    Ports,
    LocalHigh,
    LocalLow,
    RemoteHigh,
    RemoteLow,
    /// One more than the number of the queue pair; 0: none.
    QueuePair,
    TxBytes,
    RxBytes,
    Retransmits,
    SrttNs,
    RtoNs,
    CwndBytes,
    FlightBytes,
    /// The number of paths in the lowest byte, and of those that answer in the next,
    /// the number of the IP protocol in the third.
    Paths,
}

const _: () = assert!((Word::Paths as usize) < ROW_WORDS);

/// A state of RFC 9293 s3.3.2.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[expect(missing_docs, reason = "the names of the RFC")]
#[non_exhaustive]
pub enum ConnectionState {
    SynSent,
    SynReceived,
    Established,
    FinWait1,
    FinWait2,
    CloseWait,
    Closing,
    LastAck,
    TimeWait,
    Closed,
}

impl ConnectionState {
    /// Every state. The code of a state in a page is its index here and one more, so new ones go to
    /// the end.
    const ALL: [Self; 10] = [
        Self::SynSent,
        Self::SynReceived,
        Self::Established,
        Self::FinWait1,
        Self::FinWait2,
        Self::CloseWait,
        Self::Closing,
        Self::LastAck,
        Self::TimeWait,
        Self::Closed,
    ];

    /// The name in the RFC.
    pub fn name(self) -> &'static str {
        match self {
            Self::SynSent => "SYN-SENT",
            Self::SynReceived => "SYN-RECEIVED",
            Self::Established => "ESTABLISHED",
            Self::FinWait1 => "FIN-WAIT-1",
            Self::FinWait2 => "FIN-WAIT-2",
            Self::CloseWait => "CLOSE-WAIT",
            Self::Closing => "CLOSING",
            Self::LastAck => "LAST-ACK",
            Self::TimeWait => "TIME-WAIT",
            Self::Closed => "CLOSED",
        }
    }

    fn code(self) -> u64 {
        Self::ALL.iter().position(|state| *state == self).map_or(0, |index| index as u64 + 1)
    }

    fn from_code(code: u64) -> Option<Self> {
        Self::ALL.get(usize::try_from(code.checked_sub(1)?).ok()?).copied()
    }
}

/// A connection at a moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ConnectionRow {
    /// Our end.
    pub local: SocketAddr,
    /// The peer's end.
    pub remote: SocketAddr,
    /// The number of the IP protocol: 6 is TCP, 132 SCTP.
    pub protocol: u8,
    /// TCP's state.
    pub state: ConnectionState,
    /// The number of its queue pair; `None` before it has one.
    pub queue_pair: Option<u32>,
    /// Payload bytes that the peer has acknowledged.
    pub tx_bytes: u64,
    /// Payload bytes received in order.
    pub rx_bytes: u64,
    /// Segments sent again.
    pub retransmits: u64,
    /// The smoothed round-trip time; 0 before the first sample.
    pub srtt_ns: u64,
    /// The retransmission timeout.
    pub rto_ns: u64,
    /// The congestion window.
    pub cwnd_bytes: u64,
    /// Bytes sent and not acknowledged.
    pub flight_bytes: u64,
    /// The addresses of the peer that it may use. Over SCTP there may be several.
    pub paths: u8,
    /// Those of them that answer.
    pub paths_up: u8,
}

/// The rows of one core, for its thread.
#[derive(Debug)]
pub struct ConnectionRows {
    words: SharedWords,
}

impl ConnectionRows {
    pub(crate) fn new(words: SharedWords) -> Self {
        ConnectionRows { words }
    }

    /// Writes a row; `None` frees it. A row beyond [`CONNECTION_ROWS`] is ignored. About 20 stores.
    pub fn write(&self, row: usize, connection: Option<&ConnectionRow>) {
        let from = row.saturating_mul(ROW_WORDS);
        let Some([version, words @ ..]) = self.words.get(from..from.saturating_add(ROW_WORDS)) else {
            return;
        };
        let values = connection.map_or([0; ROW_WORDS], encode);
        let before = version.load(Relaxed);
        version.store(before.wrapping_add(1), Relaxed);
        // The odd version comes before the words that change, the even one after them.
        fence(Release);
        words.iter().zip(values.iter().skip(1)).for_each(|(word, value)| word.store(*value, Relaxed));
        version.store(before.wrapping_add(2), Release);
    }
}

fn encode(connection: &ConnectionRow) -> [u64; ROW_WORDS] {
    let mut words = [0; ROW_WORDS];
    let mut set = |word: Word, value: u64| {
        if let Some(place) = words.get_mut(word as usize) {
            *place = value;
        }
    };
    let (local, remote) = (octets(connection.local.ip()), octets(connection.remote.ip()));
    let family = if connection.remote.is_ipv4() { 4 } else { 6 };
    set(Word::Kind, connection.state.code() | family << 8);
    set(Word::Ports, u64::from(connection.local.port()) | u64::from(connection.remote.port()) << 16);
    set(Word::LocalHigh, (local >> 64) as u64);
    set(Word::LocalLow, local as u64);
    set(Word::RemoteHigh, (remote >> 64) as u64);
    set(Word::RemoteLow, remote as u64);
    set(Word::QueuePair, connection.queue_pair.map_or(0, |number| u64::from(number) + 1));
    set(Word::TxBytes, connection.tx_bytes);
    set(Word::RxBytes, connection.rx_bytes);
    set(Word::Retransmits, connection.retransmits);
    set(Word::SrttNs, connection.srtt_ns);
    set(Word::RtoNs, connection.rto_ns);
    set(Word::CwndBytes, connection.cwnd_bytes);
    set(Word::FlightBytes, connection.flight_bytes);
    let paths = [connection.paths, connection.paths_up, connection.protocol, 0, 0, 0, 0, 0];
    set(Word::Paths, u64::from_le_bytes(paths));
    words
}

fn octets(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(v4) => v4.to_bits().into(),
        IpAddr::V6(v6) => v6.to_bits(),
    }
}

/// Returns whether a row does not change: both reads show the same even version.
pub(crate) fn is_stable(first: &[u64], second: &[u64]) -> bool {
    let version = |words: &[u64]| words.get(VERSION).copied();
    version(first) == version(second) && version(first).is_some_and(|version| version % 2 == 0)
}

/// Returns the connection of a row. `None`: the row is free, or of no meaning in this build.
pub(crate) fn decode(words: &[u64]) -> Option<ConnectionRow> {
    let word = |word: Word| words.get(word as usize).copied().unwrap_or(0);
    let kind = word(Word::Kind);
    let address = |high: Word, low: Word| {
        let bits = u128::from(word(high)) << 64 | u128::from(word(low));
        match kind >> 8 {
            4 => Some(IpAddr::V4(Ipv4Addr::from_bits(bits as u32))),
            6 => Some(IpAddr::V6(Ipv6Addr::from_bits(bits))),
            _ => None,
        }
    };
    let ports = word(Word::Ports);
    let [paths, paths_up, protocol, ..] = word(Word::Paths).to_le_bytes();
    Some(ConnectionRow {
        local: SocketAddr::new(address(Word::LocalHigh, Word::LocalLow)?, ports as u16),
        remote: SocketAddr::new(address(Word::RemoteHigh, Word::RemoteLow)?, (ports >> 16) as u16),
        protocol,
        state: ConnectionState::from_code(kind & 0xff)?,
        queue_pair: word(Word::QueuePair).checked_sub(1).and_then(|number| number.try_into().ok()),
        tx_bytes: word(Word::TxBytes),
        rx_bytes: word(Word::RxBytes),
        retransmits: word(Word::Retransmits),
        srtt_ns: word(Word::SrttNs),
        rto_ns: word(Word::RtoNs),
        cwnd_bytes: word(Word::CwndBytes),
        flight_bytes: word(Word::FlightBytes),
        paths,
        paths_up,
    })
}
