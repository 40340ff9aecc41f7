//! The process that the user started: plan, progress, output.

mod run;
mod workdir;

use std::io::IsTerminal;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use ironwarp::Config;
use ironwarp::config::DeviceConfig;
use ironwarp_bench::host::{Build, CorePair, Machine, allowed};
use ironwarp_bench::output::{Outcome, tables, write_html};
use ironwarp_bench::report::{Report, SCHEMA, TestResult};
use ironwarp_bench::{PathKind, Test};
use ironwarp_cli::say;

use crate::PROGRAM;
use crate::cli::{Args, AtomicsArg, Log, Refusal, What};
use crate::far;
use crate::plan::{
    Applications, FarPlace, FarSetup, PORT, PairKind, Plan, Session, atomics, needs_device, scaling, single,
    suite,
};
use run::{Ended, Run};
use workdir::WorkDir;

/// Runs what the user asked for.
pub fn main(args: &Args) -> ExitCode {
    let outcome = args.check().and_then(|()| start(args));
    outcome.unwrap_or_else(|refusal| refusal.end(PROGRAM))
}

fn start(args: &Args) -> Result<ExitCode, Refusal> {
    check_outputs(args)?;
    if args.what == What::Server {
        let (setup, source) = server(args)?;
        crate::child::start_log(args.log.unwrap_or(Log::Warn).name());
        return Ok(far::server::main(&setup, &source));
    }
    let folder = WorkDir::new().map_err(|error| Refusal::Refused(format!("a temporary folder: {error}")))?;
    let plan = plan(args, &folder)?;
    let mut outcome = Outcome {
        report: Report {
            schema: SCHEMA,
            command: Some(command()),
            machine: Machine::this(),
            build: Build::this(FEATURES),
            results: Vec::new(),
        },
        latencies: Vec::new(),
    };
    let ended = Run::new(&plan, &folder, args.log).all(&plan, &mut outcome);
    Ok(finish(args, &outcome, ended))
}

/// Optional parts of this build, for the report.
const FEATURES: &[&str] = if cfg!(feature = "dpdk-static") {
    &["dpdk", "dpdk-static"]
} else if cfg!(feature = "dpdk") {
    &["dpdk"]
} else {
    &[]
};

/// The command as it was typed, the program without its folder, for the report.
fn command() -> String {
    let quoted = |word: String| if word.contains(char::is_whitespace) { format!("'{word}'") } else { word };
    let words = std::env::args_os().skip(1).map(|word| quoted(word.to_string_lossy().into_owned()));
    std::iter::once(PROGRAM.to_owned()).chain(words).collect::<Vec<_>>().join(" ")
}

/// Files that cannot be written are better refused now than after three minutes.
fn check_outputs(args: &Args) -> Result<(), Refusal> {
    let files = [("--json", &args.json), ("--hdr", &args.hdr), ("--pcap", &args.pcap)];
    for (option, path) in files.iter().filter_map(|(option, path)| Some((option, path.as_ref()?))) {
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        if path.is_dir() || parent.is_some_and(|parent| !parent.is_dir()) {
            let allowed = "a file in a folder that exists";
            return Err(Refusal::Refused(format!("{option} {}: {allowed}", path.display())));
        }
    }
    match &args.html {
        Some(path) if path.exists() && !path.is_dir() => {
            Err(Refusal::Refused(format!("--html {}: a folder, or the name of a new one", path.display())))
        }
        _ => Ok(()),
    }
}

/// What `server` needs.
fn server(args: &Args) -> Result<(far::server::Setup, PathBuf), Refusal> {
    let (source, text, config) = configuration(args)?;
    let (port, pcap) = (args.port.unwrap_or(PORT), args.pcap.clone());
    Ok((far::server::Setup { text, config, port, pcap }, source))
}

/// The file that `--config` names, of a device that can have its other end elsewhere.
fn configuration(args: &Args) -> Result<(PathBuf, String, Config), Refusal> {
    let path = args.config.clone().unwrap_or_default();
    let refused =
        |error: &dyn std::fmt::Display| Refusal::Refused(format!("--config {}: {error}", path.display()));
    let text = std::fs::read_to_string(&path).map_err(|error| refused(&error))?;
    let config = Config::from_toml(&text).map_err(|error| refused(&error))?;
    let kind = config.port.device.kind();
    if matches!(kind, "memory" | "ring") {
        return Err(refused(&format!("port.device.{kind} lies inside one process: use --pair {kind}")));
    }
    if config.core.count != 1 {
        let count = config.core.count;
        return Err(refused(&format!("core.count = {count}: 1 here; --pair takes --cores")));
    }
    if !cfg!(feature = "dpdk") {
        return Err(refused(&"this build has no DPDK: build with the feature `dpdk`"));
    }
    Ok((path, text, config))
}

/// A session of this end and a server.
fn connected(args: &Args, peer: SocketAddr, cores: CorePair) -> Result<(Session, PathKind), Refusal> {
    let (_, text, config) = configuration(args)?;
    let near_core = config.core.processor.unwrap_or(cores.near);
    let session = Session {
        far: FarPlace::Server,
        near_core,
        far_core: cores.far,
        app_core: args.app_core,
        events: args.events,
        cores: 1,
        near_config: Some(text),
        far_setup: FarSetup::default(),
        peer: Some(peer),
        device: Some(config.port.device.kind().to_owned()),
        mtu: config.port.mtu,
        pcap: args.pcap.clone(),
        groups: Vec::new(),
    };
    Ok((session, path_of(&config.port.device)))
}

/// What lies beyond a device, as the report says it.
fn path_of(device: &DeviceConfig) -> PathKind {
    match device {
        DeviceConfig::Memif { .. } => PathKind::Memif,
        DeviceConfig::Tap { .. } => PathKind::Tap,
        DeviceConfig::AfPacket { .. } => PathKind::AfPacket,
        DeviceConfig::AfXdp { .. } => PathKind::AfXdp,
        DeviceConfig::Pci { .. } => PathKind::Pci,
        _ => PathKind::Wire,
    }
}

fn plan(args: &Args, folder: &WorkDir) -> Result<Plan, Refusal> {
    let cores = CorePair::choose(&allowed());
    if let Some(core) = args.app_core
        && !allowed().contains(&core)
    {
        let list: Vec<String> = allowed().iter().map(usize::to_string).collect();
        return Err(Refusal::Refused(format!("--app-core {core}: one of {}", list.join(", "))));
    }
    if let (Some(peer), Some(test)) = (args.connect, args.what.test()) {
        let (session, path) = connected(args, peer, cores)?;
        let mut wanted = args.cases(test, path)?;
        wanted.cases.iter_mut().for_each(|case| case.mtu = session.mtu);
        return Ok(single(session, wanted.cases, wanted.budget));
    }
    let kind = args.pair.unwrap_or_else(PairKind::usual);
    let stations = matches!(args.what, What::Scaling | What::Atomics);
    let kind = if stations { args.pair.unwrap_or_else(PairKind::within) } else { kind };
    let cores_an_end = args.cores.or(stations.then_some(2));
    let applications = Applications { core: args.app_core, events: args.events, cores: cores_an_end };
    let session = |mtu: u16| {
        let mut session = kind.session(mtu, cores, applications, folder.path());
        session.pcap = args.pcap.clone();
        let settings = format!("{}{}", mpa_settings(args), rdmap_settings(args));
        for config in [&mut session.near_config, &mut session.far_setup.config].into_iter().flatten() {
            config.push_str(&settings);
        }
        if let (Some(config), Some(page)) = (&mut session.near_config, &args.stats_page) {
            config.push_str(&format!("[stats]\npage = {page:?}\n"));
        }
        session
    };
    match args.what {
        What::Suite => {
            require(kind)?;
            Ok(suite(session, kind.path(), args.quick))
        }
        What::Scaling | What::Atomics => {
            require(kind)?;
            if kind == PairKind::Memif {
                let line = "ring or memory: each core plays both ends, so they lie in one process";
                return Err(Refusal::Refused(format!("--pair memif: {line}")));
            }
            let roomy = usize::from(cores_an_end.unwrap_or(1)) <= allowed().len();
            let session = session(args.mtu_or_default());
            if args.what == What::Atomics {
                return Ok(atomics(session, kind.path(), args.for_atomics(), roomy));
            }
            let (bytes, budget) = args.for_scaling();
            Ok(scaling(session, kind.path(), bytes, budget, roomy))
        }
        _ => one(args, session(args.mtu_or_default()), kind),
    }
}

/// What the options say of MPA, for both ends' configurations.
fn mpa_settings(args: &Args) -> String {
    match (args.markers, args.no_crc) {
        (false, false) => String::new(),
        (markers, no_crc) => format!("[mpa]\nmarkers = {markers}\ncrc = {}\n", !no_crc),
    }
}

/// What the options say of RDMAP, for both ends' configurations.
fn rdmap_settings(args: &Args) -> &'static str {
    match args.atomics {
        Some(AtomicsArg::Locked) => "[rdmap]\natomic_execution = \"locked\"\n",
        Some(AtomicsArg::Owner) | None => "",
    }
}

fn one(args: &Args, mut session: Session, kind: PairKind) -> Result<Plan, Refusal> {
    let Some(test) = args.what.test() else {
        return Err(Refusal::Refused("server: is no test".to_owned()));
    };
    let wanted = args.cases(test, kind.path())?;
    if needs_device(test) {
        require(kind)?;
    } else {
        session.far = FarPlace::Process;
        session.near_config = None;
        session.far_setup.config = None;
    }
    Ok(single(session, wanted.cases, wanted.budget))
}

fn require(kind: PairKind) -> Result<(), Refusal> {
    if kind.is_built_in() {
        return Ok(());
    }
    let line = "this build has no DPDK: --pair memory, or build with the feature `dpdk`";
    Err(Refusal::Refused(format!("--pair {}: {line}", kind.path().name())))
}

/// Prints and writes whatever was measured, and says how it went.
fn finish(args: &Args, outcome: &Outcome, ended: Ended) -> ExitCode {
    if !outcome.report.results.is_empty() {
        say(tables(&outcome.report, width()));
    }
    let written = write_files(args, outcome);
    if let Err(line) = &written {
        eprintln!("iwarp-perf: {line}");
    }
    let errors: u64 = outcome.report.results.iter().map(failures).sum();
    match ended {
        Ended::Failed(line) => eprintln!("iwarp-perf: {line}"),
        Ended::Interrupted => eprintln!("iwarp-perf: interrupted; this is what was measured so far"),
        Ended::Complete if errors > 0 => eprintln!("iwarp-perf: {errors} messages were lost or wrong"),
        Ended::Complete if written.is_ok() => return ExitCode::SUCCESS,
        Ended::Complete => {}
    }
    ExitCode::FAILURE
}

/// Messages whose loss is a failure. Nothing repeats a raw frame: a device that drops some, or a far end that loses its
/// processor for long, is a figure, as long as others come back.
fn failures(result: &TestResult) -> u64 {
    let errors = result.errors.unwrap_or(0);
    match result.test {
        Test::FrameBw => 0,
        Test::FrameLat if result.iterations.is_some_and(|count| count > 0) => 0,
        _ => errors,
    }
}

fn write_files(args: &Args, outcome: &Outcome) -> Result<(), String> {
    let failed = |path: &std::path::Path| {
        let path = path.display().to_string();
        move |error: std::io::Error| format!("{path}: {error}")
    };
    if let Some(path) = &args.json {
        outcome.write_json(path).map_err(failed(path))?;
    }
    if let Some(path) = &args.hdr {
        outcome.write_hdr(path).map_err(failed(path))?;
    }
    if let Some(folder) = &args.html {
        let page = write_html(outcome, folder).map_err(failed(folder))?;
        say(format_args!("report: {}\n", page.display()));
    }
    Ok(())
}

/// The terminal's width; as wide as it needs when output goes elsewhere.
fn width() -> Option<u16> {
    if !std::io::stdout().is_terminal() {
        return None;
    }
    ironwarp_bench::output::terminal_width()
}
