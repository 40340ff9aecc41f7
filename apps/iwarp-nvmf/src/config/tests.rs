//! Configurations of a target: what is accepted, and the error of each that is not.

use super::*;

const GOOD: &str = r#"
listeners = ["10.99.0.1:4420"]
[stack.port]
device.memory = {}
[stack.net]
address = "10.99.0.1/24"
[[subsystem]]
nqn = "nqn.2014-08.org.example:disk"
allow_any_host = true
[[subsystem.namespace]]
nsid = 1
backend.memory = { mib = 16 }
"#;

#[test]
fn a_small_configuration_has_defaults() {
    let config = TargetConfig::from_toml(GOOD).expect("valid");
    assert_eq!(config.limits.queue_entries, 128);
    assert_eq!(config.subsystems[0].namespaces[0].backend, BackendConfig::Memory { mib: 16 });
}

#[test]
fn an_error_names_the_key_the_value_and_what_is_allowed() {
    for (from, to, words) in [
        ("10.99.0.1:4420", "10.99.0.2:4420", &["listeners", "10.99.0.2:4420", "stack.net"][..]),
        ("nqn.2014-08.org.example:disk", "disk", &["subsystem.nqn", "disk", "nqn.2014"]),
        ("nsid = 1", "nsid = 0", &["namespace.nsid", "0", "1 to 1024"]),
        ("allow_any_host = true", "", &["subsystem.hosts", "allow_any_host"]),
        ("nsid = 1", "nsid = 1\nblock_bytes = 100", &["block_bytes", "100", "512"]),
        ("nsid = 1", "nsid = 1\nblock_size = 512", &["block_size", "line 12"]),
        ("mib = 16", "mib = 0", &["mib", "1 to"]),
        (
            "[[subsystem]]",
            "[limits]\ntransfer_kib = 100\n[[subsystem]]",
            &["transfer_kib", "100", "power of two"],
        ),
        ("device.memory = {}", "device.memory = {}\nmtu = 1", &["stack", "mtu", "1"]),
    ] {
        let text = GOOD.replace(from, to);
        let error = TargetConfig::from_toml(&text).expect_err(to).to_string();
        assert!(words.iter().all(|word| error.contains(word)) && !error.contains('\n'), "{to}: {error}");
    }
}

#[test]
fn an_identity_is_explicit_or_absent() {
    let text = GOOD.replace("nsid = 1", "nsid = 1\nuuid = \"00112233-4455-6677-8899-aabbccddeeff\"");
    let config = TargetConfig::from_toml(&text).expect("valid");
    let namespace = &config.subsystems[0].namespaces[0];
    assert_eq!(namespace.uuid().expect("explicit").as_bytes()[..3], [0x00, 0x11, 0x22]);
    assert_eq!(namespace.nguid(), None);
    assert_eq!(TargetConfig::from_toml(GOOD).expect("valid").subsystems[0].namespaces[0].uuid(), None);
}

/// Two disks with one identity are one multipath disk to Linux.
#[test]
fn identities_are_unique_and_shared_media_name_all_of_theirs() {
    let uuid = |number: u8| format!("{number:032x}");
    let second = |keys: &str| {
        format!("{GOOD}[[subsystem.namespace]]\nnsid = 2\nbackend.memory = {{ mib = 1 }}\n{keys}\n")
    };
    let twice = second(&format!("uuid = \"{}\"", uuid(1))).replacen(
        "nsid = 1",
        &format!("nsid = 1\nuuid = \"{}\"", uuid(1)),
        1,
    );
    let file = |keys: &str| {
        let backend = format!("backend.file = {{ path = \"/disk\" }}\nshared = true\n{keys}");
        GOOD.replace("backend.memory = { mib = 16 }", &backend)
    };
    let named = format!("uuid = \"{}\"\nnguid = \"{}\"", uuid(1), uuid(2));
    let with_serial = |text: String| text.replace("allow_any_host", "serial = \"7\"\nallow_any_host");
    let two_subsystems = with_serial(GOOD.to_owned())
        + "[[subsystem]]\nnqn = \"nqn.2014-08.org.example:other\"\nallow_any_host = true\nserial = \"7\"\n";
    for (text, words) in [
        (twice, &["namespace.uuid", "no other namespace"][..]),
        (second(&format!("uuid = \"{}\"", uuid(0))), &["namespace.uuid", "00000000"]),
        (second("nguid = \"1234\""), &["namespace.nguid", "1234", "32 hexadecimal digits"]),
        (file(&named), &["namespace.shared", "serial"]),
        (with_serial(file("")), &["namespace.shared", "uuid", "nguid"]),
        (with_serial(file(&format!("uuid = \"{}\"", uuid(1)))), &["namespace.shared", "nguid"]),
        (second("shared = true"), &["namespace.shared", "backend.file"]),
        (two_subsystems, &["subsystem.serial", "7", "no other subsystem"]),
        (GOOD.replace("allow_any_host", "serial = \"\"\nallow_any_host"), &["subsystem.serial", "1 to 20"]),
    ] {
        let error = TargetConfig::from_toml(&text).expect_err(&text).to_string();
        assert!(words.iter().all(|word| error.contains(word)), "{text}: {error}");
    }
    assert!(TargetConfig::from_toml(&with_serial(file(&named))).is_ok());
}

#[test]
fn a_listener_is_named_once() {
    for (listeners, words) in [
        ("[\"10.99.0.1:4420\", \"10.99.0.1:4420\"]", &["listeners", "10.99.0.1:4420", "once"][..]),
        ("[\"10.99.0.1:4420\", \"0.0.0.0:4420\"]", &["listeners", "0.0.0.0:4420", "once"]),
    ] {
        let text = GOOD.replace("[\"10.99.0.1:4420\"]", listeners);
        let error = TargetConfig::from_toml(&text).expect_err(listeners).to_string();
        assert!(words.iter().all(|word| error.contains(word)), "{listeners}: {error}");
    }
    let two = GOOD.replace("[\"10.99.0.1:4420\"]", "[\"10.99.0.1:4420\", \"0.0.0.0:8009\"]");
    assert!(TargetConfig::from_toml(&two).is_ok());
}

/// The keys that the parser accepts in a table: it lists them when it refuses an unknown one.
fn known_keys(table: &str, is_list: bool) -> Vec<String> {
    let text = match (table, is_list) {
        ("", _) => "no_such_key = 1".to_owned(),
        (table, false) => format!("[{table}]\nno_such_key = 1"),
        ("subsystem.namespace", true) => "[[subsystem]]\n[[subsystem.namespace]]\nno_such_key = 1".to_owned(),
        (table, true) => format!("[[{table}]]\nno_such_key = 1"),
    };
    let error = TargetConfig::from_toml(&text).expect_err("the key is unknown").to_string();
    let (_, expected) =
        error.split_once("expected ").unwrap_or_else(|| panic!("no list of keys in: {error}"));
    expected.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

#[test]
fn the_explained_configuration_names_every_key() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../configs/nvmf/memif.toml");
    let explained = std::fs::read_to_string(path).expect("the file is there");
    for (table, is_list) in [
        ("", false),
        ("limits", false),
        ("authentication", false),
        ("host", true),
        ("subsystem", true),
        ("subsystem.namespace", true),
    ] {
        let keys = known_keys(table, is_list);
        assert!(!keys.is_empty(), "the parser names no key of {table}");
        for key in keys {
            let is_explained =
                explained.lines().map(|line| line.trim_start_matches(['#', ' ', '['])).any(|line| {
                    line.split(['=', '.', ' ', ']']).next() == Some(&key)
                        || line.starts_with(&format!("{table}.{key}]"))
                });
            assert!(is_explained, "configs/nvmf/memif.toml does not explain {key} of [{table}]");
        }
    }
}

/// As `nvme gen-dhchap-key` writes them. The keys count up, from another byte each.
const SECRET: &str = "DHHC-1:00:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:";
const CTRL_SECRET: &str = "DHHC-1:01:gIGCg4SFhoeIiYqLjI2Oj5CRkpOUlZaXmJmam5ydnp9vmVbU:";

const OTHER_SECRET: &str = "DHHC-1:01:QEFCQ0RFRkdISUpLTE1OT1BRUlNUVVZXWFlaW1xdXl9YjiZe:";

fn host(nqn: &str, secret: &str, ctrl_secret: &str) -> String {
    format!(
        "[[host]]\nnqn = \"{nqn}\"\ndhchap_secret = \"{secret}\"\ndhchap_ctrl_secret = \"{ctrl_secret}\"\n"
    )
}

#[test]
fn secrets_are_checked_and_not_shown() {
    let nqn = "nqn.2014-08.org.example:host";
    let good = host(nqn, SECRET, CTRL_SECRET);
    let config = TargetConfig::from_toml(&format!("{GOOD}{good}")).expect("valid");
    assert!(!format!("{config:?}").contains("AAECAwQF"));
    assert_eq!(config.auth_policy().hosts.len(), 1);
    // A key that is missing or forgotten is not open.
    let is_required = |text: &str| {
        let config = TargetConfig::from_toml(&format!("{GOOD}{text}")).expect("valid");
        config.auth_policy().is_required
    };
    assert!(is_required(&good) && is_required("[authentication]\nsecrets = \"file\"\n"));
    assert!(!is_required("") && !is_required(&format!("[authentication]\nrequired = false\n{good}")));
    assert!(is_required("[authentication]\nrequired = true\n"));
    let damaged = SECRET.replace("AAEC", "ABEC");
    for (text, words) in [
        (host(nqn, &damaged, CTRL_SECRET), &["line", "CRC"][..]),
        (host(nqn, "secret", CTRL_SECRET), &["line", "DHHC-1"]),
        (host(nqn, SECRET, &SECRET.replace(":00:", ":02:")), &["host.dhchap_secret", nqn, "no other host's"]),
        (good.clone() + &host("nqn.other", SECRET, CTRL_SECRET), &["host.dhchap_secret", nqn]),
        (good.clone() + &host("nqn.other", CTRL_SECRET, OTHER_SECRET), &["host.dhchap_secret", "nqn.other"]),
        (host(SECRET, OTHER_SECRET, CTRL_SECRET), &["host.nqn", "(a secret)"]),
        (good.clone() + &good, &["host.nqn", nqn, "no other host"]),
        (host("host", SECRET, CTRL_SECRET), &["host.nqn"]),
        ("[authentication]\ngroups = []".to_owned(), &["authentication.groups", "ffdhe8192"]),
        ("[authentication]\nhashes = [\"md5\"]".to_owned(), &["line", "md5", "sha512"]),
    ] {
        let error = TargetConfig::from_toml(&format!("{GOOD}{text}")).expect_err(&text).to_string();
        assert!(words.iter().all(|word| error.contains(word)), "{text}: {error}");
        assert!(!error.contains("AAECAwQF") && !error.contains(&damaged), "{error}");
    }
}

#[test]
fn a_file_with_secrets_is_readable_by_its_owner_alone() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().expect("a folder");
    let (secrets, config) = (folder.path().join("secrets.toml"), folder.path().join("target.toml"));
    let write = |path: &Path, text: &str, mode| {
        std::fs::write(path, text).expect("written");
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("set");
    };
    let one = host("nqn.2014-08.org.example:one", SECRET, CTRL_SECRET);
    let other = host("nqn.2014-08.org.example:other", OTHER_SECRET, CTRL_SECRET);
    let named = format!("{GOOD}[authentication]\nsecrets = {secrets:?}\n");
    write(&config, &named, 0o644);
    write(&secrets, &other, 0o600);
    assert_eq!(TargetConfig::from_file(&config).expect("valid").hosts.len(), 1);
    for mode in [0o604, 0o660, 0o620, 0o644] {
        write(&secrets, &other, mode);
        let error = TargetConfig::from_file(&config).expect_err("others can read it").to_string();
        assert!(error.contains("secrets.toml") && error.contains("chmod 600"), "{error}");
    }
    // The configuration itself has a secret: it must be private then, too.
    write(&secrets, &other, 0o600);
    write(&config, &format!("{named}{one}"), 0o644);
    let error = TargetConfig::from_file(&config).expect_err("others can read it").to_string();
    assert!(error.contains("target.toml") && error.contains("chmod 600"), "{error}");
    write(&config, &format!("{named}{one}"), 0o600);
    assert_eq!(TargetConfig::from_file(&config).expect("valid").hosts.len(), 2);
    write(&secrets, &one, 0o600);
    let error = TargetConfig::from_file(&config).expect_err("twice").to_string();
    assert!(error.contains("no other host"), "{error}");
    write(&secrets, "[[host]]\nnqn = 1", 0o600);
    let error = TargetConfig::from_file(&config).expect_err("no NQN").to_string();
    assert!(error.contains("secrets.toml") && error.contains("line 2"), "{error}");
    let other_owner = check_private(&secrets, u32::MAX - 1, 0o600).expect_err("another owner").to_string();
    assert!(other_owner.contains("secrets.toml") && other_owner.contains("4294967294"), "{other_owner}");
    std::fs::remove_file(&secrets).expect("removed");
    let error = TargetConfig::from_file(&config).expect_err("no file").to_string();
    assert!(error.contains("secrets.toml"), "{error}");
}
