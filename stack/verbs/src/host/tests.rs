//! Machines made of folders, with interfaces that the test names.

use core::net::IpAddr;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::sync::atomic::{AtomicU32, Ordering};

use super::*;

/// A machine with everything that a stack could want: the test takes away or spoils one thing.
struct Machine {
    root: PathBuf,
    links: Vec<Link>,
    addresses: Vec<(IpAddr, u32)>,
}

impl Machine {
    fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let root = std::env::temp_dir().join(format!("ironwarp-host-{}-{number}", std::process::id()));
        let machine = Machine { root, links: vec![veth()], addresses: Vec::new() };
        machine.file("dev/net/tun", "");
        machine.file("proc/self/status", "CapEff:\t000001ffffffffff\nCpus_allowed_list:\t0-3\n");
        machine.file("proc/self/net/route", "Iface\tDestination\tGateway\neth0\t00000000\t010200C0\n");
        machine.file("sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "1024\n");
        machine.file("sys/bus/pci/devices/0000:03:00.0/numa_node", "0\n");
        machine.file("sys/devices/system/cpu/cpu1/node0/x", "");
        machine.bound_to("vfio-pci");
        machine.link("sys/kernel/iommu_groups/7", "sys/bus/pci/devices/0000:03:00.0/iommu_group");
        machine.file("dev/vfio/7", "");
        machine
    }

    fn file(&self, path: &str, text: &str) {
        let path = self.root.join(path);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        std::fs::write(path, text).expect("a file");
    }

    fn link(&self, target: &str, path: &str) {
        let path = self.root.join(path);
        let _ = std::fs::remove_file(&path);
        symlink(self.root.join(target), path).expect("a link");
    }

    fn bound_to(&self, driver: &str) {
        self.link(&format!("sys/bus/pci/drivers/{driver}"), "sys/bus/pci/devices/0000:03:00.0/driver");
    }

    fn examine(&self, port: &str) -> Vec<Finding> {
        self.examine_with(port, "")
    }

    fn examine_with(&self, port: &str, more: &str) -> Vec<Finding> {
        let text = format!("[port]\ndevice.{port}\n[net]\naddress = \"10.0.0.2/24\"\n{more}");
        let config = Config::from_toml(&text).unwrap_or_else(|error| panic!("{text}: {error}"));
        let links = Links::new(self.links.clone(), self.addresses.clone());
        Host::with_root(&self.root, links).examine(&config)
    }

    /// The one thing that is wrong, with what to do.
    #[track_caller]
    fn only(&self, severity: Severity, port: &str, more: &str) -> String {
        let all = self.examine_with(port, more);
        let wrong: Vec<&Finding> = all.iter().filter(|finding| finding.severity != Severity::Good).collect();
        let [one] = wrong.as_slice() else { panic!("{all:#?}") };
        assert_eq!(one.severity, severity, "{one}");
        assert!(!one.remedy.is_empty() && !one.to_string().contains('\n'), "{one}");
        one.to_string()
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.root);
    }
}

fn veth() -> Link {
    Link {
        index: 4,
        name: "veth1".into(),
        mtu: 1500,
        up: true,
        carrier: true,
        kind: Some("veth".into()),
        ..Link::default()
    }
}

const AF_PACKET: &str = "af_packet = { interface = \"veth1\" }";
const AF_XDP: &str = "af_xdp = { interface = \"veth1\" }";
const TAP: &str = "tap = { interface = \"tap0\" }";
const PCI: &str = "pci = { address = \"0000:03:00.0\" }";

#[track_caller]
fn names(line: &str, words: &[&str]) {
    for word in words {
        assert!(line.contains(word), "`{word}` is not in: {line}");
    }
}

/// Something was looked at, and nothing is wrong with it.
#[track_caller]
fn are_good(findings: &[Finding]) {
    assert!(!findings.is_empty());
    assert!(findings.iter().all(|finding| finding.severity == Severity::Good), "{findings:#?}");
}

#[test]
fn a_machine_that_has_everything_is_found_good() {
    let machine = Machine::new();
    for device in [AF_PACKET, AF_XDP, TAP, PCI, "ring = {}", "memory = {}"] {
        let all = machine.examine(device);
        are_good(&all);
    }
}

#[test]
fn an_interface_that_does_not_exist_is_named_with_those_that_do() {
    let mut machine = Machine::new();
    machine.links[0].name = "other0".into();
    for device in [AF_PACKET, AF_XDP] {
        let line = machine.only(Severity::Fault, device, "");
        names(&line, &["port.device.af_", "veth1", "does not exist", "ip link", "other0"]);
    }
}

#[test]
fn an_interface_in_use_is_reported_with_its_user() {
    let mut machine = Machine::new();
    machine.links[0].xdp = true;
    names(&machine.only(Severity::Fault, AF_XDP, ""), &["veth1", "in use", "XDP", "xdp off"]);
    machine.links[0].name = "tap0".into();
    names(&machine.only(Severity::Fault, TAP, ""), &["tap0", "in use", "no tap", "name another"]);
    machine.links[0].kind = Some("tun".into());
    names(&machine.only(Severity::Fault, TAP, ""), &["tap0", "in use by another process", "name another"]);
    machine.links[0].persistent = true;
    are_good(&machine.examine(TAP));
}

#[test]
fn a_missing_capability_is_named_with_the_command_that_gives_it() {
    let machine = Machine::new();
    machine.file("proc/self/status", "CapEff:\t0000000000000000\nCpus_allowed_list:\t0-3\n");
    names(
        &machine.only(Severity::Fault, TAP, ""),
        &["no permission", "CAP_NET_ADMIN", "setcap cap_net_admin+ep"],
    );
    names(&machine.only(Severity::Fault, AF_PACKET, ""), &["CAP_NET_RAW", "setcap cap_net_raw+ep"]);
    names(&machine.only(Severity::Fault, AF_XDP, ""), &["CAP_NET_ADMIN and CAP_NET_RAW and CAP_BPF"]);
    are_good(&machine.examine("ring = {}"));
}

#[test]
fn a_packet_larger_than_the_interface_carries_is_refused_with_the_command_that_widens_it() {
    let machine = Machine::new();
    let line = machine.only(Severity::Fault, &format!("{AF_PACKET}\nmtu = 9000"), "");
    names(&line, &["port.mtu = 9000", "veth1", "1500", "ip link set veth1 mtu 9000"]);
}

#[test]
fn an_interface_that_is_down_or_carries_the_default_route_is_warned_of() {
    let mut machine = Machine::new();
    machine.links[0].up = false;
    names(&machine.only(Severity::Warning, AF_PACKET, ""), &["switched off", "ip link set veth1 up"]);
    machine.links[0] = Link { carrier: false, ..veth() };
    names(&machine.only(Severity::Warning, AF_XDP, ""), &["no link"]);
    machine.links[0] = veth();
    machine.file("proc/self/net/route", "Iface\tDestination\tGateway\nveth1\t00000000\t010200C0\n");
    names(&machine.only(Severity::Warning, AF_XDP, ""), &["default route", "away from the kernel"]);
}

#[test]
fn an_address_that_the_kernel_has_is_refused_where_it_would_answer_too() {
    let mut machine = Machine::new();
    machine.addresses.push(("10.0.0.2".parse().expect("an address"), 4));
    for device in [AF_PACKET, AF_XDP, TAP] {
        let line = machine.only(Severity::Fault, device, "");
        names(&line, &["net.address 10.0.0.2", "kernel's own", "on veth1", "ip addr del 10.0.0.2 dev veth1"]);
    }
    let all = machine.examine("ring = {}");
    are_good(&all);
}

#[test]
fn a_card_with_the_wrong_driver_is_reported_with_the_remedy() {
    let machine = Machine::new();
    // A device that is no card gets no advice to bind it.
    machine.file("sys/bus/pci/devices/0000:05:00.0/class", "0xffff00\n");
    let other = machine.only(Severity::Fault, "pci = { address = \"0000:05:00.0\" }", "");
    assert!(other.contains("not a network card (class 0xffff00)"), "{other}");
    assert!(!other.contains("bind") && other.contains("nic.sh list"), "{other}");
    machine.file("sys/bus/pci/devices/0000:03:00.0/class", "0x020000\n");
    let gone = machine.only(Severity::Fault, "pci = { address = \"0000:04:00.0\" }", "");
    names(&gone, &["0000:04:00.0", "no such card", "nic.sh list"]);
    machine.bound_to("e1000e");
    machine.file("sys/bus/pci/devices/0000:03:00.0/net/ens3/address", "");
    let line = machine.only(Severity::Fault, PCI, "");
    names(&line, &["wrong driver", "e1000e", "as ens3", "nic.sh bind 0000:03:00.0"]);
    machine.bound_to("mlx5_core");
    are_good(&machine.examine(PCI));
    machine.bound_to("uio_pci_generic");
    let all = machine.examine_with(PCI, "[eal]\nhugepages = \"never\"\n");
    assert!(all.iter().any(|one| one.severity == Severity::Fault && one.found.contains("needs hugepages")));
    std::fs::remove_file(machine.root.join("sys/bus/pci/devices/0000:03:00.0/driver")).expect("a link");
    names(&machine.only(Severity::Fault, PCI, ""), &["no driver", "nic.sh bind"]);
}

#[test]
fn a_card_is_under_vfio_if_vfio_pci_is_bound_to_it() {
    let machine = Machine::new();
    let host = Host::with_root(&machine.root, Links::new(Vec::new(), Vec::new()));
    assert!(host.is_vfio("0000:03:00.0") && host.is_vfio("03:00.0"));
    assert!(!host.is_vfio("0000:04:00.0"), "there is no such card");
    machine.bound_to("uio_pci_generic");
    assert!(!host.is_vfio("0000:03:00.0"));
}

#[test]
fn a_card_that_cannot_be_opened_is_reported_with_its_group() {
    let machine = Machine::new();
    std::fs::remove_file(machine.root.join("dev/vfio/7")).expect("a file");
    names(&machine.only(Severity::Fault, PCI, ""), &["dev/vfio/7", "not bound", "group 7"]);
    std::fs::remove_file(machine.root.join("sys/bus/pci/devices/0000:03:00.0/iommu_group")).expect("a link");
    names(&machine.only(Severity::Fault, PCI, ""), &["without an IOMMU", "intel_iommu=on"]);
}

#[test]
fn hugepages_that_are_not_there_are_told_with_the_command_that_makes_them() {
    let machine = Machine::new();
    machine.file("sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "3\n");
    let line = machine.only(Severity::Fault, "ring = {}", "[eal]\nhugepages = \"require\"\n");
    names(&line, &["6 MiB", "512 are needed", "hugepages.sh alloc 256"]);
    names(&machine.only(Severity::Warning, PCI, ""), &["few cards", "hugepages.sh alloc 256"]);
    are_good(&machine.examine("ring = {}"));
}

#[test]
fn processors_are_counted_and_named() {
    let machine = Machine::new();
    let line = machine.only(Severity::Fault, "ring = {}", "[core]\nprocessor = 9\n");
    names(&line, &["processors: 9", "0, 1, 2, 3"]);
    names(&machine.only(Severity::Warning, "ring = {}", "[core]\ncount = 4\n"), &["4 on 4", "yield"]);
    names(&machine.only(Severity::Warning, PCI, "[core]\nprocessor = 2\n"), &["memory node 0", "cpulist"]);
    are_good(&machine.examine_with(PCI, "[core]\nprocessor = 1\n"));
}

#[test]
fn a_relative_socket_is_looked_at_from_the_working_directory() {
    let machine = Machine::new();
    for name in ["m.sock", "src/m.sock"] {
        let findings = machine.examine(&format!("vhost = {{ socket = \"{name}\" }}"));
        are_good(&findings);
    }
    let absent = machine.only(Severity::Fault, "vhost = { socket = \"absent/m.sock\" }", "");
    names(&absent, &["absent/m.sock", "its folder does not exist"]);
}

#[test]
fn a_socket_is_looked_at_where_it_will_be() {
    let machine = Machine::new();
    let server = "memif = { role = \"server\", socket = \"/run/m.sock\" }";
    names(&machine.only(Severity::Fault, server, ""), &["/run/m.sock", "folder does not exist"]);
    machine.file("run/x", "");
    let listener = UnixListener::bind(machine.root.join("run/m.sock")).expect("a socket");
    names(&machine.only(Severity::Fault, server, ""), &["in use", "another process listens"]);
    let vhost = machine.only(Severity::Fault, "vhost = { socket = \"/run/m.sock\" }", "");
    names(&vhost, &["port.device.vhost.socket", "in use"]);
    are_good(&machine.examine(&server.replace("server", "client")));
    drop(listener);
    are_good(&machine.examine(server));
    // It waits for its server.
    are_good(&machine.examine(&server.replace("server", "client")));
}

/// The kernel tells of this machine's own loopback.
#[test]
fn the_kernel_tells_its_interfaces_and_addresses() {
    let links = Links::read().expect("Linux tells any process");
    let lo = links.by_name("lo").expect("every namespace has one");
    assert!(lo.index > 0 && lo.mtu >= 1500 && !lo.xdp && lo.kind.is_none(), "{lo:?}");
    let has = links.addresses().any(|(addr, on)| addr.is_loopback() && on == "lo");
    assert_eq!(has, lo.up, "{links:?}");
}
