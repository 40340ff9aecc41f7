//! Errors that the responder reports before it has a peer: one line each, exit status 2 for
//! arguments and configurations, 1 for a missing device.
#![forbid(unsafe_code)]

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

/// A valid configuration without the device and the appended lines.
const MEMORY: &str = "[port]\ndevice.memory = {}\n[net]\naddress = \"10.99.2.1/24\"\n";

const RESPONDER: &str = env!("CARGO_BIN_EXE_iwarp-responder");

/// A folder with a configuration.
struct Config {
    folder: TempDir,
}

impl Config {
    fn of(text: &str) -> Self {
        let config = Config { folder: TempDir::new().expect("a folder of its own") };
        fs::write(config.path(), text).expect("a configuration");
        config
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("config.toml")
    }

    /// Runs `program` under this configuration. DPDK's files go into its folder.
    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command
            .env("RUNTIME_DIRECTORY", self.folder.path())
            .env("XDG_RUNTIME_DIR", self.folder.path())
            .stdin(Stdio::null());
        command
    }

    fn run(&self, options: &[&str]) -> Output {
        let mut command = self.command(RESPONDER);
        command.arg("--config").arg(self.path()).args(options).output().expect("the responder")
    }
}

/// The program's own line on standard error: the only one, after lines of DPDK.
fn error_line(output: &Output, status: i32) -> String {
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(status), "{said}");
    assert!(output.stdout.is_empty(), "{}", String::from_utf8_lossy(&output.stdout));
    let mut lines = said.lines().filter_map(|line| line.strip_prefix("iwarp-responder: "));
    let line = lines.next().unwrap_or_else(|| panic!("no line of its own: {said}")).to_owned();
    assert_eq!(lines.next(), None, "{said}");
    assert!(said.ends_with(&format!("{line}\n")), "{said}");
    line
}

fn refused(config: &str, options: &[&str]) -> String {
    error_line(&Config::of(config).run(options), 2)
}

/// The error for arguments that do not parse: one line.
fn misused(options: &[&str]) -> String {
    let output = Config::of(MEMORY).run(options);
    let line = error_line(&output, 2);
    assert_eq!(String::from_utf8_lossy(&output.stderr).lines().count(), 1, "{line}");
    line
}

#[track_caller]
fn assert_names(line: &str, words: &[&str]) {
    for word in words {
        assert!(line.contains(word), "`{word}` is not in: {line}");
    }
}

#[test]
fn a_configuration_must_be_named() {
    let output = Command::new(RESPONDER).output().expect("the responder");
    assert_names(&error_line(&output, 2), &["--config <FILE>", "--help"]);
}

#[test]
fn a_file_that_does_not_exist_is_named() {
    let output = Command::new(RESPONDER).args(["--config", "/nonexistent/tap.toml"]).output();
    let line = error_line(&output.expect("the responder"), 2);
    assert_names(&line, &["/nonexistent/tap.toml", "No such file"]);
}

#[test]
fn an_unknown_key_is_named_with_its_line_and_the_keys_there_are() {
    let line = refused(&MEMORY.replace("[net]", "rings = 5\n[net]"), &[]);
    assert_names(&line, &[".toml", "line 3", "`rings`", "`ring_size`", "`mtu`"]);
    let line = refused(&format!("{MEMORY}[ports]\n"), &[]);
    assert_names(&line, &["line 5", "`ports`", "`port`"]);
}

#[test]
fn a_missing_key_is_named() {
    assert_names(&refused("[port]\ndevice.memory = {}\n", &[]), &["missing field `net`"]);
    assert_names(&refused("[net]\naddress = \"10.0.0.1/24\"\n", &[]), &["missing field `port`"]);
}

#[test]
fn invalid_toml_is_reported_with_its_line() {
    assert_names(&refused(&format!("{MEMORY}this is not TOML\n"), &[]), &["line 5"]);
}

#[test]
fn a_value_out_of_range_is_named_with_its_key_and_what_is_allowed() {
    let ring = refused(&MEMORY.replace("[net]", "ring_size = 100\n[net]"), &[]);
    assert_eq!(ring, "port.ring_size = 100: a power of two from 64 to 16384");
    let address = refused(&MEMORY.replace("10.99.2.1/24", "10.99.2.1"), &[]);
    assert_names(&address, &["net.address", "\"10.99.2.1\"", "10.0.0.1/24"]);
    let memory = refused(&format!("{MEMORY}[eal]\nmemory_mib = 1\n"), &[]);
    assert_names(&memory, &["eal.memory_mib = 1", "64 to 65536"]);
    let name = refused(&MEMORY.replace("memory = {}", "tap = { interface = \"a-name-of-18-bytes\" }"), &[]);
    assert_names(&name, &["port.device.tap.interface", "a-name-of-18-bytes", "15"]);
}

#[test]
fn an_argument_that_cannot_be_read_is_named() {
    assert_names(&misused(&["--listen", "10.99.2.1"]), &["'10.99.2.1'", "--listen <ADDR:PORT>"]);
    assert_names(&misused(&["--bytes", "0"]), &["'0'", "--bytes <N>", "1..=1073741824"]);
    assert_names(&misused(&["--drop", "1000001"]), &["'1000001'", "--drop <PPM>", "0..=1000000"]);
    assert_names(&misused(&["--lsten", "10.99.2.1:1"]), &["'--lsten'"]);
    assert_names(&refused(MEMORY, &["--log", "=loud="]), &["--log", "=loud="]);
}

/// `--listen` excludes `--connect`; `--ask` needs `--connect`.
#[test]
fn options_of_the_other_role_are_named() {
    let both = ["--connect", "10.99.2.2:4791", "--listen", "10.99.2.1:4791"];
    assert_names(&misused(&both), &["--connect <ADDR:PORT>", "--listen <ADDR:PORT>"]);
    assert_names(&misused(&["--ask", "fetch-add"]), &["--connect <ADDR:PORT>"]);
    assert_names(&misused(&["--connect", "10.99.2.2:4791", "--refuse"]), &["--refuse"]);
}

/// No frame for such an address would arrive.
#[test]
fn an_address_that_is_not_ours_cannot_be_listened_to() {
    for listen in ["10.99.2.7:4791", "[::1]:4791", "10.99.2.1:0"] {
        let line = refused(MEMORY, &["--listen", listen]);
        assert_names(&line, &[&format!("--listen {listen}"), "net.address", "10.99.2.1", "1 to 65535"]);
    }
}

#[test]
fn receives_that_no_memory_could_hold_are_refused() {
    let line = refused(MEMORY, &["--receives", "4096", "--message-bytes", "16777216"]);
    assert_names(&line, &["--receives 4096", "--message-bytes 16777216", "1073741824"]);
}

#[test]
fn help_has_examples_and_version_is_printed() {
    let help = Config::of(MEMORY).run(&["--help"]);
    assert_eq!(help.status.code(), Some(0));
    assert_names(&String::from_utf8_lossy(&help.stdout), &["Examples:", "--once", "--pcap"]);
    assert_eq!(Config::of(MEMORY).run(&["--version"]).status.code(), Some(0));
}

/// Devices that this machine does not have, and a device without permission.
#[cfg(feature = "dpdk")]
mod devices {
    use std::io::{BufRead, BufReader};
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::net::{UnixListener, UnixStream};
    use std::path::Path;

    use rustix::process::{Pid, Signal, geteuid, kill_process};

    use super::*;

    /// The user and group `nobody`.
    const NOBODY: &str = "65534";

    fn config_of(device: &str) -> String {
        let small = "ring_size = 64\nrx_frames = 512\ntx_frames = 512\n";
        let eal = "[eal]\nhugepages = \"never\"\nmemory_mib = 64\n";
        format!("{eal}[port]\ndevice.{device}\n{small}[net]\naddress = \"10.99.2.1/24\"\n")
    }

    /// Runs with a device that fails. Returns the error line.
    fn failed(device: &str) -> String {
        error_line(&Config::of(&config_of(device)).run(&[]), 1)
    }

    #[test]
    fn an_interface_that_does_not_exist_is_named() {
        for device in ["af_packet", "af_xdp"] {
            let line = failed(&format!("{device} = {{ interface = \"nosuch0\" }}"));
            assert_names(&line, &[device, "nosuch0", "does not exist"]);
        }
    }

    #[test]
    fn a_network_card_that_does_not_exist_is_named() {
        let line = failed("pci = { address = \"0000:ff:1f.7\" }");
        assert_names(&line, &["0000:ff:1f.7"]);
    }

    #[test]
    fn a_tap_cannot_take_the_name_of_another_interface() {
        let line = failed("tap = { interface = \"lo\" }");
        assert_names(&line, &["port.device.tap", "lo", "in use", "name another"]);
    }

    #[test]
    fn a_tap_needs_permission() {
        if !geteuid().is_root() {
            let line = failed("tap = { interface = \"iwtap0\" }");
            return assert_names(
                &line,
                &["port.device.tap", "no permission", "CAP_NET_ADMIN", "setcap cap_net_admin+ep"],
            );
        }
        let config = Config::of(&config_of("tap = { interface = \"iwtap0\" }"));
        let mut command = config.command("setpriv");
        command.args(["--reuid", NOBODY, "--regid", NOBODY, "--clear-groups", "--"]);
        command.arg(reachable(config.folder.path())).arg("--config").arg(config.path());
        let line = error_line(&command.output().expect("setpriv, of util-linux"), 1);
        assert_names(
            &line,
            &["port.device.tap", "no permission", "CAP_NET_ADMIN", "setcap cap_net_admin+ep"],
        );
    }

    /// A copy of the program that another user can run, in a folder that the user can write to.
    fn reachable(folder: &Path) -> PathBuf {
        let copy = folder.join("iwarp-responder");
        fs::copy(RESPONDER, &copy).expect("a copy");
        for path in [&copy, folder] {
            fs::set_permissions(path, fs::Permissions::from_mode(0o777)).expect("its mode");
        }
        copy
    }

    #[test]
    fn a_memif_socket_in_use_is_not_replaced() {
        let config = memif_server();
        let socket = config.folder.path().join("memif.sock");
        let _listener = UnixListener::bind(&socket).expect("a socket");
        let line = error_line(&config.run(&[]), 1);
        assert_names(&line, &[&socket.display().to_string()]);
        assert!(UnixStream::connect(&socket).is_ok(), "the socket is no longer the listener's");
    }

    /// The socket file of a killed process does not block a new one.
    #[test]
    fn a_memif_socket_that_was_left_behind_is_replaced() {
        let config = memif_server();
        drop(UnixListener::bind(config.folder.path().join("memif.sock")).expect("a socket"));
        let mut command = config.command("setpriv");
        command.args(["--pdeathsig", "KILL", "--", RESPONDER, "--config"]).arg(config.path());
        let mut child =
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("setpriv, of util-linux");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut line).expect("a line");
        if line.is_empty() {
            let output = child.wait_with_output().expect("its end");
            panic!("it did not listen: {}", String::from_utf8_lossy(&output.stderr));
        }
        assert_names(&line, &["listening"]);
        kill_process(Pid::from_child(&child), Signal::INT).expect("a running responder");
        assert!(child.wait().expect("its status").success());
    }

    fn memif_server() -> Config {
        let config = Config::of("");
        let socket = config.folder.path().join("memif.sock");
        let device = format!("memif = {{ role = \"server\", socket = \"{}\" }}", socket.display());
        fs::write(config.path(), config_of(&device)).expect("a configuration");
        config
    }
}
