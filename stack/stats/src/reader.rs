//! Reads another process's page.
//!
//! Takes a path; gives names once and values any number of times. The page is read as a file and
//! never mapped, and everything in it is checked before use. A damaged, truncated or malicious file
//! gives an error or wrong numbers, and nothing worse. Uses the page's own description: the writer
//! may be of another build.

use core::ops::Range;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use crate::connections::{self, ConnectionRow};
use crate::layout::{self, HEADER_WORDS, Header};

/// The largest number of cores, or cores times ports, of a page: far beyond any machine, small
/// enough to bound what is read.
const CORES_MAX: usize = 1024;

/// The largest number of counters of a page.
const COUNTERS_MAX: usize = 4096;

/// The longest table of names: 256 bytes for each counter.
const NAMES_BYTES_MAX: usize = COUNTERS_MAX * 256;

/// The largest number of rows of connections of all cores together, and of words of a row: 4 MiB
/// are read at most.
const CONNECTION_ROWS_MAX: usize = 16 * 1024;
const CONNECTION_WORDS_MAX: usize = 32;

/// How often the connections are read until no row changes; a row that changes each time is left
/// out.
const CONNECTION_READS_MAX: usize = 4;

/// Why a page could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The file cannot be opened or read, or became shorter.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The file is not a page of counters, or not complete yet.
    #[error("not a page of counters")]
    NotAPage,
    /// The layout is unknown to this build.
    #[error("a page of layout {0}, which this build cannot read")]
    Version(u64),
    /// The header is inconsistent.
    #[error("a page that contradicts itself")]
    Corrupt,
}

/// The description of a counter.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CounterInfo {
    /// The layer that counts.
    pub layer: String,
    /// The name, in snake case.
    pub name: String,
    /// The meaning, in one line.
    pub help: String,
}

/// The values of a page at one time, in the order of [`StatsReader::counters`].
///
/// Each value was read at some moment; two values need not be of the same moment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sample {
    /// Values of the cores, then of the cores for the second port, and so on.
    rows: Box<[Box<[u64]>]>,
    cores: usize,
}

/// An open page.
#[derive(Debug)]
pub struct StatsReader {
    file: File,
    header: PageHeader,
    counters: Box<[CounterInfo]>,
}

/// The checked header: everything it names is inside a file of bounded size.
#[derive(Clone, Copy, Debug)]
struct PageHeader {
    cores: usize,
    ports: usize,
    counters: usize,
    core_words: usize,
    names_at: usize,
    names_bytes: usize,
    pid: u32,
    /// The connections of each core; `None` in a page without them.
    connections: Option<ConnectionTable>,
}

/// Where the connections lie.
#[derive(Clone, Copy, Debug)]
struct ConnectionTable {
    at: usize,
    /// Of each core.
    rows: usize,
    row_words: usize,
}

impl StatsReader {
    /// Opens the page at `path` and reads its names.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, ReadError> {
        let path = path.as_ref();
        // Opening a pipe would wait for its other end.
        if !std::fs::metadata(path)?.is_file() {
            return Err(ReadError::NotAPage);
        }
        let file = File::open(path)?;
        let header = PageHeader::read(&file)?;
        let counters = names(&file, &header)?;
        Ok(StatsReader { file, header, counters })
    }

    /// Returns the descriptions of the counters, in the order of a sample's values.
    pub fn counters(&self) -> &[CounterInfo] {
        &self.counters
    }

    /// Returns the number of cores.
    pub fn cores(&self) -> usize {
        self.header.cores
    }

    /// Returns the number of ports of each core, at least one.
    pub fn ports(&self) -> usize {
        self.header.ports
    }

    /// Returns the process that counts.
    pub fn pid(&self) -> u32 {
        self.header.pid
    }

    /// Reads every value.
    pub fn sample(&self) -> Result<Sample, ReadError> {
        let rows = (0..self.header.rows()).map(|row| {
            let words = read_words(&self.file, self.header.block(row))?;
            Ok(words.into_boxed_slice())
        });
        Ok(Sample { rows: rows.collect::<Result<_, ReadError>>()?, cores: self.header.cores })
    }

    /// Reads the connections that each core shows, by core.
    pub fn connections(&self) -> Result<Vec<Vec<ConnectionRow>>, ReadError> {
        let Some(table) = self.header.connections else { return Ok(vec![Vec::new(); self.cores()]) };
        let row_words = table.row_words;
        let words = table.at..table.at + self.cores() * table.rows * row_words;
        let mut before = read_words(&self.file, words.clone())?;
        let mut rows: Vec<Option<ConnectionRow>> = vec![None; self.cores() * table.rows];
        let mut changing: Vec<usize> = (0..rows.len()).collect();
        for _ in 1..CONNECTION_READS_MAX {
            let now = read_words(&self.file, words.clone())?;
            changing.retain(|row| {
                let words = row * row_words..(row + 1) * row_words;
                let [first, second] = [&before, &now].map(|all| all.get(words.clone()).unwrap_or_default());
                let stable = connections::is_stable(first, second);
                if let Some(place) = rows.get_mut(*row).filter(|_| stable) {
                    *place = connections::decode(first);
                }
                !stable
            });
            if changing.is_empty() {
                break;
            }
            before = now;
        }
        Ok(rows.chunks(table.rows.max(1)).map(|core| core.iter().flatten().copied().collect()).collect())
    }

    /// Whether the page's file is gone: its process has ended, or no longer counts there.
    pub fn is_removed(&self) -> bool {
        self.file.metadata().is_ok_and(|metadata| metadata.nlink() == 0)
    }
}

impl Sample {
    /// The values of one core. What it counts of further ports is apart.
    pub fn core(&self, core: usize) -> Option<&[u64]> {
        self.port(0, core)
    }

    /// What one core counts of one of its ports; of the first, number 0, among all that it counts.
    pub fn port(&self, port: usize, core: usize) -> Option<&[u64]> {
        let row = port.checked_mul(self.cores)?.checked_add(core).filter(|_| core < self.cores)?;
        self.rows.get(row).map(AsRef::as_ref)
    }

    /// The values of all cores and ports together.
    pub fn totals(&self) -> Vec<u64> {
        let mut totals = vec![0u64; self.rows.first().map_or(0, |row| row.len())];
        for core in &self.rows {
            totals.iter_mut().zip(core).for_each(|(total, value)| *total = total.wrapping_add(*value));
        }
        totals
    }
}

impl PageHeader {
    fn read(file: &File) -> Result<Self, ReadError> {
        let words = read_words(file, 0..HEADER_WORDS).map_err(|error| match error {
            ReadError::Io(error) if error.kind() != io::ErrorKind::UnexpectedEof => error.into(),
            _ => ReadError::NotAPage,
        })?;
        let word = |field: Header| words.get(field as usize).copied().unwrap_or(0);
        match (word(Header::Magic), word(Header::Version)) {
            (layout::MAGIC, layout::VERSION) => {}
            (layout::MAGIC, version) => return Err(ReadError::Version(version)),
            _ => return Err(ReadError::NotAPage),
        }
        let cores = check_limit(word(Header::Cores), CORES_MAX)?;
        let header = PageHeader {
            cores,
            ports: check_limit(word(Header::Ports).max(1), CORES_MAX / cores.max(1))?,
            counters: check_limit(word(Header::Counters), COUNTERS_MAX)?,
            core_words: check_limit(word(Header::CoreWords), 2 * COUNTERS_MAX)?,
            names_at: check_limit(word(Header::NamesAt), HEADER_WORDS + 2 * COUNTERS_MAX * CORES_MAX)?,
            names_bytes: check_limit(word(Header::NamesBytes), NAMES_BYTES_MAX)?,
            pid: word(Header::Pid).try_into().map_err(|_| ReadError::Corrupt)?,
            connections: ConnectionTable::read(&word, cores)?,
        };
        header.fits(file.metadata()?.len()).then_some(header).ok_or(ReadError::Corrupt)
    }

    /// Whether blocks and names lie behind the header, apart from each other, inside a file of so
    /// many bytes. None of these sums can overflow: each term is bounded.
    fn fits(&self, file_bytes: u64) -> bool {
        let blocks_end = HEADER_WORDS + self.rows() * self.core_words;
        let end_bytes = self.names_at * 8 + self.names_bytes;
        self.counters <= self.core_words
            && blocks_end <= self.names_at
            && end_bytes as u64 <= file_bytes
            && self.connections.is_none_or(|table| table.fits(self.cores, end_bytes, file_bytes))
    }

    fn rows(&self) -> usize {
        self.cores * self.ports
    }

    /// The words of a row's values.
    fn block(&self, row: usize) -> Range<usize> {
        let from = HEADER_WORDS + row * self.core_words;
        from..from + self.counters
    }
}

impl ConnectionTable {
    fn read(word: &impl Fn(Header) -> u64, cores: usize) -> Result<Option<Self>, ReadError> {
        let names_end_max = HEADER_WORDS + 2 * COUNTERS_MAX * CORES_MAX + NAMES_BYTES_MAX;
        let table = ConnectionTable {
            at: check_limit(word(Header::ConnectionsAt), names_end_max)?,
            rows: check_limit(word(Header::ConnectionRows), CONNECTION_ROWS_MAX / cores.max(1))?,
            row_words: check_limit(word(Header::ConnectionWords), CONNECTION_WORDS_MAX)?,
        };
        Ok(Some(table).filter(|table| table.at != 0 && table.rows != 0 && table.row_words != 0))
    }

    /// Whether the rows of all cores lie behind the names, inside the file. No sum can overflow.
    fn fits(self, cores: usize, names_end_bytes: usize, file_bytes: u64) -> bool {
        let end_bytes = (self.at + cores * self.rows * self.row_words) * 8;
        names_end_bytes <= self.at * 8 && end_bytes as u64 <= file_bytes
    }
}

fn check_limit(value: u64, limit: usize) -> Result<usize, ReadError> {
    usize::try_from(value).ok().filter(|value| *value <= limit).ok_or(ReadError::Corrupt)
}

fn names(file: &File, header: &PageHeader) -> Result<Box<[CounterInfo]>, ReadError> {
    let mut text = vec![0; header.names_bytes];
    file.read_exact_at(&mut text, header.names_at as u64 * 8)?;
    let text = String::from_utf8(text).map_err(|_| ReadError::Corrupt)?;
    let counters: Option<Box<[_]>> = text.lines().map(parse_name).collect();
    counters.filter(|counters| counters.len() == header.counters).ok_or(ReadError::Corrupt)
}

fn parse_name(line: &str) -> Option<CounterInfo> {
    // A name is printed on terminals: what would steer one is no name.
    let mut fields =
        line.split('\t').map(|field| Some(field.to_owned()).filter(|f| !f.contains(char::is_control)));
    let (layer, name, help) = (fields.next()??, fields.next()??, fields.next()??);
    fields.next().is_none().then_some(CounterInfo { layer, name, help })
}

fn read_words(file: &File, words: Range<usize>) -> Result<Vec<u64>, ReadError> {
    let mut bytes = vec![0; words.len() * 8];
    file.read_exact_at(&mut bytes, words.start as u64 * 8)?;
    let (words, _) = bytes.as_chunks::<8>();
    Ok(words.iter().map(|word| u64::from_ne_bytes(*word)).collect())
}
