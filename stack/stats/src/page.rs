//! The page of all cores' counters, and its file.

use core::sync::atomic::Ordering::{Relaxed, Release};
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use ironwarp_arch::shared::{LINE_WORDS, SharedWords};

use crate::connections::{CONNECTION_ROWS, ConnectionRows, ROW_WORDS};
use crate::layout::{self, CORE_WORDS, HEADER_WORDS, Header};
use crate::{CoreStats, Counter};

/// The owner may write, everyone may read.
const FILE_MODE: u32 = 0o644;

/// The dimensions of a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PageDimensions {
    /// Cores.
    pub cores: u16,
    /// Ports of each core, at least one.
    pub ports: u8,
}

impl PageDimensions {
    fn count(self) -> usize {
        usize::from(self.cores) * usize::from(self.ports.max(1))
    }
}

/// The counters of a stack's cores.
///
/// In a file, the page exists from [`StatsPage::create`] until it is dropped; handles that count
/// may outlive it.
pub struct StatsPage {
    words: SharedWords,
    rows: PageDimensions,
    /// The word at which the connections begin; `None` on the heap, where nobody reads them.
    connections_at: Option<usize>,
    _file: Option<PageFile>,
}

impl StatsPage {
    /// Returns a page on the heap, which only this process reads.
    pub fn private(cores: u16) -> Self {
        Self::private_with_ports(PageDimensions { cores, ports: 1 })
    }

    /// The same for cores with several ports.
    pub fn private_with_ports(rows: PageDimensions) -> Self {
        let words = SharedWords::on_heap(HEADER_WORDS + rows.count() * CORE_WORDS);
        StatsPage { words, rows, connections_at: None, _file: None }
    }

    /// Creates a page in a new file at `path`, for [`StatsReader`](crate::StatsReader). Missing
    /// folders are created.
    ///
    /// A stale page of a dead process is replaced. A page in use, and a file that is not a page, is
    /// an [`ErrorKind::AlreadyExists`]. Choose a path in memory, such as under `/run` or
    /// `/dev/shm`.
    pub fn create(path: impl AsRef<Path>, cores: u16) -> io::Result<Self> {
        Self::create_with_ports(path, PageDimensions { cores, ports: 1 })
    }

    /// The same for cores with several ports.
    pub fn create_with_ports(path: impl AsRef<Path>, rows: PageDimensions) -> io::Result<Self> {
        let file = PageFile::create_locked(path.as_ref())?;
        let names = layout::names();
        let names_at = HEADER_WORDS + rows.count() * CORE_WORDS;
        let connections_at = (names_at + names.len().div_ceil(8)).next_multiple_of(LINE_WORDS);
        let connection_words = usize::from(rows.cores) * CONNECTION_ROWS * ROW_WORDS;
        let words = SharedWords::in_file(&file.file, connections_at + connection_words)?;
        write_header(&words, rows, (names_at, &names), connections_at);
        Ok(StatsPage { words, rows, connections_at: Some(connections_at), _file: Some(file) })
    }

    /// Returns the number of cores.
    pub fn cores(&self) -> u16 {
        self.rows.cores
    }

    /// Returns the counters of one core. For a core beyond the page's dimensions they are separate
    /// and not readable.
    pub fn core(&self, core: u16) -> CoreStats {
        self.port(0, core)
    }

    /// Returns the counters of one port on one core; those of the first port, number 0, are the
    /// core's own.
    pub fn port(&self, port: u8, core: u16) -> CoreStats {
        let PageDimensions { cores, ports } = self.rows;
        let row = usize::from(port) * usize::from(cores) + usize::from(core);
        let from = HEADER_WORDS + row * CORE_WORDS;
        let is_there = core < cores && port < ports.max(1);
        let block = is_there.then(|| self.words.slice(from..from + CORE_WORDS)).flatten();
        block.and_then(CoreStats::new).unwrap_or_else(CoreStats::detached)
    }

    /// Returns the rows of one core's connections. `None` for a page that no other process reads,
    /// and for a core beyond the page's dimensions.
    pub fn connections(&self, core: u16) -> Option<ConnectionRows> {
        let words = CONNECTION_ROWS * ROW_WORDS;
        let from = self.connections_at.filter(|_| core < self.rows.cores)? + usize::from(core) * words;
        self.words.slice(from..from + words).map(ConnectionRows::new)
    }

    /// Returns a counter's value, the sum over all cores and ports.
    pub fn total(&self, counter: Counter) -> u64 {
        let ports = 0..self.rows.ports.max(1);
        let each =
            ports.flat_map(|port| (0..self.rows.cores).map(move |core| self.port(port, core).read(counter)));
        each.fold(0, u64::wrapping_add)
    }
}

/// Writes names and header, the magic word last: a reader that sees it sees the rest.
fn write_header(
    words: &[core::sync::atomic::AtomicU64],
    rows: PageDimensions,
    (names_at, names): (usize, &str),
    connections_at: usize,
) {
    for (word, text) in words.iter().skip(names_at).zip(names.as_bytes().chunks(8)) {
        let mut bytes = [0; 8];
        bytes.iter_mut().zip(text).for_each(|(byte, text)| *byte = *text);
        word.store(u64::from_ne_bytes(bytes), Relaxed);
    }
    let set = |field: Header, value: u64| {
        words.iter().skip(field as usize).take(1).for_each(|w| w.store(value, Release))
    };
    set(Header::Version, layout::VERSION);
    set(Header::Cores, rows.cores.into());
    set(Header::Ports, rows.ports.into());
    set(Header::Counters, Counter::ALL.len() as u64);
    set(Header::CoreWords, CORE_WORDS as u64);
    set(Header::NamesAt, names_at as u64);
    set(Header::NamesBytes, names.len() as u64);
    set(Header::Pid, std::process::id().into());
    set(Header::ConnectionsAt, connections_at as u64);
    set(Header::ConnectionRows, CONNECTION_ROWS as u64);
    set(Header::ConnectionWords, ROW_WORDS as u64);
    set(Header::Magic, layout::MAGIC);
}

/// A file of this process, locked while it is in use and removed afterwards.
struct PageFile {
    file: File,
    path: PathBuf,
}

impl PageFile {
    fn create_locked(path: &Path) -> io::Result<Self> {
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            fs::create_dir_all(folder)?;
        }
        let file = match new_file(path) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                remove_stale(path)?;
                new_file(path)?
            }
            opened => opened?,
        };
        let page_file = PageFile { file, path: path.to_path_buf() };
        page_file.file.try_lock()?;
        Ok(page_file)
    }
}

impl Drop for PageFile {
    fn drop(&mut self) {
        // Another process may have put another file at the path, so only our own is removed. An
        // error cannot be reported here.
        let ours = |there: fs::Metadata| self.file.metadata().is_ok_and(|ours| same_file(&ours, &there));
        if fs::symlink_metadata(&self.path).is_ok_and(ours) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn new_file(path: &Path) -> io::Result<File> {
    File::options().read(true).write(true).create_new(true).mode(FILE_MODE).open(path)
}

/// Removes a page whose process is gone: the lock ended with the process.
#[cold]
fn remove_stale(path: &Path) -> io::Result<()> {
    let already_exists = || io::Error::new(ErrorKind::AlreadyExists, format!("{} exists", path.display()));
    if !fs::symlink_metadata(path)?.is_file() {
        return Err(already_exists());
    }
    let file = File::open(path)?;
    let mut magic = [0; 8];
    file.read_exact_at(&mut magic, 0).map_err(|_| already_exists())?;
    if u64::from_ne_bytes(magic) != layout::MAGIC || file.try_lock().is_err() {
        return Err(already_exists());
    }
    fs::remove_file(path)
}

fn same_file(one: &fs::Metadata, other: &fs::Metadata) -> bool {
    (one.dev(), one.ino()) == (other.dev(), other.ino())
}
