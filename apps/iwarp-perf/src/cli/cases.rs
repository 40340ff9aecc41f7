//! From options to cases: defaults, and options that do not go together.

use std::time::Duration;

use ironwarp_bench::{AtomicKind, Budget, Case, PathKind, Test, Transport, Wait, WordOwner};

use super::{Args, AtomicsArg, CliExit, Command, OwnerArg};

/// Bytes on their way in bandwidth tests unless a depth is given.
const BYTES_OUTSTANDING: u64 = 4 << 20;
/// The MTU unless one is given.
const MTU: u16 = 1500;
/// perftest's `-a`.
const ALL_SIZES: std::ops::RangeInclusive<u32> = 1..=23;
/// Memory that an end may register for one case.
const MEMORY_MAX: u64 = 1 << 30;

/// One test as it was asked for.
#[derive(Debug)]
pub struct TestPlan {
    /// A case a size.
    pub cases: Vec<Case>,
    /// The budget of each.
    pub budget: Budget,
}

impl Args {
    /// The MTU of a single test.
    pub fn mtu_or_default(&self) -> u16 {
        self.mtu.unwrap_or(MTU)
    }

    /// Refuses options that do not apply to what is asked for.
    pub fn check(&self) -> Result<(), CliExit> {
        let reject_first = |given: &[&str], name: &str| match given.first() {
            Some(option) => Err(CliExit::BadArguments(format!("{option} does not apply to {name}"))),
            None => Ok(()),
        };
        if let (Some(cores), true) = (self.cores.filter(|&cores| cores > 1), self.config.is_some()) {
            let line = "1 with --config; several polled cores are measured with both ends on one machine: use --pair";
            return Err(CliExit::BadArguments(format!("--cores {cores}: {line}")));
        }
        match self.command.test() {
            Some(test) if self.connect.is_some() && test.transport() != Transport::Ironwarp => {
                let line = "is measured with both ends on one machine: use --pair, without --connect";
                Err(CliExit::BadArguments(format!("--connect: {} {line}", test.name())))
            }
            None if self.command == Command::Suite && self.connect.is_some() => {
                let line = "suite is measured with both ends on one machine: use --pair";
                Err(CliExit::BadArguments(format!("--connect: {line}, without --connect")))
            }
            _ if self.command != Command::Server && self.config.is_some() && self.connect.is_none() => {
                let line = "needs --connect ADDR; --pair runs both ends here without a configuration";
                Err(CliExit::BadArguments(format!("--config: {} {line}", self.command_name())))
            }
            Some(test) => reject_first(&self.inapplicable(test), test.name()),
            None if self.command == Command::Suite => reject_first(&self.single_test_options(), "suite"),
            None if self.command == Command::Scaling => {
                reject_first(&self.inapplicable_to_scaling(), "scaling")
            }
            None if self.command == Command::Atomics => {
                reject_first(&self.inapplicable_to_atomics(), "atomics")
            }
            None => {
                reject_first(&self.inapplicable_to_server(), "server")?;
                let missing = "server needs --config FILE, the device and address of this end";
                self.config.as_ref().map(|_| ()).ok_or_else(|| CliExit::BadArguments(missing.to_owned()))
            }
        }
    }

    fn command_name(&self) -> &'static str {
        let other = match self.command {
            Command::Scaling => "scaling",
            Command::Atomics => "atomics",
            _ => "suite",
        };
        self.command.test().map_or(other, Test::name)
    }

    /// The cases of a single test over a device path.
    pub fn cases(&self, test: Test, device: PathKind) -> Result<TestPlan, CliExit> {
        let default_size = match test.fixed_bytes() {
            Some(bytes) => bytes,
            None if test.is_latency() => 64,
            None => 64 << 10,
        };
        let sizes: Vec<u64> = match self.all_sizes {
            true => ALL_SIZES.map(|power| 1 << power).collect(),
            false => vec![self.size.unwrap_or(default_size)],
        };
        let cases: Vec<Case> = sizes.into_iter().map(|bytes| self.case(test, bytes, device)).collect();
        if self.owner == Some(OwnerArg::Remote) && self.cores.is_none_or(|cores| cores == 1) {
            let line = "--owner remote: with --cores 2 or more, since a single core owns every word";
            return Err(CliExit::BadArguments(line.to_owned()));
        }
        for case in &cases {
            check_memory(case)?;
            check_signals(case)?;
        }
        Ok(TestPlan { cases, budget: self.budget() })
    }

    fn case(&self, test: Test, bytes: u64, device: PathKind) -> Case {
        let path = match test.transport() {
            Transport::KernelTcp => self.path.map_or(PathKind::Veth, PathKind::from),
            _ => device,
        };
        let depth_for_full_link = (BYTES_OUTSTANDING / bytes).clamp(2, 64) as u32;
        let depth = if test.is_latency() { 1 } else { self.depth.unwrap_or(depth_for_full_link) };
        Case {
            wait: if self.events { Wait::Block } else { self.wait.map_or(Wait::Spin, Wait::from) },
            qps: self.qps.unwrap_or(1),
            depth,
            post_list: self.post_list.unwrap_or(1).min(depth),
            signal_every: self.signal_every.unwrap_or(1),
            inline: self.inline.unwrap_or(0),
            bidirectional: self.bidirectional,
            rate: self.rate,
            validate: self.validate,
            operation: test
                .is_atomic()
                .then(|| self.operation.map_or(AtomicKind::FetchAdd, AtomicKind::from)),
            locked: self.atomics == Some(AtomicsArg::Locked),
            words: self.words.unwrap_or(1),
            owner: self.owner.map_or(WordOwner::Spread, WordOwner::from),
            cores: self.cores.unwrap_or(1).into(),
            ..Case::new(test, bytes, self.mtu_or_default(), path)
        }
    }

    fn budget(&self) -> Budget {
        let default = if self.all_sizes { 0.5 } else { 2.0 };
        match self.iterations {
            Some(iterations) => Budget::iterations(iterations, self.warmup),
            None => Budget::duration(Duration::from_secs_f64(self.duration.unwrap_or(default)), self.warmup),
        }
    }

    /// Options that were given and mean nothing to a test.
    fn inapplicable(&self, test: Test) -> Vec<&'static str> {
        let (latency, ours) = (test.is_latency(), test.transport() == Transport::Ironwarp);
        let tcp = test.transport() == Transport::KernelTcp;
        let read = matches!(test, Test::ReadLat | Test::ReadBw);
        let (atomic, fixed) = (test.is_atomic(), test.fixed_bytes().is_some());
        given([
            ("--size", self.size.is_some() && fixed),
            ("--all-sizes", self.all_sizes && fixed),
            ("--operation", self.operation.is_some() && !atomic),
            ("--words", self.words.is_some() && !atomic),
            ("--atomics", self.atomics.is_some() && !atomic),
            ("--owner", self.owner.is_some() && !atomic),
            ("--stats-page", self.stats_page.is_some() && tcp),
            ("--cores", self.cores.is_some() && !ours),
            ("--qps", self.qps.is_some() && !ours),
            ("--depth", self.depth.is_some() && (latency || !ours)),
            ("--post-list", self.post_list.is_some() && (latency || atomic || !ours)),
            ("--inline", self.inline.is_some() && (read || atomic || test.is_immediate() || !ours)),
            ("--signal-every", self.signal_every.is_some() && (latency || atomic || !ours)),
            ("--bidirectional", self.bidirectional && (latency || atomic || !ours)),
            ("--rate", self.rate.is_some() && (!ours || (atomic && latency))),
            ("--events", self.events && !ours),
            ("--validate", self.validate && test.transport() == Transport::Frames),
            ("--wait", self.wait.is_some() && !tcp),
            ("--path", self.path.is_some() && !tcp),
            ("--pair", self.pair.is_some() && tcp),
            ("--connect", self.connect.is_some() && !ours),
            ("--app-core", self.app_core.is_some() && !ours),
            ("--markers", self.markers && !ours),
            ("--no-crc", self.no_crc && !ours),
            ("--pcap", self.pcap.is_some() && tcp),
            ("--quick", self.quick),
            ("--port", self.port.is_some()),
        ])
    }

    /// Options that were given and that a suite decides itself.
    fn single_test_options(&self) -> Vec<&'static str> {
        given([
            ("--size", self.size.is_some()),
            ("--all-sizes", self.all_sizes),
            ("--iterations", self.iterations.is_some()),
            ("--duration", self.duration.is_some()),
            ("--qps", self.qps.is_some()),
            ("--depth", self.depth.is_some()),
            ("--post-list", self.post_list.is_some()),
            ("--inline", self.inline.is_some()),
            ("--signal-every", self.signal_every.is_some()),
            ("--bidirectional", self.bidirectional),
            ("--rate", self.rate.is_some()),
            ("--events", self.events),
            ("--validate", self.validate),
            ("--mtu", self.mtu.is_some()),
            ("--markers", self.markers),
            ("--no-crc", self.no_crc),
            ("--wait", self.wait.is_some()),
            ("--path", self.path.is_some()),
            ("--connect", self.connect.is_some()),
            ("--app-core", self.app_core.is_some()),
            ("--pcap", self.pcap.is_some()),
            ("--operation", self.operation.is_some()),
            ("--words", self.words.is_some()),
            ("--atomics", self.atomics.is_some()),
            ("--owner", self.owner.is_some()),
            ("--stats-page", self.stats_page.is_some()),
            ("--cores", self.cores.is_some()),
        ])
    }

    /// Options that were given and that a comparison of cores decides itself.
    fn inapplicable_to_scaling(&self) -> Vec<&'static str> {
        const ALLOWED: [&str; 5] = ["--size", "--duration", "--iterations", "--mtu", "--cores"];
        let mut options = self.single_test_options();
        options.retain(|option| !ALLOWED.contains(option));
        if self.quick {
            options.push("--quick");
        }
        options
    }

    /// Options that were given and that a comparison of owners and locked instructions decides itself.
    fn inapplicable_to_atomics(&self) -> Vec<&'static str> {
        let mut options = self.inapplicable_to_scaling();
        if self.size.is_some() {
            options.push("--size");
        }
        options
    }

    /// The bytes and the budget of a comparison of cores.
    pub fn scaling_arguments(&self) -> (u64, Budget) {
        (self.size.unwrap_or(64), Budget { warmup: 0, ..self.budget() })
    }

    /// The budget of a comparison of owners and locked instructions.
    pub fn atomics_budget(&self) -> Budget {
        self.budget()
    }

    /// Options that were given and that a server leaves to its near ends.
    fn inapplicable_to_server(&self) -> Vec<&'static str> {
        let mut options = self.single_test_options();
        options.retain(|option| *option != "--pcap");
        options.extend(given([
            ("--pair", self.pair.is_some()),
            ("--quick", self.quick),
            ("--json", self.json.is_some()),
            ("--hdr", self.hdr.is_some()),
            ("--html", self.html.is_some()),
        ]));
        options
    }
}

fn given<const N: usize>(options: [(&'static str, bool); N]) -> Vec<&'static str> {
    options.into_iter().filter(|(_, given)| *given).map(|(name, _)| name).collect()
}

/// Checks a case that another machine asks for as if it came from this command line.
pub fn check_case(case: &Case) -> Result<(), String> {
    let counts = (1..=1 << 30).contains(&case.bytes)
        && (1..=1024).contains(&case.qps)
        && (1..=4096).contains(&case.depth)
        && (1..=case.depth.min(64)).contains(&case.post_list)
        && (1..=64).contains(&case.signal_every)
        && case.inline <= 256
        && (1..=65_536).contains(&case.words)
        && case.test.fixed_bytes().is_none_or(|bytes| bytes == case.bytes)
        && case.test.is_atomic() == case.operation.is_some();
    if !counts {
        return Err("a number of the case is out of its range".to_owned());
    }
    check_memory(case).and_then(|()| check_signals(case)).map_err(|exit| match exit {
        CliExit::Help(line) | CliExit::BadArguments(line) => line,
    })
}

fn check_memory(case: &Case) -> Result<(), CliExit> {
    // Validated messages lie apart until they are looked at, with a few to spare.
    let slots = if case.validate { u64::from(case.depth) + 8 } else { 1 };
    let bytes = case.bytes.saturating_mul(slots).saturating_mul(u64::from(case.qps));
    if bytes <= MEMORY_MAX {
        return Ok(());
    }
    let product = if case.validate { "--size × --qps × --depth" } else { "--size × --qps" };
    Err(CliExit::BadArguments(format!(
        "{product} = {bytes} bytes: at most {MEMORY_MAX} bytes of memory an end"
    )))
}

fn check_signals(case: &Case) -> Result<(), CliExit> {
    if case.signal_every <= case.depth || case.test.is_latency() {
        return Ok(());
    }
    let (every, depth) = (case.signal_every, case.depth);
    Err(CliExit::BadArguments(format!("--signal-every {every}: at most the depth, which is {depth}")))
}
