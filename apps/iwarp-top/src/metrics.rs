//! A page in the text format of Prometheus.
//!
//! Each counter becomes `ironwarp_NAME_total` with label `core`; one that is counted by port has label `port` too.
//! `ironwarp_up` is 1 while the process counts. The page may be of any build or damaged: a name that Prometheus does not
//! allow is left out. The size is bounded by what `ironwarp_stats` reads.

use std::fmt::Write;
use std::path::Path;

use ironwarp_stats::{CounterInfo, ReadError, Sample, StatsReader};

use crate::snapshot::{PORT_LAYERS, has_ended};

/// The type of the text.
pub(crate) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Reads the page as it is now. A page that is absent, incomplete or left by an ended process gives `ironwarp_up 0` alone.
pub(crate) fn scrape(page: &Path) -> String {
    match read(page) {
        Ok((reader, sample)) => metrics(&reader, &sample),
        Err(error) => {
            tracing::info!("{}: {error}", page.display());
            up(0)
        }
    }
}

#[derive(Debug, thiserror::Error)]
enum ScrapeError {
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error("process {0} has ended")]
    Ended(u32),
}

/// Opens the page anew: the process may have been started again and have another page of that name.
fn read(page: &Path) -> Result<(StatsReader, Sample), ScrapeError> {
    let reader = StatsReader::open(page)?;
    let sample = reader.sample()?;
    if has_ended(&reader) { Err(ScrapeError::Ended(reader.pid())) } else { Ok((reader, sample)) }
}

fn up(value: u8) -> String {
    let help = "Whether a process counts in the page.";
    format!("# HELP ironwarp_up {help}\n# TYPE ironwarp_up gauge\nironwarp_up {value}\n")
}

fn metrics(reader: &StatsReader, sample: &Sample) -> String {
    let mut text = up(1);
    for (index, info) in reader.counters().iter().enumerate().filter(|(_, info)| is_allowed(&info.name)) {
        let CounterInfo { layer, name, help } = info;
        let help = help.replace('\\', "\\\\");
        let _ = writeln!(text, "# HELP ironwarp_{name}_total {help}");
        let _ = writeln!(text, "# TYPE ironwarp_{name}_total counter");
        let by_port = PORT_LAYERS.contains(&layer.as_str());
        for core in 0..reader.cores() {
            let value =
                |port| sample.port(port, core).and_then(|values| values.get(index)).copied().unwrap_or(0);
            if by_port {
                for port in 0..reader.ports() {
                    let labels = format_args!("core=\"{core}\",port=\"{port}\"");
                    let _ = writeln!(text, "ironwarp_{name}_total{{{labels}}} {}", value(port));
                }
            } else {
                let sum = (0..reader.ports()).map(value).fold(0, u64::wrapping_add);
                let _ = writeln!(text, "ironwarp_{name}_total{{core=\"{core}\"}} {sum}");
            }
        }
    }
    text
}

/// Whether a name may be part of a metric's name. It stands behind a prefix, so it may begin with a digit.
fn is_allowed(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}
