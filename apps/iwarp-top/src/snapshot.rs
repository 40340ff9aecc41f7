//! A snapshot of a page: the value of every counter and its rate since the snapshot before, by core
//! and by port, the connections that the process shows, and its NVMe namespaces. What names a
//! counter is printable here.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use ironwarp_stats::{ConnectionRow, CounterInfo, ReadError, Sample, StatsReader};
use serde_json::{Map, Value, json};

use crate::namespaces::{self, Namespaces};
use crate::printable::printable;

const SCHEMA: u32 = 1;
pub(crate) const PORT_LAYERS: [&str; 2] = ["port", "net"];

/// The process and its page.
pub(crate) struct ObservedProcess {
    page: PathBuf,
    reader: StatsReader,
    counters: Arc<[CounterInfo]>,
    last: Option<(Instant, Sample, Vec<Connection>)>,
    last_namespaces: Option<Namespaces>,
}

/// A connection and its core.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Connection {
    pub(crate) core: usize,
    pub(crate) row: ConnectionRow,
}

#[derive(Clone)]
pub(crate) struct Snapshot {
    pub(crate) pid: u32,
    pub(crate) counters: Arc<[CounterInfo]>,
    now: Sample,
    /// The sample before, and the seconds since then.
    before: Option<(f64, Sample)>,
    /// The connections that the process shows: of each core those that moved the most bytes.
    pub(crate) connections: Vec<Connection>,
    connections_before: Vec<Connection>,
    /// NVMe namespaces, if the process exports any; and those of the snapshot before.
    pub(crate) namespaces: Option<Namespaces>,
    pub(crate) namespaces_before: Option<Namespaces>,
    cores: usize,
    ports: usize,
}

/// The object of a row: a core, with the sum of its ports; or a port, with the sum of all cores.
#[derive(Clone, Copy)]
pub(crate) enum Column {
    Core(usize),
    Port(usize),
}

impl Column {
    pub(crate) fn number(self) -> usize {
        match self {
            Column::Core(number) | Column::Port(number) => number,
        }
    }
}

impl ObservedProcess {
    pub(crate) fn open(page: &Path) -> Result<Self, ReadError> {
        let reader = StatsReader::open(page)?;
        let printable = |info: &CounterInfo| CounterInfo {
            layer: printable(&info.layer),
            name: printable(&info.name),
            help: printable(&info.help),
        };
        let counters = reader.counters().iter().map(printable).collect();
        Ok(ObservedProcess { page: page.to_owned(), reader, counters, last: None, last_namespaces: None })
    }

    /// Returns whether the process that counts has ended.
    pub(crate) fn has_ended(&self) -> bool {
        has_ended(&self.reader)
    }

    pub(crate) fn snapshot(&mut self) -> Result<Snapshot, ReadError> {
        let (at, now) = (Instant::now(), self.reader.sample()?);
        let by_core = self.reader.connections()?.into_iter().enumerate();
        let connections: Vec<_> = by_core
            .flat_map(|(core, rows)| rows.into_iter().map(move |row| Connection { core, row }))
            .collect();
        let last = self.last.replace((at, now.clone(), connections.clone()));
        let (before, connections_before) = match last {
            Some((then, sample, rows)) => (Some((at.duration_since(then).as_secs_f64(), sample)), rows),
            None => (None, Vec::new()),
        };
        let (pid, cores, ports) = (self.reader.pid(), self.reader.cores(), self.reader.ports());
        let namespaces = namespaces::read(&self.page, pid);
        let namespaces_before = std::mem::replace(&mut self.last_namespaces, namespaces.clone());
        let counters = self.counters.clone();
        Ok(Snapshot {
            pid,
            counters,
            now,
            before,
            connections,
            connections_before,
            namespaces,
            namespaces_before,
            cores,
            ports,
        })
    }
}

/// Returns whether the process that counts has ended. A killed process leaves its page behind.
pub(crate) fn has_ended(reader: &StatsReader) -> bool {
    reader.is_removed() || !Path::new("/proc").join(reader.pid().to_string()).exists()
}

impl Snapshot {
    pub(crate) fn cores(&self) -> impl Iterator<Item = Column> + Clone + use<> {
        (0..self.cores).map(Column::Core)
    }

    pub(crate) fn ports(&self) -> impl Iterator<Item = Column> + Clone + use<> {
        (0..self.ports).map(Column::Port)
    }

    pub(crate) fn is_port_counter(info: &CounterInfo) -> bool {
        PORT_LAYERS.contains(&info.layer.as_str())
    }

    /// Seconds since the snapshot before.
    pub(crate) fn seconds(&self) -> Option<f64> {
        self.before.as_ref().map(|(seconds, _)| *seconds)
    }

    pub(crate) fn value(&self, column: Column, counter: usize) -> u64 {
        self.sum_at(&self.now, column, counter)
    }

    pub(crate) fn rate(&self, column: Column, counter: usize) -> Option<f64> {
        let (seconds, before) = self.before.as_ref()?;
        let grown = self.value(column, counter).wrapping_sub(self.sum_at(before, column, counter));
        Some(grown as f64 / seconds.max(f64::EPSILON))
    }

    /// The index of a counter, if the process has one of that name.
    pub(crate) fn counter_index(&self, name: &str) -> Option<usize> {
        self.counters.iter().position(|counter| counter.name == name)
    }

    /// The bytes that a connection sent and received, in a second. `None`: it was not shown before.
    pub(crate) fn connection_rates(&self, of: &Connection) -> Option<(f64, f64)> {
        let (seconds, _) = self.before.as_ref()?;
        let key = |one: &Connection| (one.core, one.row.local, one.row.remote, one.row.queue_pair);
        let before = self.connections_before.iter().find(|one| key(one) == key(of))?.row;
        let rate = |now: u64, then: u64| now.saturating_sub(then) as f64 / seconds.max(f64::EPSILON);
        Some((rate(of.row.tx_bytes, before.tx_bytes), rate(of.row.rx_bytes, before.rx_bytes)))
    }

    /// The value of a counter by its name; 0 if the process has none of that name.
    pub(crate) fn total_of(&self, column: Column, name: &str) -> u64 {
        self.counter_index(name).map_or(0, |counter| self.value(column, counter))
    }

    pub(crate) fn json(&self) -> Value {
        let cores: Vec<_> = self.cores().map(|core| self.column_json(core)).collect();
        let ports: Vec<_> = self.ports().map(|port| self.column_json(port)).collect();
        let connections: Vec<_> = self.connections.iter().map(|one| self.connection_json(one)).collect();
        let mut all = json!({
            "schema": SCHEMA, "pid": self.pid, "seconds": self.seconds(), "cores": cores, "ports": ports,
            "connections": connections,
        });
        if let (Some(namespaces), Some(all)) = (&self.namespaces, all.as_object_mut()) {
            all.insert("nvmf_counters".to_owned(), serde_json::json!(namespaces.counters));
            all.insert("namespaces".to_owned(), namespaces.json(self.namespaces_before.as_ref()));
        }
        all
    }

    fn connection_json(&self, of: &Connection) -> Value {
        let row = &of.row;
        let rates = self.connection_rates(of);
        json!({
            "core": of.core, "local": row.local.to_string(), "remote": row.remote.to_string(),
            "protocol": row.protocol, "state": row.state.name(), "queue_pair": row.queue_pair,
            "tx_bytes": row.tx_bytes, "rx_bytes": row.rx_bytes, "retransmits": row.retransmits,
            "srtt_ns": row.srtt_ns, "rto_ns": row.rto_ns,
            "cwnd_bytes": row.cwnd_bytes, "flight_bytes": row.flight_bytes,
            "paths": row.paths, "paths_up": row.paths_up,
            "tx_bytes_per_s": rates.map(|(tx, _)| tx), "rx_bytes_per_s": rates.map(|(_, rx)| rx),
        })
    }

    fn column_json(&self, column: Column) -> Value {
        let (key, number) = match column {
            Column::Core(core) => ("core", core),
            Column::Port(port) => ("port", port),
        };
        json!({
            key: number,
            "counters": self.values_by_name(column, |counter| self.value(column, counter).into()),
            "per_second": self.before.as_ref().map(|_| self.values_by_name(column, |counter| self.rate(column, counter).into())),
        })
    }

    /// Every counter of a core; for a port those that are counted by port.
    fn values_by_name(&self, column: Column, value: impl Fn(usize) -> Value) -> Map<String, Value> {
        let wanted = |info: &CounterInfo| matches!(column, Column::Core(_)) || Self::is_port_counter(info);
        let counters = self.counters.iter().enumerate().filter(|(_, info)| wanted(info));
        counters.map(|(index, info)| (info.name.clone(), value(index))).collect()
    }

    fn sum_at(&self, sample: &Sample, column: Column, counter: usize) -> u64 {
        let value =
            |port, core| sample.port(port, core).and_then(|values| values.get(counter)).copied().unwrap_or(0);
        match column {
            Column::Core(core) => (0..self.ports).map(|port| value(port, core)).fold(0, u64::wrapping_add),
            Column::Port(port) => (0..self.cores).map(|core| value(port, core)).fold(0, u64::wrapping_add),
        }
    }
}
