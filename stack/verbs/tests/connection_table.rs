//! The connections in a page of counters: what another process reads of a running stack.

use crate::common;

use std::path::PathBuf;

use common::{Pair, config};
use ironwarp::memory::MemoryConfig;
use ironwarp::{QueuePair, RecvWr, Region, SendWr};
use ironwarp_stats::{CONNECTION_ROWS, ConnectionRow, ConnectionState, StatsReader};

/// Turns within which a table of this size is scanned at the latest: with a read of the page, a
/// turn takes microseconds.
const TURNS_MAX: usize = 10_000_000;

/// A pair of stacks of which the near one has its page in a file.
struct Observed {
    pair: Pair,
    reader: StatsReader,
    /// What the requests use.
    regions: Vec<Region>,
}

impl Observed {
    fn new(name: &str) -> Self {
        let page: PathBuf = format!("ironwarp-connections-{}-{name}", std::process::id()).into();
        let page = std::env::temp_dir().join(page);
        let with_page = |address: &str| {
            let mut config = config(address);
            config.stats.page = Some(page.clone()).filter(|_| address.starts_with("10.0.0.1/"));
            // A scan of so few slots is one step.
            (config.limits.queue_pairs, config.limits.half_open) = (128, 32);
            config
        };
        let pair = Pair::over(&MemoryConfig::default(), with_page);
        let reader = StatsReader::open(&page).expect("a page");
        Observed { pair, reader, regions: Vec::new() }
    }

    fn rows(&self) -> Vec<ConnectionRow> {
        self.reader.connections().expect("a table").remove(0)
    }

    fn send_4096_bytes(&mut self, (near, far): (QueuePair, QueuePair)) {
        let (source, sink) = (self.pair.near.memory(&[7; 4096]), self.pair.far.memory(&[0; 4096]));
        let whole = |region: &Region| [region.slice(0, 4096).expect("inside")];
        self.pair.far.ctx.post_recv(far, &RecvWr::new(1, &whole(&sink))).expect("posted");
        self.pair.near.ctx.post_send(near, &SendWr::send(1, &whole(&source))).expect("posted");
        self.regions.extend([source, sink]);
    }

    /// Polls until the table shows what `is_wanted` wants.
    fn until(&mut self, what: &str, is_wanted: impl Fn(&[ConnectionRow]) -> bool) -> Vec<ConnectionRow> {
        for _ in 0..TURNS_MAX {
            self.pair.near.worker.poll(1);
            self.pair.far.worker.poll(1);
            let rows = self.rows();
            if is_wanted(&rows) {
                return rows;
            }
        }
        panic!("{what}: {:?}", self.rows())
    }
}

#[test]
fn the_page_shows_each_connection_with_its_bytes_and_frees_its_row_at_the_end() {
    let mut bench = Observed::new("each");
    assert_eq!(bench.rows(), []);
    let (near, far) = bench.pair.connect();
    bench.send_4096_bytes((near, far));
    let rows = bench.until("bytes", |rows| rows.first().is_some_and(|row| row.tx_bytes > 4096));
    let [row] = rows[..] else { panic!("{rows:?}") };
    assert_eq!((row.state, row.queue_pair), (ConnectionState::Established, Some(near.num().0)));
    assert_eq!((row.local.ip().to_string(), row.remote), ("10.0.0.1".to_owned(), bench.pair.at));
    // MPA's reply is more than its 20 bytes of header at most by the private data that is allowed.
    assert!((20..=532).contains(&row.rx_bytes), "{row:?}");
    assert!(row.srtt_ns > 0 && row.rto_ns >= row.srtt_ns && row.cwnd_bytes > 0, "{row:?}");
    assert_eq!((row.retransmits, row.flight_bytes), (0, 0));

    bench.pair.near.ctx.abort(near).expect("a queue pair");
    bench.until("its end", |rows| rows.is_empty());
}

/// More connections than rows: a connection that moves bytes is among those that are shown,
/// wherever its slot is.
#[test]
fn the_greediest_connections_have_the_rows() {
    let mut bench = Observed::new("greediest");
    let mut pairs: Vec<_> = (0..CONNECTION_ROWS + 20).map(|_| bench.pair.connect()).collect();
    let all = bench.until("a full table", |rows| rows.len() == CONNECTION_ROWS);
    let is_shown =
        |rows: &[ConnectionRow], number: u32| rows.iter().any(|row| row.queue_pair == Some(number));
    pairs.retain(|(near, _)| !is_shown(&all, near.num().0));
    assert_eq!(pairs.len(), 20, "one row for each connection");
    for pair in &pairs {
        bench.send_4096_bytes(*pair);
    }
    bench.until("the greediest", |rows| {
        rows.len() == CONNECTION_ROWS && pairs.iter().all(|(near, _)| is_shown(rows, near.num().0))
    });
}
