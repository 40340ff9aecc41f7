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
use ironwarp_cli::print_stdout;

use crate::PROGRAM;
use crate::cli::{Args, AtomicsArg, CliExit, Command, LogLevel};
use crate::plan::{
    AppOptions, PORT, PairKind, Plan, ServerPlacement, ServerSetup, Session, atomics, needs_device, scaling,
    single, suite,
};
use crate::server;
use run::{Run, RunOutcome};
use workdir::WorkDir;

/// Runs what the user asked for.
pub fn main(args: &Args) -> ExitCode {
    let outcome = args.check().and_then(|()| start(args));
    outcome.unwrap_or_else(|exit| exit.report(PROGRAM))
}

fn start(args: &Args) -> Result<ExitCode, CliExit> {
    check_outputs(args)?;
    if args.command == Command::Server {
        let (setup, source) = standalone_setup(args)?;
        crate::child::start_log(args.log.unwrap_or(LogLevel::Warn).name());
        return Ok(server::standalone::main(&setup, &source));
    }
    let folder =
        WorkDir::new().map_err(|error| CliExit::BadArguments(format!("a temporary folder: {error}")))?;
    let plan = make_plan(args, &folder)?;
    let mut outcome = Outcome {
        report: Report {
            schema: SCHEMA,
            command: Some(command()),
            machine: Machine::local(),
            build: Build::current(FEATURES),
            results: Vec::new(),
        },
        latencies: Vec::new(),
    };
    let outcome_of_run = Run::new(&plan, &folder, args.log).run_all(&plan, &mut outcome);
    Ok(finish(args, &outcome, outcome_of_run))
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
fn check_outputs(args: &Args) -> Result<(), CliExit> {
    let files = [("--json", &args.json), ("--hdr", &args.hdr), ("--pcap", &args.pcap)];
    for (option, path) in files.iter().filter_map(|(option, path)| Some((option, path.as_ref()?))) {
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        if path.is_dir() || parent.is_some_and(|parent| !parent.is_dir()) {
            let allowed = "a file in a folder that exists";
            return Err(CliExit::BadArguments(format!("{option} {}: {allowed}", path.display())));
        }
    }
    match &args.html {
        Some(path) if path.exists() && !path.is_dir() => Err(CliExit::BadArguments(format!(
            "--html {}: a folder, or the name of a new one",
            path.display()
        ))),
        _ => Ok(()),
    }
}

/// What `server` needs.
fn standalone_setup(args: &Args) -> Result<(server::standalone::StandaloneSetup, PathBuf), CliExit> {
    let (source, text, config) = configuration(args)?;
    let (port, pcap) = (args.port.unwrap_or(PORT), args.pcap.clone());
    Ok((server::standalone::StandaloneSetup { text, config, port, pcap }, source))
}

/// The file that `--config` names, of a device that can have its other end elsewhere.
fn configuration(args: &Args) -> Result<(PathBuf, String, Config), CliExit> {
    let path = args.config.clone().unwrap_or_default();
    let refused = |error: &dyn std::fmt::Display| {
        CliExit::BadArguments(format!("--config {}: {error}", path.display()))
    };
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
fn remote_session(args: &Args, peer: SocketAddr, cores: CorePair) -> Result<(Session, PathKind), CliExit> {
    let (_, text, config) = configuration(args)?;
    let client_core = config.core.processor.unwrap_or(cores.client);
    let session = Session {
        server_placement: ServerPlacement::Remote,
        client_core,
        server_core: cores.server,
        app_core: args.app_core,
        events: args.events,
        cores: 1,
        client_config: Some(text),
        server_setup: ServerSetup::default(),
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

fn make_plan(args: &Args, folder: &WorkDir) -> Result<Plan, CliExit> {
    let cores = CorePair::choose(&allowed());
    if let Some(core) = args.app_core
        && !allowed().contains(&core)
    {
        let list: Vec<String> = allowed().iter().map(usize::to_string).collect();
        return Err(CliExit::BadArguments(format!("--app-core {core}: one of {}", list.join(", "))));
    }
    if let (Some(peer), Some(test)) = (args.connect, args.command.test()) {
        let (session, path) = remote_session(args, peer, cores)?;
        let mut test_plan = args.cases(test, path)?;
        test_plan.cases.iter_mut().for_each(|case| case.mtu = session.mtu);
        return Ok(single(session, test_plan.cases, test_plan.budget));
    }
    let kind = args.pair.unwrap_or_else(PairKind::default_kind);
    let is_loopback = matches!(args.command, Command::Scaling | Command::Atomics);
    let kind = if is_loopback { args.pair.unwrap_or_else(PairKind::in_process) } else { kind };
    let cores_per_end = args.cores.or(is_loopback.then_some(2));
    let app_options = AppOptions { core: args.app_core, events: args.events, cores: cores_per_end };
    let session = |mtu: u16| {
        let mut session = kind.session(mtu, cores, app_options, folder.path());
        session.pcap = args.pcap.clone();
        let settings = format!("{}{}", mpa_settings(args), rdmap_settings(args));
        for config in [&mut session.client_config, &mut session.server_setup.config].into_iter().flatten() {
            config.push_str(&settings);
        }
        if let (Some(config), Some(page)) = (&mut session.client_config, &args.stats_page) {
            config.push_str(&format!("[stats]\npage = {page:?}\n"));
        }
        session
    };
    match args.command {
        Command::Suite => {
            check_built_in(kind)?;
            Ok(suite(session, kind.path(), args.quick))
        }
        Command::Scaling | Command::Atomics => {
            check_built_in(kind)?;
            if kind == PairKind::Memif {
                let line = "ring or memory: each core plays both ends, so they lie in one process";
                return Err(CliExit::BadArguments(format!("--pair memif: {line}")));
            }
            let has_core_each = usize::from(cores_per_end.unwrap_or(1)) <= allowed().len();
            let session = session(args.mtu_or_default());
            if args.command == Command::Atomics {
                return Ok(atomics(session, kind.path(), args.atomics_budget(), has_core_each));
            }
            let (bytes, budget) = args.scaling_arguments();
            Ok(scaling(session, kind.path(), bytes, budget, has_core_each))
        }
        _ => single_test(args, session(args.mtu_or_default()), kind),
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

fn single_test(args: &Args, mut session: Session, kind: PairKind) -> Result<Plan, CliExit> {
    let Some(test) = args.command.test() else {
        return Err(CliExit::BadArguments("server: is no test".to_owned()));
    };
    let test_plan = args.cases(test, kind.path())?;
    if needs_device(test) {
        check_built_in(kind)?;
    } else {
        session.server_placement = ServerPlacement::Process;
        session.client_config = None;
        session.server_setup.config = None;
    }
    Ok(single(session, test_plan.cases, test_plan.budget))
}

fn check_built_in(kind: PairKind) -> Result<(), CliExit> {
    if kind.is_built_in() {
        return Ok(());
    }
    let line = "this build has no DPDK: --pair memory, or build with the feature `dpdk`";
    Err(CliExit::BadArguments(format!("--pair {}: {line}", kind.path().name())))
}

/// Prints and writes whatever was measured, and says how it went.
fn finish(args: &Args, outcome: &Outcome, outcome_of_run: RunOutcome) -> ExitCode {
    if !outcome.report.results.is_empty() {
        print_stdout(tables(&outcome.report, width()));
    }
    let written = write_files(args, outcome);
    if let Err(line) = &written {
        eprintln!("iwarp-perf: {line}");
    }
    let errors: u64 = outcome.report.results.iter().map(error_count).sum();
    match outcome_of_run {
        RunOutcome::Failed(line) => eprintln!("iwarp-perf: {line}"),
        RunOutcome::Interrupted => eprintln!("iwarp-perf: interrupted; this is what was measured so far"),
        RunOutcome::Complete if errors > 0 => eprintln!("iwarp-perf: {errors} messages were lost or wrong"),
        RunOutcome::Complete if written.is_ok() => return ExitCode::SUCCESS,
        RunOutcome::Complete => {}
    }
    ExitCode::FAILURE
}

/// Messages whose loss is a failure. Nothing repeats a raw frame: a device that drops some, or a far end that loses its
/// processor for long, is a figure, as long as others come back.
fn error_count(result: &TestResult) -> u64 {
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
        print_stdout(format_args!("report: {}\n", page.display()));
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
