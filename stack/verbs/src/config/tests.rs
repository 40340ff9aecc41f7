//! Accepted configuration files, and the errors for others.

use core::net::IpAddr;
use std::time::Duration;

use ironwarp_types::Nanos;

use super::*;

const GOOD: &str = r#"
[port]
mtu = 9000
device.memif = { role = "server", socket = "/run/ironwarp.sock" }
[net]
address = "10.0.0.1/24"
"#;

fn refusal(text: &str) -> String {
    Config::from_toml(text).expect_err("the configuration is wrong").to_string()
}

#[test]
fn a_short_file_gets_every_default() {
    let config = Config::from_toml(GOOD).expect("a complete configuration");
    assert_eq!(config.port.mtu, 9000);
    assert_eq!(config.core.idle, IdlePolicy::Pause);
    assert_eq!(config.net.parse().expect("an address"), (IpAddr::from([10, 0, 0, 1]), 24));
    assert!(matches!(
        config.port.device,
        DeviceConfig::Memif { role: MemifRole::Server, buffer_bytes: None, .. }
    ));
}

#[test]
fn an_unknown_key_is_named_with_its_line_and_the_keys_that_exist() {
    let message = refusal(&format!("{GOOD}[tcp]\nwindow = 5\n"));
    assert!(message.starts_with("line 8: unknown field `window`"), "{message}");
    assert!(message.contains("rcv_window_bytes"), "{message}");
    assert!(!message.contains('\n'));
}

/// The key of an older version is refused with the key to write.
#[test]
fn the_switch_of_the_fast_path_is_a_key_of_the_stack() {
    assert!(Config::from_toml(GOOD).expect("a complete configuration").stack.fast_path);
    let config = Config::from_toml(&format!("{GOOD}[stack]\nfast_path = false\n")).expect("a known key");
    assert!(!config.stack.fast_path);
    for table in ["tcp", "sctp"] {
        let message = refusal(&format!("{GOOD}[{table}]\nfast_path = false\n"));
        assert_eq!(message, "line 8: unknown field `fast_path`: write stack.fast_path");
    }
}

#[test]
fn a_value_out_of_range_is_named_with_what_is_allowed() {
    let message = refusal(&GOOD.replace("9000", "70"));
    assert_eq!(message, "port.mtu = 70: 576 to 65400 bytes");
}

#[test]
fn a_missing_table_is_named() {
    assert!(refusal("[net]\naddress = \"10.0.0.1/24\"\n").contains("missing field `port`"));
}

#[test]
fn a_memif_buffer_too_small_for_the_mtu_is_refused() {
    let message = refusal(&GOOD.replace("sock\" }", "sock\", buffer_bytes = 2048 }"));
    assert!(message.starts_with("port.device.memif.buffer_bytes = 2048"), "{message}");
}

/// A secret is checked, and neither an error nor a debug form shows it.
#[test]
fn a_memif_secret_is_checked_and_not_shown() {
    let with = |secret: &str| GOOD.replace("sock\" }", &format!("sock\", secret = \"{secret}\" }}"));
    for bad in ["", "a,role=client", "four and twenty octets..", "a]"] {
        let message = refusal(&with(bad));
        assert!(message.starts_with("port.device.memif.secret"), "{message}");
        assert!(bad.is_empty() || !message.contains(bad), "{message}");
    }
    let config = Config::from_toml(&with("sesame")).expect("a good secret");
    assert!(!format!("{config:?}").contains("sesame"));
}

#[test]
fn addresses_that_no_host_can_have_are_refused() {
    for address in ["10.0.0.1", "10.0.0.1/33", "224.0.0.1/24", "0.0.0.0/8", "255.255.255.255/1", "ten/8", ""]
    {
        let message = refusal(&GOOD.replace("10.0.0.1/24", address));
        assert!(message.starts_with(&format!("net.address = {address:?}")), "{message}");
    }
}

#[test]
fn a_port_of_dpdks_own_is_named_as_dpdk_lists_it() {
    let named = |name: &str| {
        format!("[port]\ndevice.dpdk = {{ name = \"{name}\" }}\n[net]\naddress = \"10.0.0.1/24\"\n")
    };
    let config = Config::from_toml(&named("0000:3b:00.0_representor_0")).expect("a valid configuration");
    assert_eq!(config.port.device.kind(), "dpdk");
    for name in ["", "two words", &"x".repeat(64)] {
        let message = refusal(&named(name));
        assert!(message.starts_with("port.device.dpdk.name = "), "{message}");
    }
}

/// Arguments may have a secret, which neither an error nor a debug form shows.
#[test]
fn a_virtual_device_of_dpdks_is_created_with_its_arguments() {
    let with = |args: &str| {
        let device = format!("device.dpdk = {{ name = \"net_memif0\", args = {args:?} }}");
        format!("[port]\n{device}\n[net]\naddress = \"10.0.0.1/24\"\n")
    };
    let config = Config::from_toml(&with("role=client,secret=sesame")).expect("a valid configuration");
    assert!(config.port.device.needs_dpdk() && !format!("{config:?}").contains("sesame"));
    for bad in ["role=client\n--secret", &"x".repeat(1025)] {
        let message = refusal(&with(bad));
        assert!(message.starts_with("port.device.dpdk.args = (not shown)"), "{message}");
    }
}

#[test]
fn an_interface_name_cannot_smuggle_device_arguments() {
    let tap = "[port]\ndevice.tap = { interface = \"x,iface=y\" }\n[net]\naddress = \"10.0.0.1/24\"\n";
    assert!(refusal(tap).starts_with("port.device.tap.interface = \"x,iface=y\""));
}

#[test]
fn every_limit_refuses_zero() {
    for key in [
        "queue_pairs",
        "completion_queues",
        "half_open",
        "listeners",
        "regions",
        "contexts",
        "context_quota_percent",
        "read_depth",
    ] {
        let message = refusal(&format!("{GOOD}[limits]\n{key} = 0\n"));
        assert!(message.starts_with(&format!("limits.{key} = 0")), "{message}");
    }
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let error = Config::from_file(Path::new("/nonexistent/x.toml")).expect_err("no such file");
    assert!(error.to_string().starts_with("/nonexistent/x.toml: "));
}

/// RFC 5044 s4.4: CRCs are on unless an administrator says otherwise; RFC 6581 s9.2: one indication
/// at least.
#[test]
fn mpa_settings_have_their_defaults_and_their_ranges() {
    let mpa = Config::from_toml(GOOD).expect("a complete configuration").mpa;
    assert!(mpa.crc && !mpa.markers && mpa.revision == 2 && mpa.revision_fallback && mpa.peer_to_peer);
    assert_eq!(mpa.rtr_kinds, [RtrKind::Send, RtrKind::Write, RtrKind::Read]);
    let set = |line: &str| format!("{GOOD}[mpa]\n{line}\n");
    let changed = "crc = false\nmarkers = true\nrevision = 1\nrtr_kinds = [\"read\"]";
    let mpa = Config::from_toml(&set(changed)).expect("every value lies in its range").mpa;
    assert_eq!((mpa.crc, mpa.markers, mpa.revision, mpa.rtr_kinds), (false, true, 1, vec![RtrKind::Read]));
    assert_eq!(refusal(&set("revision = 3")), "mpa.revision = 3: 1 or 2");
    assert!(refusal(&set("rtr_kinds = []")).starts_with("mpa.rtr_kinds = 0: one kind at least"));
    assert!(refusal(&set("rtr_kinds = [\"fax\"]")).contains("unknown variant `fax`"));
}

/// RFC 5044 s6: beyond a gap only a marker tells where an FPDU starts, and only a right CRC that it
/// is one.
#[test]
fn placement_out_of_order_is_off_and_needs_markers_and_crcs() {
    let set = |mpa: &str| format!("{GOOD}[mpa]\n{mpa}\n[ddp]\nplace_out_of_order = true\n");
    assert!(!Config::from_toml(GOOD).expect("a complete configuration").ddp.place_out_of_order);
    assert!(Config::from_toml(&set("markers = true")).expect("a good one").ddp.place_out_of_order);
    let over_sctp = set("") + "[stack]\ntransport = \"sctp\"\n";
    assert!(Config::from_toml(&over_sctp).expect("its chunks are segments").ddp.place_out_of_order);
    for lacking in ["", "markers = true\ncrc = false"] {
        let message = refusal(&set(lacking));
        assert!(message.starts_with("ddp.place_out_of_order = true: false unless"), "{message}");
    }
}

#[test]
fn the_transport_is_a_name_or_a_list_with_the_default_first() {
    let with = |value: &str| format!("{GOOD}[stack]\ntransport = {value}\n");
    let (tcp, sctp) = (TransportKind::Tcp, TransportKind::Sctp);
    for (value, want) in [
        ("\"sctp\"", sctp.into()),
        ("[\"sctp\"]", sctp.into()),
        ("[\"tcp\", \"sctp\"]", Transports::both(tcp)),
        ("[\"sctp\", \"tcp\"]", Transports::both(sctp)),
    ] {
        let read = Config::from_toml(&with(value)).expect("a good one").stack.transport;
        assert_eq!((read, read.first()), (want, want.first()), "{value}");
    }
    assert!(Transports::both(tcp).has(sctp) && !Transports::from(tcp).has(sctp));
    for value in ["\"udp\"", "[]", "[\"tcp\", \"tcp\"]", "[\"tcp\", \"sctp\", \"tcp\"]", "7"] {
        let message = refusal(&with(value));
        assert!(message.contains("stack.transport") && message.contains("both"), "{value}: {message}");
    }
}

/// RFC 7306 s1.1: what a peer receives is not negotiated on the wire, so the configuration says it.
#[test]
fn extensions_are_those_of_the_rfc_unless_configured() {
    let set = |line: &str| format!("{GOOD}[rdmap]\nextensions = \"{line}\"\n");
    assert_eq!(
        Config::from_toml(GOOD).expect("a complete configuration").rdmap.extensions,
        Extensions::Rfc7306
    );
    let named = [
        ("off", Extensions::Off),
        ("rfc7306", Extensions::Rfc7306),
        ("draft03", Extensions::Draft03),
        ("draft01", Extensions::Draft01),
    ];
    for (name, extensions) in named {
        assert_eq!(Config::from_toml(&set(name)).expect(name).rdmap.extensions, extensions);
    }
    assert!(refusal(&set("on")).contains("unknown variant `on`"));
    assert_eq!(
        Config::from_toml(GOOD).expect("a complete configuration").rdmap.atomic_execution,
        AtomicExecution::OwnerCore
    );
    let locked = format!("{GOOD}[rdmap]\natomic_execution = \"locked\"\n");
    assert_eq!(
        Config::from_toml(&locked).expect("a good one").rdmap.atomic_execution,
        AtomicExecution::Locked
    );
    let message = refusal(&format!("{GOOD}[rdmap]\nlacks_atomics_cache_s = 604801\n"));
    assert_eq!(message, "rdmap.lacks_atomics_cache_s = 604801: 0 to 604800 seconds");
    let message = refusal(&format!("{GOOD}[rdmap]\natomic_share_after = 255\n"));
    assert_eq!(message, "rdmap.atomic_share_after = 255: 0 to 254 calls");
}

/// `net` in place of the usual address.
fn with_net(net: &str) -> String {
    GOOD.replace("address = \"10.0.0.1/24\"", net)
}

#[test]
fn several_addresses_routes_gateways_and_a_vlan_are_taken() {
    let text = with_net(
        r#"
addresses = ["10.0.0.1/24", "fd00::1/64", "10.1.0.1/16"]
gateway = "10.0.0.254"
gateway6 = "fe80::1"
vlan = 42
vlan_priority = 5
routes = [{ to = "192.168.0.0/16", via = "10.1.0.9" }, { to = "2001:db8::/32", via = "fd00::9" }]
"#,
    );
    let net = Config::from_toml(&text).expect("a complete configuration").net;
    let addresses: Vec<String> =
        net.prefixes().expect("sound").iter().map(|one| format!("{}/{}", one.addr, one.len)).collect();
    assert_eq!(addresses, ["10.0.0.1/24", "fd00::1/64", "10.1.0.1/16"]);
    assert_eq!(net.static_routes().expect("sound").len(), 2);
    assert_eq!((net.vlan, net.vlan_priority, net.dad_probes_ipv4, net.dad_probes_ipv6), (Some(42), 5, 0, 1));
}

/// RFC 3021, RFC 6164, and networks of one address.
#[test]
fn small_networks_have_no_reserved_addresses() {
    for address in [
        "10.0.0.0/31",
        "10.0.0.1/31",
        "10.0.0.0/32",
        "10.0.0.255/32",
        "10.0.0.255/16",
        "10.0.1.0/16",
        "fd00::2/127",
        "fd00::3/127",
        "fd00::/128",
        "fd00::ffff:ffff:ffff:ffff/64",
    ] {
        assert!(Config::in_memory(address).is_ok(), "{address}");
    }
}

#[test]
fn routes_may_be_tables_of_their_own() {
    let text = format!("{GOOD}[[net.routes]]\nto = \"192.168.0.0/16\"\nvia = \"10.0.0.9\"\n");
    assert_eq!(Config::from_toml(&text).expect("a complete configuration").net.routes.len(), 1);
}

#[test]
fn an_address_of_ipv6_alone_is_enough_and_none_is_not() {
    let config = Config::in_memory("fd00::1/64").expect("a complete configuration");
    assert_eq!(config.net.parse().expect("an address"), ("fd00::1".parse::<IpAddr>().expect("v6"), 64));
    assert!(refusal(&with_net("")).starts_with("net.addresses = \"[]\": 1 to 8 addresses"));
}

/// RFC 1122 s3.2.1.7.
#[test]
fn every_mistake_in_the_network_is_named_with_its_key_and_what_is_allowed() {
    let many: String = (1..=9).map(|n| format!("\"10.0.0.{n}/24\",")).collect();
    for (net, start) in [
        ("addresses = [\"fd00::1\"]", "net.addresses = \"fd00::1\": a unicast address"),
        ("address = \"fd00::1/129\"", "net.address = \"fd00::1/129\": a unicast address"),
        ("address = \"ff02::1/64\"", "net.address = \"ff02::1/64\": a unicast address"),
        ("address = \"::1/64\"", "net.address = \"::1/64\": a unicast address"),
        ("address = \"10.0.0.0/24\"", "net.address = \"10.0.0.0/24\": an address of a station"),
        ("address = \"10.0.0.255/24\"", "net.address = \"10.0.0.255/24\": an address of a station"),
        ("address = \"10.0.0.3/30\"", "net.address = \"10.0.0.3/30\": an address of a station"),
        ("address = \"10.255.255.255/8\"", "net.address = \"10.255.255.255/8\": an address of a station"),
        ("addresses = [\"fd00:0:0:7::/64\"]", "net.addresses = \"fd00:0:0:7::/64\": an address of a station"),
        ("address = \"fd00::10/124\"", "net.address = \"fd00::10/124\": an address of a station"),
        ("addresses = [\"10.0.0.1/24\", \"10.0.0.1/8\"]", "net.addresses = \"10.0.0.1/8\": 1 to 8"),
        (&format!("addresses = [{many}]"), "net.addresses = \"10.0.0.9/24\": 1 to 8"),
        ("address = \"10.0.0.1/24\"\ngateway = \"10.0.1.1\"", "net.gateway = \"10.0.1.1\": an address on"),
        ("address = \"10.0.0.1/24\"\ngateway = \"10.0.0.1\"", "net.gateway = \"10.0.0.1\": an address on"),
        ("address = \"10.0.0.1/24\"\ngateway6 = \"fe80::1\"", "net.gateway6 = \"fe80::1\": an address on"),
        ("address = \"10.0.0.1/24\"\nvlan = 0", "net.vlan = 0: 1 to 4094"),
        ("address = \"10.0.0.1/24\"\nvlan = 4095", "net.vlan = 4095: 1 to 4094"),
        ("address = \"10.0.0.1/24\"\nvlan = 5\nvlan_priority = 8", "net.vlan_priority = 8: 0 to 7"),
        ("address = \"10.0.0.1/24\"\nvlan_priority = 1", "net.vlan_priority = 1: 0 to 7"),
        ("address = \"10.0.0.1/24\"\nhop_limit = 0", "net.hop_limit = 0: 1 to 255"),
        ("address = \"10.0.0.1/24\"\ndscp = 64", "net.dscp = 64: 0 to 63"),
        ("address = \"10.0.0.1/24\"\ndad_probes_ipv4 = 11", "net.dad_probes_ipv4 = 11: 0 to 10"),
        ("address = \"fd00::1/64\"\ndad_probes_ipv6 = 11", "net.dad_probes_ipv6 = 11: 0 to 10"),
        (
            "address = \"10.0.0.1/24\"\nroutes = [{ to = \"1.0.0.0\", via = \"10.0.0.2\" }]",
            "net.routes.to = \"1.0.0.0\": a network",
        ),
        (
            "address = \"10.0.0.1/24\"\nroutes = [{ to = \"::/0\", via = \"10.0.0.2\" }]",
            "net.routes.via = \"10.0.0.2\": an address",
        ),
        (
            "address = \"10.0.0.1/24\"\nroutes = [{ to = \"1.0.0.0/8\", via = \"10.0.1.2\" }]",
            "net.routes.via = \"10.0.1.2\": an address",
        ),
    ] {
        let message = refusal(&with_net(net));
        assert!(message.starts_with(start), "{net}: {message}");
    }
}

/// RFC 8200 s5.
#[test]
fn an_mtu_below_1280_is_no_good_with_ipv6() {
    let text = with_net("address = \"fd00::1/64\"").replace("9000", "1279");
    assert_eq!(refusal(&text), "port.mtu = 1279: at least 1280 bytes with an IPv6 address");
}

#[test]
fn tcp_settings_are_those_of_the_engine_and_have_their_defaults() {
    let engine = Config::from_toml(GOOD).expect("a complete configuration").tcp;
    assert_eq!((engine.rcv_window_bytes, engine.retransmit_queue_bytes_max), (1 << 20, 1 << 20));
    assert_eq!(engine.congestion, ironwarp_tcp::Congestion::Cubic);
    assert!(engine.sack && engine.timestamps && engine.ecn && engine.plpmtud && engine.syn_cookies);
    assert_eq!(engine.rto_max, Nanos::from_secs(60), "RFC 6298 s2.5");
    assert_eq!(engine.rto_after_syn_loss, Nanos::ZERO);
    let set = "congestion = \"dctcp\"\nsack = false\nrto_initial_us = 3000\nack_delay_max_us = 40\nrto_max_us = 2000000\n\
               rto_after_syn_loss_us = 3000000\n\
               initial_window_segments = 4\nsyn_retries = 2\nrefused_retries = 1\nkeep_alive = { idle_s = 60 }";
    let engine = Config::from_toml(&with_tcp(set)).expect("every value lies in its range").tcp;
    assert_eq!((engine.congestion, engine.sack), (ironwarp_tcp::Congestion::Dctcp, false));
    assert_eq!((engine.rto_initial, engine.ack_delay_max), (Nanos::from_millis(3), Nanos::from_micros(40)));
    assert_eq!(engine.rto_max, Nanos::from_secs(2));
    assert_eq!(engine.rto_after_syn_loss, Nanos::from_secs(3), "RFC 6298 s5.7");
    assert_eq!((engine.initial_window_segments, engine.syn_retries, engine.refused_retries), (4, 2, 1));
    assert_eq!(
        engine.keep_alive,
        Some(KeepAlive { idle: Duration::from_secs(60), interval: Duration::from_secs(75), probes: 9 })
    );
}

#[test]
fn every_mistake_in_tcp_is_named_with_its_key_and_what_is_allowed() {
    for (line, start) in [
        ("syn_retries = 17", "tcp.syn_retries = 17: 0 to 16"),
        ("refused_retries = 17", "tcp.refused_retries = 17: 0 to 16"),
        ("initial_window_segments = 0", "tcp.initial_window_segments = 0: 1 to 64 segments"),
        ("rto_initial_us = 99", "tcp.rto_initial_us = 99: 100 to 60000000 microseconds"),
        ("rto_max_us = 120000001", "tcp.rto_max_us = 120000001: at most 120000000 microseconds"),
        ("rto_max_us = 200000\nrto_initial_us = 200001", "tcp.rto_max_us = 200000: at most"),
        (
            "rto_after_syn_loss_us = 60000001",
            "tcp.rto_after_syn_loss_us = 60000001: 0 (that of the SYN) to 60000000",
        ),
        ("ack_delay_max_us = 1000001", "tcp.ack_delay_max_us = 1000001: 0 to 1000000 microseconds"),
        ("keep_alive = { probes = 1 }", "tcp.keep_alive.probes = 1: 2 to 255"),
        ("keep_alive = { idle_s = 0 }", "tcp.keep_alive.idle_s = 0: 1 to 86400 seconds"),
        ("congestion = \"dctcp\"\necn = false", "tcp.congestion = dctcp: only with tcp.ecn = true"),
    ] {
        let message = refusal(&with_tcp(line));
        assert!(message.starts_with(start), "{line}: {message}");
    }
    assert!(refusal(&with_tcp("congestion = \"vegas\"")).contains("unknown variant `vegas`"));
}

/// RFC 9260 s16: the defaults are its values, but for three times that suit a data centre. All can
/// be set.
#[test]
fn sctp_settings_are_those_of_the_engine_and_have_their_defaults() {
    let engine = Config::from_toml(GOOD).expect("a complete configuration").sctp;
    assert_eq!(engine, ironwarp_sctp::SctpConfig::default());
    assert_eq!((engine.rto_max, engine.burst_packets_max), (Nanos::from_secs(60), 4));
    assert_eq!((engine.association_retries, engine.path_retries, engine.init_retries), (10, 5, 8));
    assert!(!engine.multihoming, "RFC 5043 s7.2");
    assert_eq!((engine.heartbeat_interval, engine.cookie_life), (Nanos::from_secs(30), Nanos::from_secs(60)));
    let set = "rto_initial_us = 1000000\nrto_min_us = 1000000\nsack_delay_us = 200000\nrcv_window_bytes = 131072\n\
               streams = 1\nshare_associations = false\nheartbeat_interval_ms = 0";
    let engine = Config::from_toml(&with_sctp(set)).expect("every value lies in its range").sctp;
    let second = Nanos::from_secs(1);
    assert_eq!((engine.rto_initial, engine.rto_min), (second, second));
    assert_eq!((engine.sack_delay, engine.heartbeat_interval), (Nanos::from_millis(200), Nanos::MAX));
    assert_eq!((engine.a_rwnd_bytes, engine.outbound_streams), (131_072, 1));
    assert!(!engine.share_associations);
}

/// RFC6951-5.7-01.
#[test]
fn every_mistake_in_sctp_is_named_with_its_key_and_what_is_allowed() {
    for (line, start) in [
        ("rcv_window_bytes = 1500", "sctp.rcv_window_bytes = 1500: 131072 to 1073741824 bytes"),
        ("burst_packets = 0", "sctp.burst_packets = 0: 1 to 1024 packets"),
        ("streams = 0", "sctp.streams = 0: 1 to 1024"),
        ("rto_min_us = 99", "sctp.rto_min_us = 99: 100 to 60000000 microseconds"),
        ("rto_initial_us = 60000001", "sctp.rto_initial_us = 60000001: 100 to 60000000"),
        ("rto_max_us = 199999", "sctp.rto_max_us = 199999: at most 120000000 microseconds, and not below"),
        ("init_retries = 33", "sctp.init_retries = 33: 0 to 32"),
        ("refused_retries = 17", "sctp.refused_retries = 17: 0 to 16"),
        ("association_retries = 65", "sctp.association_retries = 65: 0 to 64"),
        (
            "udp_encapsulation_port = 9899",
            "sctp.udp_encapsulation_port = 9899: 0 without sctp.udp_local_port",
        ),
        (
            "multihoming = true\nudp_local_port = 9899",
            "sctp.multihoming = true: false with sctp.udp_local_port",
        ),
        ("path_retries = 65", "sctp.path_retries = 65: 0 to 64"),
        ("potentially_failed_retries = 6", "sctp.potentially_failed_retries = 6: 0 to sctp.path_retries"),
        ("sack_delay_us = 500001", "sctp.sack_delay_us = 500001: 0 to 500000 microseconds"),
        ("heartbeat_interval_ms = 86400001", "sctp.heartbeat_interval_ms = 86400001: 0 (none) to 86400000"),
    ] {
        let message = refusal(&with_sctp(line));
        assert!(message.starts_with(start), "{line}: {message}");
    }
    let addresses: String = (1..=5).map(|n| format!("\"10.0.0.{n}/24\",")).collect();
    let many = with_sctp("multihoming = true")
        .replace("address = \"10.0.0.1/24\"", &format!("addresses = [{addresses}]"));
    let message = refusal(&many);
    assert!(message.starts_with("sctp.multihoming = true, with 5 addresses: at most 4"), "{message}");
    // What is derived from other settings is no key.
    assert!(refusal(&with_sctp("associations_max = 5")).contains("unknown field `associations_max`"));
}

fn with_sctp(lines: &str) -> String {
    format!("{GOOD}[sctp]\n{lines}\n")
}

fn with_tcp(lines: &str) -> String {
    format!("{GOOD}[tcp]\n{lines}\n")
}

#[test]
fn cores_are_counted_and_pinned_one_to_a_processor() {
    let with = |core: &str| Config::from_toml(&format!("{GOOD}[core]\n{core}\n"));
    let config = with("count = 2\nprocessors = [3, 5]").expect("two cores");
    assert_eq!([0, 1].map(|core| config.core.processor_of(core)), [Some(3), Some(5)]);
    assert_eq!(with("processor = 7").expect("one core").core.processor_of(0), Some(7));
    let said = |core: &str| with(core).expect_err("the configuration is wrong").to_string();
    assert_eq!(said("count = 0"), "core.count = 0: 1 to 64");
    assert_eq!(said("count = 65"), "core.count = 65: 1 to 64");
    assert_eq!(
        said("count = 2\nprocessor = 1"),
        "core.processor = 1: with one core; core.processors names one for each"
    );
    let many = "as many processors as core.count says";
    assert_eq!(said("count = 2\nprocessors = [1]"), format!("core.processors = [1]: {many}"));
    assert_eq!(
        said("count = 2\nprocessors = [1, 1]"),
        "core.processors = [1, 1]: a processor for each core, no two alike"
    );
    assert_eq!(
        said("count = 16"),
        "port.rx_frames = 8192: at least port.ring_size + 512 x core.count, at most 1048576"
    );
}

/// Every configuration that the project ships can be used, says what it is for, and there is one
/// for each kind of device.
#[test]
fn every_shipped_configuration_is_right() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../configs");
    let mut kinds = Vec::new();
    for entry in std::fs::read_dir(folder).expect("the folder") {
        let path = entry.expect("a file").path();
        // Those of a program are in a folder of its own; its tests read them.
        if path.is_dir() {
            continue;
        }
        let text = std::fs::read_to_string(&path).expect("text");
        assert!(text.starts_with("# "), "{} does not say what it is for", path.display());
        let config = Config::from_file(&path).unwrap_or_else(|error| panic!("{error}"));
        kinds.push(config.port.device.kind());
    }
    for kind in ["memif", "ring", "tap", "af_packet", "af_xdp", "vhost", "pci"] {
        assert!(kinds.contains(&kind), "no configuration of {kind}: {kinds:?}");
    }
}

#[test]
fn a_socket_of_vhost_is_a_path_that_fits() {
    let with = |socket: &str| {
        GOOD.replace(
            "memif = { role = \"server\", socket = \"/run/ironwarp.sock\"",
            &format!("vhost = {{ socket = \"{socket}\""),
        )
    };
    assert_eq!(Config::from_toml(&with("/run/v.sock")).expect("a path").port.device.kind(), "vhost");
    assert!(refusal(&with("/run/v,client=1")).starts_with("port.device.vhost.socket"));
}

const FABRIC: &str = r#"
[[fabrics]]
port = { mtu = 9000, device.memif = { role = "client", socket = "/run/other.sock" } }
net = { address = "10.1.0.1/24" }
"#;

const MEMIF: &str = "memif = { role = \"client\", socket = \"/run/other.sock\" }";

fn with_fabric(from: &str, to: &str) -> String {
    assert!(FABRIC.contains(from), "{from}");
    format!("{GOOD}{}", FABRIC.replace(from, to))
}

/// semantics "Many cores": several ports, each with a network of its own.
#[test]
fn further_ports_have_tables_of_the_same_keys() {
    let config = Config::from_toml(&format!("{GOOD}{FABRIC}")).expect("two ports");
    let of_second = |port: &PortConfig| (port.mtu, port.ring_size, port.rx_frames);
    assert_eq!((config.ports(), of_second(&config.fabrics[0].port)), (2, (9000, None, 8192)));
    let all: [IpAddr; 2] = [[10, 0, 0, 1], [10, 1, 0, 1]].map(IpAddr::from);
    assert_eq!(config.addresses().expect("addresses"), all);
    let second = config.for_port(1);
    assert_eq!(second.net.parse().expect("an address"), (IpAddr::from([10, 1, 0, 1]), 24));
    assert_eq!(
        (second.ports(), config.for_port(0).net.address, config.for_port(0).ports()),
        (1, config.net.address.clone(), 2)
    );
    assert_eq!(Config::from_toml(GOOD).expect("one port").ports(), 1);
    assert_eq!(
        (config.port_name(0), config.port_name(1)),
        ("port 0 (memif)".into(), "port 1 (memif)".into())
    );
    assert_eq!(Config::from_toml(GOOD).expect("one port").port_name(0), "memif");
}

/// Two ports never lead to one peer: the mistake is named with the entry, the key, the value and
/// what is allowed.
#[test]
fn ports_whose_networks_are_not_apart_are_refused() {
    let apart = "a network that no address of another port is on, so that one port leads to each peer";
    for address in ["10.0.0.1/24", "10.0.0.9/24", "10.0.0.200/32", "10.9.9.9/8"] {
        let message = refusal(&with_fabric("10.1.0.1/24", address));
        assert_eq!(message, format!("fabrics, entry 1: net.addresses = {address}: {apart}"));
    }
}

#[test]
fn every_mistake_in_a_further_port_is_named() {
    let two_gateways = with_fabric("10.1.0.1/24\"", "10.1.0.1/24\", gateway = \"10.1.0.254\"").replacen(
        "address = \"10.0.0.1/24\"",
        "address = \"10.0.0.1/24\"\ngateway = \"10.0.0.254\"",
        1,
    );
    assert!(refusal(&two_gateways).starts_with("fabrics, entry 1: net.gateway = 10.1.0.254: no gateway"));
    let route = |via: &str| format!("routes = [{{ to = \"192.168.0.0/16\", via = \"{via}\" }}]");
    let two_routes = with_fabric("10.1.0.1/24\"", &format!("10.1.0.1/24\", {}", route("10.1.0.254")))
        .replacen(
            "address = \"10.0.0.1/24\"",
            &format!("address = \"10.0.0.1/24\"\n{}", route("10.0.0.254")),
            1,
        );
    assert!(refusal(&two_routes).starts_with("fabrics, entry 1: net.routes.to = 192.168.0.0/16: "));
    // A route to the network that another port is on.
    let routes_there = "address = \"10.0.0.1/24\"\nroutes = [{ to = \"10.1.0.0/24\", via = \"10.0.0.254\" }]";
    let shadowed =
        with_fabric("10.1.0.1/24", "10.1.0.1/24").replacen("address = \"10.0.0.1/24\"", routes_there, 1);
    assert!(refusal(&shadowed).starts_with("fabrics, entry 1: net.routes.to = 10.1.0.0/24: "));
    let mistakes = [
        ("mtu = 9000", "mtu = 70", "port.mtu = 70: 576 to 65400 bytes"),
        ("10.1.0.1/24", "10.1.0.1", "net.address = \"10.1.0.1\": a unicast address"),
        ("/run/other.sock", "/run/ironwarp.sock", "port.device = memif: a device that no other port has"),
        (MEMIF, "ring = {}", "port.device = ring: a device"),
        (MEMIF, "memory = {}", "port.device = memory: memory"),
    ];
    for (from, to, said) in mistakes {
        let message = refusal(&with_fabric(from, to));
        assert!(message.starts_with(&format!("fabrics, entry 1: {said}")), "{message}");
    }
    // One card by two of its names.
    let first = "pci = { address = \"0000:3b:00.0\" }";
    let good = GOOD.replace("memif = { role = \"server\", socket = \"/run/ironwarp.sock\" }", first);
    let card = |device: &str| format!("{good}{}", FABRIC.replace(MEMIF, device));
    for device in ["pci = { address = \"3b:00.0\" }", "dpdk = { name = \"0000:3B:00.0\" }"] {
        assert!(refusal(&card(device)).contains("a device that no other port has"), "{device}");
    }
    assert!(Config::from_toml(&card("pci = { address = \"3b:00.1\" }")).is_ok());
    assert!(refusal(&with_fabric("net =", "nets =")).contains("unknown field `nets`"));
    let many = (0..8)
        .map(|at| FABRIC.replace("10.1.", &format!("10.{}.", at + 1)).replace("other", &format!("o{at}")));
    assert_eq!(
        refusal(&format!("{GOOD}{}", many.collect::<String>())),
        "fabrics = 8: at most 7 further ports"
    );
}
