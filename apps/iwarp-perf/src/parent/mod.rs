//! The process that the user started: checks, plan, output.

mod run;
mod workdir;

use std::fmt::Display;
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ironwarp::Config;
use ironwarp::config::DeviceConfig;
use ironwarp_bench::host::{CorePair, Hops, Machine, allowed};
use ironwarp_bench::output::{Outcome, perftest_text, scale_table, tables, terminal_width, write_html};
use ironwarp_bench::report::{Report, SCHEMA, TestResult};
use ironwarp_bench::{PathKind, Test, Transport};
use ironwarp_cli::{fail, on_interrupt, print_stdout, start_log};

use crate::about::{self, PROGRAM};
use crate::child::DEFAULT_LOG;
use crate::cli::{Args, AtomicsArg, CliExit, Command, Format, TransportArg};
use crate::plan::{
    CoresPlan, LOCKED, PairKind, Plan, ServerPlacement, Session, atomics, cores, scaling, single, suite,
};
use crate::server::standalone;
use run::Run;
use workdir::WorkDir;

/// Runs the command. Errors before the first measurement are `Err`.
pub fn run(args: &Args) -> Result<ExitCode, CliExit> {
    args.check()?;
    check_outputs(args)?;
    if args.command == Command::Server {
        let (text, config) = configuration(args)?;
        let _log = start_log(args.log.as_deref().unwrap_or(DEFAULT_LOG))?;
        return standalone::run(args, &text, &config);
    }
    let folder = WorkDir::new().map_err(|error| format!("a temporary folder: {error}"))?;
    let is_cores = args.command == Command::Cores;
    let (plan, skipped) =
        if is_cores { cores_plan(args, &folder)? } else { (make_plan(args, &folder)?, Vec::new()) };
    let report = Report {
        schema: SCHEMA,
        command: Some(command()),
        machine: Machine::local(),
        build: about::build(),
        hops: is_cores.then(|| Hops::between(&allowed())).flatten(),
        skipped,
        results: Vec::new(),
    };
    let mut outcome = Outcome { report, latencies: Vec::new() };
    let interrupted = on_interrupt().map_err(CliExit::Failed)?;
    let run = Run::new(&plan, folder.path(), args.log.as_deref(), args.format, interrupted.clone());
    let mut problems = Vec::new();
    for session in &plan.sessions {
        problems.extend(run.session(session, &mut outcome).err());
        // The other sessions of a run over many cores are worth their time.
        if !problems.is_empty() && (!is_cores || interrupted.load(Ordering::Relaxed)) {
            break;
        }
    }
    drop(run);
    outcome.report.compare_with_one_core();
    let ended = if problems.is_empty() { Ok(()) } else { Err(problems.join("; ")) };
    Ok(finish(args, &outcome, ended))
}

/// The command line with the name of the program but not its folder, for the report.
fn command() -> String {
    let quoted = |word: String| if word.contains(char::is_whitespace) { format!("'{word}'") } else { word };
    let words = std::env::args_os().skip(1).map(|word| quoted(word.to_string_lossy().into_owned()));
    std::iter::once(PROGRAM.to_owned()).chain(words).collect::<Vec<_>>().join(" ")
}

/// Rejects output files that cannot be written, before the run and not after it.
fn check_outputs(args: &Args) -> Result<(), CliExit> {
    let files = [("--json", &args.json), ("--hdr", &args.hdr), ("--pcap", &args.pcap)];
    for (option, path) in files.iter().filter_map(|(option, path)| Some((option, path.as_ref()?))) {
        if path.as_os_str() == "-" {
            return Err(format!("{option} -: must be a file; standard output has the tables").into());
        }
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        if path.is_dir() || parent.is_some_and(|parent| !parent.is_dir()) {
            return Err(format!("{option} {}: must be a file in a folder that exists", path.display()).into());
        }
    }
    match &args.html {
        Some(path) if path.exists() && !path.is_dir() => {
            Err(format!("--html {}: must be a folder, new or existing", path.display()).into())
        }
        _ => Ok(()),
    }
}

/// Reads the configuration file. Its device must be able to reach another process.
fn configuration(args: &Args) -> Result<(String, Config), CliExit> {
    let path = args.config.as_deref().unwrap_or(Path::new(""));
    let error = |problem: &dyn Display| format!("--config {}: {problem}", path.display());
    let text = std::fs::read_to_string(path).map_err(|problem| error(&problem))?;
    let config = Config::from_toml(&text).map_err(|problem| error(&problem))?;
    let (kind, count) = (config.port.device.kind(), config.core.count);
    let problem = if matches!(kind, "memory" | "ring") {
        format!("port.device.{kind} connects two ends of one process: use --pair {kind}")
    } else if count != 1 {
        format!("core.count = {count}: must be 1; several cores need --pair and --cores")
    } else if !cfg!(feature = "dpdk") && config.port.device.needs_dpdk() {
        "this build has no DPDK: build with the feature `dpdk`".to_owned()
    } else {
        return Ok((text, config));
    };
    Err(error(&problem).into())
}

fn make_plan(args: &Args, folder: &WorkDir) -> Result<Plan, CliExit> {
    let processors = allowed();
    let cores = CorePair::choose(&processors);
    if let Some(core) = args.app_core.filter(|core| !processors.contains(core)) {
        let list: Vec<String> = processors.iter().map(usize::to_string).collect();
        return Err(format!("--app-core {core}: must be one of {}", list.join(", ")).into());
    }
    let is_loopback = matches!(args.command, Command::Scaling | Command::Atomics);
    let session = Session {
        client_core: cores.client,
        server_core: cores.server,
        app_core: args.app_core,
        events: args.events,
        cores: args.cores.unwrap_or(if is_loopback { 2 } else { 1 }),
        pcap: args.pcap.clone(),
        ..Session::default()
    };
    if let (Some(_), Some(test)) = (args.connect, args.command.test()) {
        return remote_test(args, test, session);
    }
    let default_pair = if is_loopback { PairKind::in_process() } else { PairKind::default_kind() };
    let pair = args.pair.unwrap_or(default_pair);
    if args.mtu > pair.mtu_max() {
        return Err(
            format!("--mtu {}: at most {} with --pair {}", args.mtu, pair.mtu_max(), pair.name()).into()
        );
    }
    if let Some(cores) = args.cores.filter(|cores| *cores > pair.cores_max()) {
        return Err(
            format!("--cores {cores}: at most {} with --pair {}", pair.cores_max(), pair.name()).into()
        );
    }
    let is_kernel = args.command.test().is_some_and(|test| test.transport() == Transport::KernelTcp);
    if !pair.is_built_in() && !is_kernel {
        let problem = "this build has no DPDK: use --pair memory, or build with the feature `dpdk`";
        return Err(format!("--pair {}: {problem}", pair.name()).into());
    }
    if is_loopback && !pair.is_one_process() {
        let problem = "must be ring or memory: each core runs a client and a server of one process";
        return Err(format!("--pair {}: {problem}", pair.name()).into());
    }
    let has_core_each = usize::from(session.cores) <= processors.len();
    let session = |mtu: u16| {
        let mut session = pair.connect(Session { mtu, ..session.clone() }, folder.path());
        configure(args, &mut session);
        session
    };
    let (path, budget) = (pair.path(), args.budget());
    Ok(match args.command {
        Command::Test(test) => {
            let mut session = session(args.mtu);
            if is_kernel {
                session.server_placement = ServerPlacement::Process;
                (session.client_config, session.server_config) = (None, None);
            }
            let mut plan = single(session, args.cases(test, path)?, budget, args.intervals()?);
            if is_setup_of_several_cores(args) {
                let note =
                    format!("several cores share the local ports: tcp.time_wait_ms = {SETUP_TIME_WAIT_MS}");
                let groups = plan.sessions.iter_mut().flat_map(|session| &mut session.groups);
                groups.for_each(|group| group.note = Some(note.clone()));
            }
            plan
        }
        Command::Suite => suite(session, pair, args.quick, args.iterations),
        Command::Atomics => atomics(session(args.mtu), path, budget, has_core_each),
        _ => scaling(session(args.mtu), path, args.size.unwrap_or(64), budget, has_core_each),
    })
}

/// The plan of `cores`, and what is skipped with the reason.
fn cores_plan(args: &Args, folder: &WorkDir) -> Result<(Plan, Vec<String>), CliExit> {
    let all = [PairKind::MemifNative, PairKind::in_process()];
    let pairs = args.pair.as_ref().map_or(&all[..], std::slice::from_ref);
    if let Some(pair) = pairs.iter().find(|pair| !pair.is_built_in() || pair.path() == PathKind::Veth) {
        let problem = "must be memif-native, ring or memory: both ends of all cores are in one process";
        return Err(format!("--pair {}: {problem}", pair.name()).into());
    }
    let (plan, skipped) = cores(
        &CoresPlan {
            pairs,
            cores_max: args.cores.unwrap_or(8),
            allowed: &allowed(),
            oversubscribe: args.oversubscribe,
            duration: args.budget().duration.unwrap_or(Duration::ZERO),
            rounds: if args.quick { 3 } else { 5 },
        },
        |pair, session| pair.connect(session, folder.path()),
    );
    if plan.sessions.is_empty() {
        let skipped = skipped.join("; ");
        return Err(format!("no number of cores fits; use --oversubscribe: {skipped}").into());
    }
    Ok((plan, skipped))
}

/// The plan of a client with a server that already runs.
fn remote_test(args: &Args, test: Test, session: Session) -> Result<Plan, CliExit> {
    let (text, Config { core, port, .. }) = configuration(args)?;
    let path = match port.device {
        DeviceConfig::Memif { .. } => PathKind::Memif,
        DeviceConfig::Tap { .. } => PathKind::Tap,
        DeviceConfig::AfPacket { .. } => PathKind::AfPacket,
        DeviceConfig::AfXdp { .. } => PathKind::AfXdp,
        DeviceConfig::Pci { .. } => PathKind::Pci,
        _ => PathKind::Wire,
    };
    let session = Session {
        server_placement: ServerPlacement::Remote,
        client_core: core.processor.unwrap_or(session.client_core),
        client_config: Some(text),
        peer: args.connect,
        device: Some(port.device.kind().to_owned()),
        mtu: port.mtu,
        ..session
    };
    let mut cases = args.cases(test, path)?;
    cases.iter_mut().for_each(|case| case.mtu = session.mtu);
    Ok(single(session, cases, args.budget(), args.intervals()?))
}

/// Adds the settings of options to the configurations of a session.
fn configure(args: &Args, session: &mut Session) {
    let mut settings = String::new();
    if args.markers || args.no_crc {
        settings += &format!("[mpa]\nmarkers = {}\ncrc = {}\n", args.markers, !args.no_crc);
    }
    if args.transport == TransportArg::Sctp {
        settings += "[stack]\ntransport = \"sctp\"\n";
    }
    if is_setup_of_several_cores(args) {
        settings += &format!("[tcp]\ntime_wait_ms = {SETUP_TIME_WAIT_MS}\n");
    }
    if args.atomics == AtomicsArg::Locked {
        settings += LOCKED;
    }
    session.configs().for_each(|config| config.push_str(&settings));
    if let (Some(config), Some(page)) = (&mut session.client_config, &args.stats_page) {
        config.push_str(&format!("[stats]\npage = {page:?}\n"));
    }
}

/// TIME-WAIT of conn-rate on several cores, in milliseconds. They share the ports, and with the
/// default of a minute all ports of a core would be in TIME-WAIT after a second.
const SETUP_TIME_WAIT_MS: u64 = 100;

fn is_setup_of_several_cores(args: &Args) -> bool {
    args.command.test().is_some_and(Test::is_connection_setup) && args.cores.is_some_and(|cores| cores > 1)
}

/// Prints and writes the results, and returns the exit code. `ended` is the reason if the run is
/// incomplete.
fn finish(args: &Args, outcome: &Outcome, ended: Result<(), String>) -> ExitCode {
    let results = &outcome.report.results;
    if !results.is_empty() {
        print_stdout(match args.format {
            Format::Table if args.command == Command::Cores => scale_table(&outcome.report, terminal_width()),
            Format::Table => tables(&outcome.report, terminal_width()),
            Format::Perftest => perftest_text(&outcome.report),
        });
    }
    let written = write_files(args, outcome);
    let is_setup = results.iter().any(|result| result.test.is_connection_setup());
    let what = match is_setup {
        true => "connections failed, or their messages were lost",
        false => "messages were lost or wrong",
    };
    let complete = match results.iter().map(error_count).sum::<u64>() {
        // Only Ctrl-C ends such a run, also during its warm-up.
        0 if args.run_infinitely => Ok(()),
        0 => measured(&outcome.report),
        errors => Err(format!("{errors} {what}")),
    };
    let problems: Vec<String> = [written, ended.and(complete)].into_iter().filter_map(Result::err).collect();
    if problems.is_empty() && matches!(args.command, Command::Suite) && is_disturbed(&outcome.report) {
        fail(PROGRAM, DISTURBED);
        return ExitCode::from(DISTURBED_CODE);
    }
    problems.into_iter().fold(ExitCode::SUCCESS, |_, line| fail(PROGRAM, line))
}

/// The exit code of a suite that was measured and whose figures compare nothing.
const DISTURBED_CODE: u8 = 3;
const DISTURBED: &str = "suite: raw frames, the floor, moved by more than 20 % in every round: the figures are those of a \
                         machine with other work; end that and run the suite again";

/// Whether no round of any floor was steady. Ratios to a floor that moves say nothing, and all
/// rounds count.
fn is_disturbed(report: &Report) -> bool {
    let floors = report.results.iter().filter(|result| matches!(result.test, Test::FrameLat | Test::FrameBw));
    let mut rounds = floors.flat_map(|floor| floor.round_log.iter().flatten()).peekable();
    rounds.peek().is_some() && rounds.all(|round| round.dropped)
}

/// A run that measured nothing of what it was asked for fails, whatever else it prints.
fn measured(report: &Report) -> Result<(), String> {
    let empty: Vec<String> =
        report.results.iter().filter(|result| result.is_empty()).map(|result| result.name()).collect();
    match (report.results.is_empty(), empty.is_empty()) {
        (true, _) => Err("nothing was measured".to_owned()),
        (false, true) => Ok(()),
        (false, false) => Err(format!("nothing was measured of {}", empty.join(", "))),
    }
}

/// The lost or wrong messages that make the run fail. Lost raw frames do not, because nothing
/// retransmits them; a latency test of raw frames fails if none came back.
fn error_count(result: &TestResult) -> u64 {
    match result.test {
        Test::FrameBw => 0,
        Test::FrameLat if result.iterations.is_some_and(|count| count > 0) => 0,
        _ => result.errors.unwrap_or(0),
    }
}

fn write_files(args: &Args, outcome: &Outcome) -> Result<(), String> {
    let failed = |path: &Path| {
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

#[cfg(test)]
mod tests {
    use ironwarp_bench::report::RoundLog;

    use super::*;

    /// A report of results that each have rounds, dropped or not.
    fn report(results: &[(Test, &[bool])]) -> Report {
        let round = |&dropped: &bool| RoundLog {
            hop_ns: None,
            floor_moved_percent: Some(if dropped { 30.0 } else { 1.0 }),
            steal_ms: None,
            context_switches: None,
            dropped,
            p50_ns: None,
            p999_ns: None,
            gbit_per_s: None,
            messages_per_s: None,
        };
        let result = |&(test, rounds): &(Test, &[bool])| TestResult {
            test,
            round_log: Some(rounds.iter().map(round).collect()),
            ..TestResult::default()
        };
        Report { schema: SCHEMA, results: results.iter().map(result).collect(), ..Report::default() }
    }

    #[test]
    fn a_run_that_measured_nothing_of_what_it_was_asked_for_fails() {
        let mut some = report(&[(Test::SendLat, &[]), (Test::WriteBw, &[])]);
        assert_eq!(measured(&report(&[])), Err("nothing was measured".to_owned()));
        some.results[0].iterations = Some(1);
        let error = measured(&some).expect_err("no Write");
        assert!(error.starts_with("nothing was measured of ") && error.contains("write-bw"), "{error}");
        assert!(!error.contains("send-lat"), "{error}");
        some.results[1].iterations = Some(1);
        assert_eq!(measured(&some), Ok(()));
    }

    #[test]
    fn a_suite_without_a_steady_round_of_any_floor_is_disturbed() {
        let (lat, bw) = (Test::FrameLat, Test::FrameBw);
        assert!(is_disturbed(&report(&[(lat, &[true, true]), (bw, &[true]), (Test::WriteBw, &[false])])));
        assert!(!is_disturbed(&report(&[(lat, &[true, true]), (bw, &[true, false])])));
        assert!(!is_disturbed(&report(&[(Test::WriteBw, &[true])])), "no floor was measured");
        assert!(!is_disturbed(&report(&[])));
    }
}
