//! The doctor reports each fault of a device in one line with the remedy, and `server` prints the
//! same line.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Mutex;

use rustix::process::geteuid;
use serde_json::Value;
use tempfile::TempDir;

/// One device at a time.
static SERIAL: Mutex<()> = Mutex::new(());
const PERF: &str = env!("CARGO_BIN_EXE_iwarp-perf");
/// Seconds after which `timeout` kills the program: more than the limit of the doctor.
const DEADLINE: &str = "80";

/// A folder with a configuration.
struct Lab(TempDir);

impl Lab {
    fn new(device: &str, more: &str) -> Self {
        let lab = Lab(TempDir::new().expect("a writable folder"));
        let text = format!(
            "[eal]\nhugepages = \"never\"\nmemory_mib = 128\n[port]\ndevice.{device}\nring_size = 256\nrx_frames = 2048\n\
             tx_frames = 2048\n{more}[net]\naddress = \"10.78.0.2/24\"\n[core]\nidle = \"yield\"\n"
        );
        std::fs::write(lab.config(), text).expect("a writable folder");
        lab
    }

    fn config(&self) -> String {
        self.0.path().join("c.toml").display().to_string()
    }

    /// Runs a shell line in a new network namespace. `$P` is the program, `$C` the configuration.
    fn shell(&self, line: &str) -> Output {
        let _one = SERIAL.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let mut command = Command::new("timeout");
        command.args(["--kill-after=1", DEADLINE, "unshare", "--net", "--", "sh", "-ec", line]);
        command.env("P", PERF).env("C", self.config());
        command.env("RUNTIME_DIRECTORY", self.0.path()).output().expect("unshare, of util-linux")
    }

    /// Returns the exit code of the doctor and its findings.
    #[track_caller]
    fn examined(&self, before: &str, options: &str) -> (Option<i32>, Vec<Value>) {
        let output = self.shell(&format!("{before}\nexec $P doctor --config $C --json {options}"));
        let output_text = String::from_utf8_lossy(&output.stderr).into_owned();
        let whole: Value =
            serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output_text}"));
        assert_eq!(whole["ok"].as_bool(), Some(output.status.code() == Some(0)), "{whole}");
        let findings = whole["findings"].as_array().expect("a list").clone();
        (output.status.code(), findings)
    }

    /// Runs the doctor, which must find one fault whose line has all `words`.
    #[track_caller]
    fn fault(&self, before: &str, options: &str, words: &[&str]) {
        let (code, findings) = self.examined(before, options);
        let faults: Vec<&Value> = findings.iter().filter(|one| one["severity"] == "fault").collect();
        let [fault] = faults.as_slice() else { panic!("{findings:#?}") };
        assert_eq!(code, Some(1));
        let text =
            format!("{} {}", fault["found"].as_str().unwrap(), fault["remedy"].as_str().expect("a remedy"));
        assert!(!text.contains('\n'), "{text}");
        for word in words {
            assert!(text.contains(word), "`{word}` is not in: {text}");
        }
    }

    /// Runs the server, which must fail with one line that has all `words`.
    #[track_caller]
    fn server_fails(&self, before: &str, words: &[&str]) {
        let output = self.shell(&format!("{before}\nexec $P server --config $C"));
        let output_text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{output_text}");
        let lines: Vec<&str> = output_text.lines().filter(|line| line.contains("iwarp-perf: ")).collect();
        let [line] = lines.as_slice() else { panic!("{output_text}") };
        for word in words {
            assert!(line.contains(word), "`{word}` is not in: {line}");
        }
    }
}

/// Returns whether this process may create network namespaces, and prints a line if not.
fn may_unshare() -> bool {
    if !geteuid().is_root() {
        writeln!(std::io::stderr(), "\nSKIPPED: the doctor's tests need root for network namespaces")
            .expect("a terminal");
    }
    geteuid().is_root()
}

const AF_PACKET: &str = "af_packet = { interface = \"dv1\" }";
const VETH: &str = "ip link add dv0 type veth peer name dv1
for end in dv0 dv1; do ethtool -K $end tx off gso off tso off >/dev/null; ip link set $end up; done
ip addr add 10.78.0.1/24 dev dv0";

#[test]
fn doctor_and_server_report_the_same_interface_fault() {
    if !may_unshare() {
        return;
    }
    let lab = Lab::new(AF_PACKET, "mtu = 9000\n");
    let missing = ["port.device.af_packet.interface = dv1", "does not exist", "ip link"];
    lab.fault("", "", &missing);
    lab.server_fails("", &missing);
    let narrow = ["port.mtu = 9000", "dv1", "1500", "ip link set dv1 mtu 9000"];
    lab.fault(VETH, "", &narrow);
    lab.server_fails(VETH, &narrow);
    let lab = Lab::new(AF_PACKET, "");
    let taken = format!("{VETH}\nip addr add 10.78.0.2/24 dev dv0");
    let words = ["net.address 10.78.0.2", "kernel's own, on dv0", "ip addr del"];
    lab.fault(&taken, "", &words);
    lab.server_fails(&taken, &words);
}

#[test]
fn doctor_and_server_report_the_same_capability_and_device_faults() {
    if !may_unshare() {
        return;
    }
    let lab = Lab::new(AF_PACKET, "");
    let before = format!("{VETH}\nset -- setpriv --bounding-set=-net_raw --inh-caps=-net_raw --");
    let words = ["no permission", "CAP_NET_RAW", "setcap cap_net_raw+ep"];
    for command in ["doctor --json", "server"] {
        let output = lab.shell(&format!("{before}\nexec \"$@\" $P {command} --config $C"));
        let output_text =
            format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert_eq!(output.status.code(), Some(1), "{output_text}");
        assert!(words.iter().all(|word| output_text.contains(word)), "{output_text}");
    }
    let lab = Lab::new("tap = { interface = \"dv0\" }", "");
    let words = ["dv0", "in use", "name another"];
    lab.fault(VETH, "", &words);
    lab.server_fails(VETH, &words);
    let lab = Lab::new("pci = { address = \"0000:ff:1f.7\" }", "");
    let words = ["0000:ff:1f.7", "no such card", "nic.sh list"];
    lab.fault("", "", &words);
    lab.server_fails("", &words);
}

/// RFC 5227 s2.1: the doctor probes an address before it announces it.
#[test]
fn an_address_of_another_node_is_reported() {
    if !may_unshare() {
        return;
    }
    let lab = Lab::new(AF_PACKET, "");
    // The other node is the kernel in another namespace, which ends with this one.
    let other = "ip link add dv0 type veth peer name dv1
ethtool -K dv1 tx off gso off tso off >/dev/null; ip link set dv1 up
setpriv --pdeathsig KILL unshare --net sleep 70 >/dev/null 2>&1 & OTHER=$!
until [ \"$(readlink /proc/$OTHER/ns/net)\" != \"$(readlink /proc/self/ns/net)\" ]; do :; done
ip link set dv0 netns $OTHER
nsenter -t $OTHER -n sh -ec 'ip addr add 10.78.0.2/24 dev dv0; ip link set dv0 up'";
    lab.fault(other, "", &["another station", "10.78.0.2", "address of its own", "arping"]);
}

#[test]
fn a_wrong_server_is_reported() {
    if !may_unshare() {
        return;
    }
    let lab = Lab::new(AF_PACKET, "");
    let (code, findings) = lab.examined(VETH, "");
    assert_eq!(code, Some(0), "{findings:#?}");
    lab.fault(VETH, "--connect 10.78.0.1:9", &["10.78.0.1:9", "nobody listens", "start the server"]);
    lab.fault(VETH, "--connect 10.78.0.7", &["10.78.0.7:18515", "nobody answers", "net.vlan"]);
    let web = "ip link set lo up
setpriv --pdeathsig KILL python3 -c 'import socket
s = socket.create_server((\"10.78.0.1\", 80))
while True: s.accept()[0].sendall(b\"HTTP/1.1 400 Bad Request\\r\\nConnection: close\\r\\n\\r\\n\")' >/dev/null 2>&1 &
until ss -Htln | grep -q 10.78.0.1:80; do :; done";
    let web = format!("{VETH}\n{web}");
    lab.fault(&web, "--connect 10.78.0.1:80", &["10.78.0.1:80", "another protocol", "iWARP server"]);
}

#[test]
fn text_output_has_the_findings_and_bad_arguments_are_rejected() {
    let lab = Lab::new("ring = {}", "");
    let run = |options: &[&str]| Command::new(PERF).arg("doctor").args(options).output().expect("the doctor");
    let output = run(&["--config", &lab.config(), "--dry"]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert!(text.contains("good     hugepages") && text.ends_with("all is well\n"), "{text}");
    for (options, word) in [
        (&["--config", "/nonexistent.toml"][..], "/nonexistent.toml"),
        (&["--config", &lab.config(), "--connect", "host"], "--connect"),
        (&[], "--config"),
    ] {
        let output = run(options);
        let output_text = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.code() == Some(2) && output_text.lines().count() == 1 && output_text.contains(word),
            "{output_text}"
        );
    }
}

/// All files under `configs/`: those of stacks, and those of targets of iwarp-nvmf.
fn shipped() -> Vec<PathBuf> {
    let configs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../configs");
    let files = |folder: PathBuf| {
        let entries = folder.read_dir().expect("a folder").map(|entry| entry.expect("an entry").path());
        entries.filter(|path| path.extension().is_some_and(|end| end == "toml")).collect::<Vec<_>>()
    };
    [files(configs.clone()), files(configs.join("nvmf"))].concat()
}

/// The doctor reads every configuration that is shipped. Which devices there are is a matter of the
/// machine.
#[test]
fn the_doctor_reads_every_shipped_configuration() {
    let files = shipped();
    for name in ["memif-server.toml", "memif-client.toml", "ring.toml", "nvmf/memif.toml"] {
        assert!(files.iter().any(|file| file.ends_with(name)), "{name} is not in {files:?}");
    }
    for file in files {
        let output = Command::new(PERF).args(["doctor", "--dry", "--json", "--config"]).arg(&file).output();
        let output = output.expect("the doctor");
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(matches!(output.status.code(), Some(0 | 1)), "{}: {error}", file.display());
        let whole: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let findings = whole["findings"].as_array().expect("a list");
        assert!(!findings.is_empty() && error.is_empty(), "{}: {whole} {error}", file.display());
    }
}
