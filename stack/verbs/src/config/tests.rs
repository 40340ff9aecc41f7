//! What a configuration file may say, and how it is told that it may not.

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
    assert_eq!(config.port.ring, 1024);
    assert_eq!(config.core.idle, IdlePolicy::Pause);
    assert_eq!(config.net.parse().expect("an address"), (Ipv4Addr::new(10, 0, 0, 1), 24));
    assert!(matches!(
        config.port.device,
        DeviceConfig::Memif { role: MemifRole::Server, buffer_bytes: 10_240, .. }
    ));
}

#[test]
fn an_unknown_key_is_named_with_its_line_and_the_keys_that_exist() {
    let message = refusal(&format!("{GOOD}[tcp]\nwindow = 5\n"));
    assert!(message.starts_with("line 8: unknown field `window`"), "{message}");
    assert!(message.contains("window_bytes"), "{message}");
    assert!(!message.contains('\n'));
}

#[test]
fn a_value_out_of_range_is_named_with_what_is_allowed() {
    let message = refusal(&GOOD.replace("9000", "70"));
    assert_eq!(message, "port.mtu = 70: 576 to 9600 bytes");
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

#[test]
fn addresses_that_no_host_can_have_are_refused() {
    for address in ["10.0.0.1", "10.0.0.1/33", "224.0.0.1/24", "0.0.0.0/8", "255.255.255.255/1", "ten/8", ""]
    {
        let message = refusal(&GOOD.replace("10.0.0.1/24", address));
        assert!(message.starts_with(&format!("net.address = {address:?}")), "{message}");
    }
}

#[test]
fn an_interface_name_cannot_smuggle_device_arguments() {
    let tap = "[port]\ndevice.tap = { interface = \"x,iface=y\" }\n[net]\naddress = \"10.0.0.1/24\"\n";
    assert!(refusal(tap).starts_with("port.device.tap.interface = \"x,iface=y\""));
}

#[test]
fn every_limit_refuses_zero() {
    for key in ["queue_pairs", "completion_queues", "half_open", "listeners", "regions", "contexts", "reads"]
    {
        let message = refusal(&format!("{GOOD}[limits]\n{key} = 0\n"));
        assert!(message.starts_with(&format!("limits.{key} = 0")), "{message}");
    }
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let error = Config::from_file(Path::new("/nonexistent/x.toml")).expect_err("no such file");
    assert!(error.to_string().starts_with("/nonexistent/x.toml: "));
}

/// RFC 5044 s4.4: CRCs are on unless an administrator says otherwise; RFC 6581 s9.2: one indication at least.
#[test]
fn mpa_settings_have_their_defaults_and_their_ranges() {
    let mpa = Config::from_toml(GOOD).expect("a complete configuration").mpa;
    assert!(mpa.crc && !mpa.markers && mpa.revision == 2 && mpa.fallback && mpa.peer_to_peer);
    assert_eq!(mpa.indications, [Indication::Send, Indication::Write, Indication::Read]);
    let set = |line: &str| format!("{GOOD}[mpa]\n{line}\n");
    let changed = "crc = false\nmarkers = true\nrevision = 1\nindications = [\"read\"]";
    let mpa = Config::from_toml(&set(changed)).expect("every value lies in its range").mpa;
    assert_eq!(
        (mpa.crc, mpa.markers, mpa.revision, mpa.indications),
        (false, true, 1, vec![Indication::Read])
    );
    assert_eq!(refusal(&set("revision = 3")), "mpa.revision = 3: 1 or 2");
    assert!(refusal(&set("indications = []")).starts_with("mpa.indications = 0: one kind at least"));
    assert!(refusal(&set("indications = [\"fax\"]")).contains("unknown variant `fax`"));
}
