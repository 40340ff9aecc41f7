//! A look at a page: what every counter says, and how fast it grew since the look before.

use std::path::Path;
use std::time::Instant;

use ironwarp_stats::{CounterInfo, ReadError, Sample, StatsReader};
use serde_json::{Map, Value, json};

/// The version of the JSON.
const SCHEMA: u32 = 1;

/// What is looked at.
pub(crate) struct Subject {
    reader: StatsReader,
    last: Option<(Instant, Sample)>,
}

/// One look.
pub(crate) struct Look<'a> {
    pub(crate) pid: u32,
    pub(crate) counters: &'a [CounterInfo],
    now: Sample,
    /// The sample before, and the seconds since then.
    before: Option<(f64, Sample)>,
    cores: usize,
}

impl Subject {
    pub(crate) fn open(page: &Path) -> Result<Self, ReadError> {
        Ok(Subject { reader: StatsReader::open(page)?, last: None })
    }

    /// Whether whoever counts there has ended. A process that was killed leaves its page behind.
    pub(crate) fn has_ended(&self) -> bool {
        self.reader.is_removed() || !Path::new("/proc").join(self.reader.pid().to_string()).exists()
    }

    pub(crate) fn look(&mut self) -> Result<Look<'_>, ReadError> {
        let (at, now) = (Instant::now(), self.reader.sample()?);
        let last = self.last.replace((at, now.clone()));
        let before = last.map(|(then, sample)| (at.duration_since(then).as_secs_f64(), sample));
        let (pid, cores) = (self.reader.pid(), self.reader.cores());
        Ok(Look { pid, counters: self.reader.counters(), now, before, cores })
    }
}

impl Look<'_> {
    pub(crate) fn cores(&self) -> usize {
        self.cores
    }

    /// Seconds since the look before.
    pub(crate) fn seconds(&self) -> Option<f64> {
        self.before.as_ref().map(|(seconds, _)| *seconds)
    }

    /// What a counter of a core says.
    pub(crate) fn value(&self, core: usize, counter: usize) -> u64 {
        at(&self.now, core, counter)
    }

    /// How much a counter of a core grew in a second.
    pub(crate) fn rate(&self, core: usize, counter: usize) -> Option<f64> {
        let (seconds, before) = self.before.as_ref()?;
        let grown = self.value(core, counter).wrapping_sub(at(before, core, counter));
        Some(grown as f64 / seconds.max(f64::EPSILON))
    }

    /// The place of a counter, where the process has one of that name.
    pub(crate) fn place(&self, name: &str) -> Option<usize> {
        self.counters.iter().position(|counter| counter.name == name)
    }

    /// All of it as one line.
    pub(crate) fn json(&self) -> Value {
        let cores = (0..self.cores).map(|core| {
            json!({
                "core": core,
                "counters": self.by_name(|counter| self.value(core, counter).into()),
                "per_second": self.before.as_ref().map(|_| self.by_name(|counter| self.rate(core, counter).into())),
            })
        });
        json!({
            "schema": SCHEMA, "pid": self.pid, "seconds": self.seconds(), "cores": cores.collect::<Vec<_>>(),
        })
    }

    fn by_name(&self, value: impl Fn(usize) -> Value) -> Map<String, Value> {
        self.counters.iter().enumerate().map(|(place, info)| (info.name.clone(), value(place))).collect()
    }
}

fn at(sample: &Sample, core: usize, counter: usize) -> u64 {
    sample.core(core).and_then(|values| values.get(counter)).copied().unwrap_or(0)
}
