//! Pages and their readers, and what the list of counters promises.

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use proptest::prelude::*;

use crate::layout::Header;
use crate::*;

/// A path of its own for each test; whatever is there at the end is removed.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("ironwarp-stats-{}-{name}", std::process::id()));
        Place(folder)
    }

    fn page(&self) -> PathBuf {
        self.0.join("ironwarp").join("1.stats")
    }

    /// Puts a file there that is not a page of this process.
    fn put(&self, bytes: &[u8]) {
        fs::create_dir_all(self.page().parent().unwrap()).unwrap();
        fs::write(self.page(), bytes).unwrap();
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn index_of(reader: &StatsReader, name: &str) -> usize {
    reader.counters().iter().position(|counter| counter.name == name).unwrap()
}

#[test]
fn a_reader_sees_each_core_and_the_totals_as_they_are_now() {
    let place = Place::new("sees");
    let page = StatsPage::create(place.page(), 3).unwrap();
    let reader = StatsReader::open(place.page()).unwrap();
    page.core(0).add(Counter::PortRxFrames, 5);
    page.core(2).add(Counter::PortRxFrames, 7);
    page.core(2).count(Counter::PortTxFrames);
    let sample = reader.sample().unwrap();
    let (rx, tx) = (index_of(&reader, "port_rx_frames"), index_of(&reader, "port_tx_frames"));
    assert_eq!([0, 1, 2].map(|core| sample.core(core).unwrap()[rx]), [5, 0, 7]);
    assert_eq!((sample.totals()[rx], sample.totals()[tx]), (12, 1));
    assert_eq!(sample.core(3), None);
    assert_eq!((reader.cores(), reader.pid()), (3, std::process::id()));
    assert_eq!((page.total(Counter::PortRxFrames), page.cores()), (12, 3));
}

/// What a core counts of its further ports has a row of its own; what it counts of the first is
/// among its own.
#[test]
fn each_core_has_a_row_for_each_port() {
    let place = Place::new("ports");
    let rows = PageDimensions { cores: 2, ports: 3 };
    let (page, private) =
        (StatsPage::create_with_ports(place.page(), rows).unwrap(), StatsPage::private_with_ports(rows));
    let reader = StatsReader::open(place.page()).unwrap();
    assert_eq!((reader.cores(), reader.ports()), (2, 3));
    for page in [&page, &private] {
        page.core(1).add(Counter::PortRxFrames, 1);
        page.port(1, 0).add(Counter::PortRxFrames, 20);
        page.port(2, 1).add(Counter::PortRxFrames, 300);
        // Neither is there: nobody sees it, and no other row has it.
        page.port(0, 2).add(Counter::PortRxFrames, 4000);
        page.port(3, 0).add(Counter::PortRxFrames, 4000);
        assert_eq!(page.total(Counter::PortRxFrames), 321);
        assert_eq!(page.port(0, 1).read(Counter::PortRxFrames), 1);
    }
    let (sample, rx) = (reader.sample().unwrap(), index_of(&reader, "port_rx_frames"));
    let read = |port| [0, 1].map(|core| sample.port(port, core).unwrap()[rx]);
    assert_eq!([0, 1, 2].map(read), [[0, 1], [20, 0], [0, 300]]);
    assert_eq!((sample.core(1).unwrap()[rx], sample.totals()[rx]), (1, 321));
    assert_eq!((sample.core(2), sample.port(3, 0), sample.port(usize::MAX, 1)), (None, None, None));
}

#[test]
fn a_page_names_its_counters_as_the_list_does() {
    let place = Place::new("names");
    let _page = StatsPage::create(place.page(), 1).unwrap();
    let reader = StatsReader::open(place.page()).unwrap();
    let named: Vec<_> = reader.counters().iter().map(|c| (&*c.layer, &*c.name, &*c.help)).collect();
    let listed: Vec<_> = Counter::ALL.iter().map(|c| (c.layer(), c.name(), c.help())).collect();
    assert_eq!(named, listed);
}

#[test]
fn a_reader_of_another_build_goes_by_the_pages_own_description() {
    let place = Place::new("build");
    let mut words = [0u64; 32];
    words[Header::Magic as usize] = layout::MAGIC;
    words[Header::Version as usize] = layout::VERSION;
    (words[Header::Cores as usize], words[Header::Counters as usize]) = (2, 1);
    (words[Header::CoreWords as usize], words[Header::NamesAt as usize]) = (4, 26);
    (words[Header::NamesBytes as usize], words[Header::Pid as usize]) = (18, 77);
    (words[16], words[20]) = (111, 222);
    let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    bytes[26 * 8..26 * 8 + 18].copy_from_slice(b"mars\tdust\tGrains.\n");
    place.put(&bytes);
    let reader = StatsReader::open(place.page()).unwrap();
    let dust = CounterInfo { layer: "mars".into(), name: "dust".into(), help: "Grains.".into() };
    assert_eq!((reader.counters(), reader.pid()), (&[dust][..], 77));
    assert_eq!(reader.sample().unwrap().totals(), [333]);
}

fn connection(remote: &str) -> ConnectionRow {
    ConnectionRow {
        local: if remote.starts_with('[') { "[fd00::1]:4791" } else { "10.0.0.1:4791" }.parse().unwrap(),
        remote: remote.parse().unwrap(),
        protocol: 132,
        state: ConnectionState::Established,
        queue_pair: Some(0),
        tx_bytes: 1 << 40,
        rx_bytes: 5,
        retransmits: 6,
        srtt_ns: 7,
        rto_ns: 8,
        cwnd_bytes: 9,
        flight_bytes: 10,
        paths: 4,
        paths_up: 3,
    }
}

#[test]
fn a_reader_sees_the_connections_that_each_core_shows() {
    let place = Place::new("connections");
    let page = StatsPage::create(place.page(), 2).unwrap();
    let (reader, rows) = (StatsReader::open(place.page()).unwrap(), page.connections(1).unwrap());
    let (v4, v6) = (connection("10.0.0.2:9"), connection("[fd00::2]:65535"));
    let passive = ConnectionRow { queue_pair: None, state: ConnectionState::SynReceived, ..v4 };
    rows.write(0, Some(&v4));
    rows.write(1, Some(&v6));
    rows.write(CONNECTION_ROWS - 1, Some(&passive));
    rows.write(CONNECTION_ROWS, Some(&v4));
    page.connections(0).unwrap().write(3, Some(&v6));
    assert_eq!(reader.connections().unwrap(), [vec![v6], vec![v4, v6, passive]]);
    rows.write(0, None);
    assert_eq!(reader.connections().unwrap()[1], [v6, passive]);
    assert!(page.connections(2).is_none() && StatsPage::private(1).connections(0).is_none());
    let sample = reader.sample().unwrap();
    assert!(sample.totals().iter().all(|value| *value == 0), "the rows are beyond the counters");
}

/// A row is left out while its version is odd, and if it has a state or an address family that this
/// build does not know.
#[test]
fn a_row_that_changes_and_one_without_meaning_are_left_out() {
    let place = Place::new("changing");
    let page = StatsPage::create(place.page(), 1).unwrap();
    page.connections(0).unwrap().write(0, Some(&connection("10.0.0.2:9")));
    let bytes = fs::read(place.page()).unwrap();
    drop(page);
    let header = |field: Header| {
        let at = field as usize * 8;
        usize::from_ne_bytes(bytes[at..at + 8].try_into().unwrap())
    };
    let at = header(Header::ConnectionsAt) * 8;
    let shown = |word: usize, value: u64| {
        let mut bytes = bytes.clone();
        bytes[at + word * 8..at + word * 8 + 8].copy_from_slice(&value.to_ne_bytes());
        place.put(&bytes);
        StatsReader::open(place.page()).unwrap().connections().unwrap()[0].len()
    };
    assert_eq!([shown(0, 2), shown(0, 3)], [1, 0]);
    assert_eq!(
        [shown(1, 4 << 8 | 3), shown(1, 4 << 8 | 99), shown(1, 4 << 8), shown(1, 5 << 8 | 3)],
        [1, 0, 0, 0]
    );
}

#[test]
fn every_state_has_its_code_and_name() {
    let place = Place::new("states");
    let page = StatsPage::create(place.page(), 1).unwrap();
    let (rows, reader) = (page.connections(0).unwrap(), StatsReader::open(place.page()).unwrap());
    let states = {
        use ConnectionState::*;
        [SynSent, SynReceived, Established, FinWait1, FinWait2, CloseWait, Closing, LastAck, TimeWait, Closed]
    };
    for (row, state) in states.into_iter().enumerate() {
        rows.write(row, Some(&ConnectionRow { state, ..connection("10.0.0.2:9") }));
    }
    let read: Vec<_> = reader.connections().unwrap()[0].iter().map(|row| row.state).collect();
    assert_eq!(read, states);
    let names: HashSet<_> = states.iter().map(|state| state.name()).collect();
    assert_eq!(names.len(), states.len());
}

#[test]
fn a_private_page_counts_like_any_other_and_a_core_outside_it_changes_nothing() {
    let page = StatsPage::private(2);
    page.core(1).add(Counter::PortTxFrames, 9);
    page.core(2).add(Counter::PortTxFrames, 100);
    assert_eq!(page.total(Counter::PortTxFrames), 9);
    assert_eq!(page.core(0).read(Counter::PortTxFrames), 0);
}

#[test]
fn the_file_goes_with_the_page_and_counting_goes_on() {
    let place = Place::new("goes");
    let page = StatsPage::create(place.page(), 1).unwrap();
    let (stats, reader) = (page.core(0), StatsReader::open(place.page()).unwrap());
    assert!(!reader.is_removed());
    drop(page);
    assert!(!place.page().exists() && reader.is_removed());
    stats.count(Counter::PortRxFrames);
    assert_eq!(stats.read(Counter::PortRxFrames), 1);
}

#[test]
fn a_page_in_use_is_not_taken_and_one_left_behind_is_replaced() {
    let place = Place::new("use");
    let first = StatsPage::create(place.page(), 1).unwrap();
    let refused = StatsPage::create(place.page(), 1).err().unwrap();
    assert_eq!(refused.kind(), std::io::ErrorKind::AlreadyExists);
    let left_behind = fs::read(place.page()).unwrap();
    drop(first);
    place.put(&left_behind);
    let second = StatsPage::create(place.page(), 1).unwrap();
    second.core(0).count(Counter::PortRxFrames);
    let reader = StatsReader::open(place.page()).unwrap();
    assert_eq!(reader.sample().unwrap().totals()[Counter::PortRxFrames as usize], 1);
}

#[test]
fn a_file_that_is_not_a_page_is_left_alone() {
    let place = Place::new("alone");
    for foreign in [&b""[..], b"precious", b"somebody's thesis, chapter one"] {
        place.put(foreign);
        assert_eq!(
            StatsPage::create(place.page(), 1).err().unwrap().kind(),
            std::io::ErrorKind::AlreadyExists
        );
        assert_eq!(fs::read(place.page()).unwrap(), foreign);
        assert!(matches!(StatsReader::open(place.page()), Err(ReadError::NotAPage)));
    }
}

#[test]
fn a_page_that_was_replaced_at_its_path_does_not_remove_its_successor() {
    let place = Place::new("successor");
    let page = StatsPage::create(place.page(), 1).unwrap();
    fs::remove_file(place.page()).unwrap();
    place.put(b"another");
    drop(page);
    assert_eq!(fs::read(place.page()).unwrap(), b"another");
}

#[test]
fn a_folder_a_missing_file_and_another_layout_are_named_errors() {
    let place = Place::new("errors");
    assert!(matches!(StatsReader::open(place.page()), Err(ReadError::Io(_))));
    let page = StatsPage::create(place.page(), 1).unwrap();
    assert!(matches!(StatsReader::open(&place.0), Err(ReadError::NotAPage)));
    let file = fs::File::options().write(true).open(place.page()).unwrap();
    file.write_all_at(&9u64.to_ne_bytes(), Header::Version as u64 * 8).unwrap();
    assert!(matches!(StatsReader::open(place.page()), Err(ReadError::Version(9))));
    drop(page);
}

#[test]
fn a_page_cut_short_under_its_reader_is_an_error() {
    let place = Place::new("cut");
    place.put(&page_bytes());
    let reader = StatsReader::open(place.page()).unwrap();
    fs::File::options().write(true).open(place.page()).unwrap().set_len(100).unwrap();
    assert!(matches!(reader.sample(), Err(ReadError::Io(_))));
}

#[test]
fn names_are_snake_case_begin_with_their_layer_and_occur_once() {
    let mut seen = HashSet::new();
    for counter in Counter::ALL {
        let (name, layer, help) = (counter.name(), counter.layer(), counter.help());
        assert!(name.strip_prefix(layer).is_some_and(|rest| rest.starts_with('_')), "{name}");
        assert!(name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_'), "{name}");
        assert!(help.ends_with('.') && !help.contains(char::is_control), "{name}: {help}");
        assert!(
            layer.len() + name.len() + help.len() <= 250,
            "{name}: a line of the table is at most 256 bytes"
        );
        assert!(seen.insert(name), "{name} twice");
    }
}

/// The file of a page for two cores.
fn page_bytes() -> Vec<u8> {
    static BYTES: std::sync::OnceLock<Vec<u8>> = std::sync::OnceLock::new();
    BYTES
        .get_or_init(|| {
            let place = Place::new("bytes");
            let page = StatsPage::create(place.page(), 2).unwrap();
            let bytes = fs::read(place.page()).unwrap();
            drop(page);
            bytes
        })
        .clone()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..Default::default() })]

    #[test]
    fn no_header_however_wrong_does_more_than_fail(
        field in 0..16usize,
        value in prop_oneof![any::<u64>(), 0..10_000u64, Just(u64::MAX), Just(1 << 61)],
        length in any::<proptest::sample::Index>(),
        cut in any::<bool>(),
    ) {
        let place = Place::new("hostile");
        let mut bytes = page_bytes();
        bytes[field * 8..field * 8 + 8].copy_from_slice(&value.to_ne_bytes());
        if cut {
            bytes.truncate(length.index(bytes.len()));
        }
        place.put(&bytes);
        if let Ok(reader) = StatsReader::open(place.page()) {
            let sample = reader.sample().unwrap();
            prop_assert_eq!(reader.connections().unwrap().len(), reader.cores());
            prop_assert_eq!(sample.totals().len(), if reader.cores() > 0 { reader.counters().len() } else { 0 });
        }
    }

    #[test]
    fn no_table_of_names_however_wrong_does_more_than_fail(
        at in any::<proptest::sample::Index>(),
        noise in proptest::collection::vec(any::<u8>(), 1..40),
    ) {
        let place = Place::new("noise");
        let mut bytes = page_bytes();
        let names = layout::names().len();
        let names_at = Header::NamesAt as usize * 8;
        let names_at = usize::from_ne_bytes(bytes[names_at..names_at + 8].try_into().unwrap()) * 8;
        let at = names_at + at.index(names - noise.len());
        bytes[at..at + noise.len()].copy_from_slice(&noise);
        place.put(&bytes);
        if let Ok(reader) = StatsReader::open(place.page()) {
            prop_assert_eq!(reader.counters().len(), Counter::ALL.len());
            prop_assert!(!reader.counters().iter().any(|c| c.name.contains(char::is_control)));
        }
    }
}
