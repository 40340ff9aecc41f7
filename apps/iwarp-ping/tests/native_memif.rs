//! Server and client as two processes over the library's own memif: alone, killed in the middle of
//! traffic in either role, and with DPDK's driver at the other end.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Output, Stdio};

use crate::memif_lab::{self, Side};

/// Pings until it is stopped.
const ENDLESS: &str = "-v -S 20 -C 1000000000";

/// Both sides, each with its driver.
struct Lab(memif_lab::Lab);

impl Lab {
    /// Takes the driver of each side.
    fn new(server: &str, client: &str) -> Self {
        Lab(memif_lab::Lab::new(|role, socket| {
            let (host, driver) = if role == "server" { (1, server) } else { (2, client) };
            // The memory of DPDK's client has no pages before it is used.
            let fills = role == "server" && client == "dpdk";
            let sparse = if fills { ", sparse = true" } else { "" };
            let native =
                format!("memif = {{ role = \"{role}\", socket = {socket:?}, secret = \"s\"{sparse} }}");
            let buffers = "socket-abstract=no,bsize=10240,rsize=8,secret=s";
            let args = format!("role={role},socket={},{buffers}", socket.display());
            let dpdk = format!("dpdk = {{ name = \"net_memif0\", args = \"{args}\" }}");
            Side {
                device: if driver == "dpdk" { dpdk } else { native },
                port: "mtu = 9000\n",
                net: format!("address = \"10.99.5.{host}/24\"\n"),
            }
        }))
    }

    fn command(&self, role: &str, line: &str) -> Command {
        self.0.command(role, line)
    }

    /// Starts a process, and waits for a line with these words.
    fn start(&self, role: &str, line: &str, words: &str) -> Running {
        let mut command = self.command(role, line);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut running = Running(child.expect("timeout starts"));
        let out = running.0.stdout.take().expect("piped");
        let mut out = BufReader::new(out);
        let mut text = String::new();
        while !text.contains(words) {
            text.clear();
            let more = out.read_line(&mut text).expect("text") > 0;
            assert!(more, "no line with {words}: {}", running.errors());
        }
        // The rest is read and dropped, so that the process never waits for this end.
        std::thread::spawn(move || std::io::copy(&mut out, &mut std::io::sink()));
        running
    }

    fn server(&self) -> Running {
        self.start("server", "--persistent", "listening")
    }

    fn client(&self) -> Running {
        self.start("client", &format!("-a 10.99.5.1 {ENDLESS}"), "rdma-ping-10:")
    }

    #[track_caller]
    fn pinged(&self, line: &str) {
        let output = self.command("client", &format!("-a 10.99.5.1 {line} --verify")).output();
        let Output { status, stderr, .. } = output.expect("timeout starts");
        assert!(status.success(), "{line}: {}", String::from_utf8_lossy(&stderr));
    }
}

/// A process, and the process `timeout` above it.
struct Running(Child);

impl Running {
    /// Kills the program itself, as the kernel does when memory is short.
    fn kill(mut self) {
        let children = format!("/proc/{0}/task/{0}/children", self.0.id());
        let children = std::fs::read_to_string(children).expect("the program runs");
        let program =
            children.trim().parse().ok().and_then(rustix::process::Pid::from_raw).expect("one child");
        rustix::process::kill_process(program, rustix::process::Signal::KILL).expect("it runs");
        assert!(!self.0.wait().expect("its status").success());
    }

    fn errors(&mut self) -> String {
        let mut text = String::new();
        self.0.stderr.take().expect("piped").read_to_string(&mut text).expect("text");
        text
    }

    fn is_running(&mut self) -> bool {
        self.0.try_wait().expect("its status").is_none()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = rustix::process::kill_process(
            rustix::process::Pid::from_child(&self.0),
            rustix::process::Signal::TERM,
        );
        let _ = self.0.wait();
    }
}

#[test]
fn texts_of_every_size_come_back_whole_to_one_client_after_another() {
    let lab = Lab::new("native", "native");
    let _server = lab.server();
    for line in ["-C 200 -S 1", "-C 200 -S 100", "-C 50 -S 65536"] {
        lab.pinged(line);
    }
}

/// A killed client is a closed socket: the server ends its connection and serves the next client.
#[test]
fn a_server_whose_clients_are_killed_in_traffic_serves_the_next_one() {
    let lab = Lab::new("native", "native");
    let mut server = lab.server();
    for _ in 0..3 {
        lab.client().kill();
        assert!(server.is_running());
    }
    lab.pinged("-C 20");
    assert!(server.is_running());
}

/// A killed server leaves its socket's file. Its client ends with an error; the next server takes
/// the file's place.
#[test]
fn a_client_whose_server_is_killed_in_traffic_ends_with_an_error() {
    let lab = Lab::new("native", "native");
    for _ in 0..2 {
        let server = lab.server();
        let mut client = lab.client();
        server.kill();
        assert!(lab.0.file("m.sock").exists());
        let errors = client.errors();
        assert!(errors.contains("link"), "{errors}");
        assert_eq!(client.0.wait().expect("its status").code(), Some(1));
    }
    let _server = lab.server();
    lab.pinged("-C 20");
}

#[test]
fn a_second_server_on_the_socket_is_refused_by_name() {
    let lab = Lab::new("native", "native");
    let mut server = lab.server();
    let second = lab.command("server", "--persistent").output().expect("timeout starts");
    assert_eq!(second.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&second.stderr).contains("m.sock"), "{second:?}");
    assert!(server.is_running());
    lab.pinged("-C 20");
}

/// DPDK's driver at the other end, which is killed in traffic too.
#[cfg(feature = "dpdk")]
#[test]
fn a_server_speaks_with_dpdks_driver_and_survives_its_kill() {
    let lab = Lab::new("native", "dpdk");
    let mut server = lab.server();
    for line in ["-C 200 -S 1", "-C 50 -S 65536"] {
        lab.pinged(line);
    }
    lab.client().kill();
    assert!(server.is_running());
    lab.pinged("-C 20");
}

/// DPDK's driver may crash when a client leaves, so each client stays until the server is killed.
#[cfg(feature = "dpdk")]
#[test]
fn a_client_speaks_with_dpdks_driver_and_survives_its_kill() {
    for line in ["-v -S 20", "-v -S 9000"] {
        let lab = Lab::new("dpdk", "native");
        let server = lab.server();
        let line = format!("-a 10.99.5.1 {line} -C 1000000000 --verify");
        let mut client = lab.start("client", &line, "rdma-ping-10:");
        server.kill();
        let errors = client.errors();
        assert!(errors.contains("link"), "{errors}");
    }
}
