//! The layout of a page, in 64-bit words of the machine's byte order.
//!
//! ```text
//! 0       header: the words below
//! 16      one block a core, each in lines of its own: one word a counter, in the order of the names; where a core has
//!         several ports, behind all of these one block a core for what it counts of the second port, and so on
//! names   the table of names: a line of text a counter, "layer<TAB>name<TAB>meaning<LF>"
//! rows    the connections of each core, the same number of rows for each; `connections.rs` has the words of a row
//! ```
//! A reader uses only the header and the names, so it may be of another build than the writer.

use ironwarp_arch::shared::LINE_WORDS;

use crate::Counter;

/// The first word of every page, written last: "ironwarp" on a little-endian machine.
pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"ironwarp");

/// Changed when a reader of the old layout would misread the new one. New counters do not change
/// it.
pub(crate) const VERSION: u64 = 1;

/// Words of the header, one line; the blocks follow.
pub(crate) const HEADER_WORDS: usize = LINE_WORDS;

/// Words of one core's block in this build.
pub(crate) const CORE_WORDS: usize = Counter::ALL.len().next_multiple_of(LINE_WORDS);

/// The words of the header, by index.
#[derive(Clone, Copy)]
#[repr(usize)]
pub(crate) enum Header {
    /// [`MAGIC`].
    Magic,
    /// [`VERSION`].
    Version,
    /// Number of cores.
    Cores,
    /// Number of counters.
    Counters,
    /// Words from one core's block to the next.
    CoreWords,
    /// The word at which the names begin.
    NamesAt,
    /// Bytes of names.
    NamesBytes,
    /// The process that writes.
    Pid,
    /// Number of ports of each core. 0, as in pages without the word, means one.
    Ports,
    /// The word at which the connections begin. 0, as in pages without the word: there are none.
    ConnectionsAt,
    /// Rows of connections for each core.
    ConnectionRows,
    /// Words from one row of connections to the next.
    ConnectionWords,
}

/// Returns the table of names of this build.
pub(crate) fn names() -> String {
    let line = |counter: &Counter| format!("{}\t{}\t{}\n", counter.layer(), counter.name(), counter.help());
    Counter::ALL.iter().map(line).collect()
}
