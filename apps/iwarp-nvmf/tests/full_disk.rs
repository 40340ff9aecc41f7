//! A real disk without room: Writes fail with Capacity Exceeded (Base 1.4, 4.6.1.2.1), everything
//! else goes on, and a Write succeeds again when there is room.

use std::io::Write;
use std::path::Path;
use std::process::Command;

use crate::common::{NQN, Pair, target_config};
use iwarp_nvmf::NvmfError;
use iwarp_nvmf::host::BlockRange;
use iwarp_nvmf::wire::Status;

const BLOCKS: u32 = 64;
const BYTES: usize = BLOCKS as usize * 512;

fn range(at: u64) -> BlockRange {
    BlockRange { nsid: 1, slba: at * u64::from(BLOCKS), blocks: BLOCKS }
}

#[test]
fn a_full_disk_is_capacity_exceeded_until_there_is_room() {
    const FOLDER: &str = "IRONWARP_FULL_DISK";
    match std::env::var_os(FOLDER) {
        Some(folder) => fill(Path::new(&folder)),
        None => on_a_small_disk(FOLDER, "full_disk::a_full_disk_is_capacity_exceeded_until_there_is_room"),
    }
}

/// The disk has 2 MiB, of which a ballast takes a half; the namespace promises 8 MiB.
fn fill(folder: &Path) {
    let (path, ballast) = (folder.join("disk"), folder.join("ballast"));
    std::fs::write(&ballast, vec![1; 1 << 20]).expect("room for the ballast");
    std::fs::File::create(&path).and_then(|file| file.set_len(8 << 20)).expect("a sparse file");
    let mut pair = Pair::connected(
        &target_config(&format!(
            "[limits]\nbuffers = 8\ncapsules = 512\n[[subsystem]]\nnqn = \"{NQN}\"\nallow_any_host = true\n\
             [[subsystem.namespace]]\nnsid = 1\nbackend.file = {{ path = \"{}\" }}\n",
            path.display()
        )),
        1,
    );
    let Pair { host, side, .. } = &mut pair;
    let pattern = |at: u64| vec![at as u8 + 1; BYTES];
    let failed = (0..256u64).find_map(|at| {
        host.write(range(at), &mut pattern(at), &mut || side.turn()).err().map(|error| (at, error))
    });
    let (full, error) = failed.expect("the disk is smaller");
    assert!(
        matches!(error, NvmfError::Command { status: Status::CAPACITY_EXCEEDED, .. }) && full > 0,
        "{full}: {error}"
    );
    let mut found = vec![0; BYTES];
    for at in 0..full {
        host.read(range(at), &mut found, &mut || side.turn()).expect("read");
        assert!(found == pattern(at), "{at}");
    }
    std::fs::remove_file(&ballast).expect("removed");
    host.write(range(full), &mut pattern(full), &mut || side.turn()).expect("written");
    host.read(range(full), &mut found, &mut || side.turn()).expect("read");
    assert!(found == pattern(full));
}

/// Runs a test again in a child process with a small disk in a mount namespace of its own. Its
/// folder is in the environment.
fn on_a_small_disk(variable: &str, test: &str) {
    let folder = tempfile::tempdir().expect("a folder");
    let output = Command::new("unshare")
        .args(["--mount", "--map-root-user", "--", "sh", "-c"])
        .arg(format!("mount -t tmpfs -o size=2m none \"${variable}\" && echo mounted && exec \"$0\" \"$@\""))
        .arg(std::env::current_exe().expect("this program"))
        .args([test, "--exact", "--nocapture", "--test-threads=1"])
        .env(variable, folder.path())
        .output()
        .expect("unshare, of util-linux");
    let text =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    if !text.contains("mounted") {
        writeln!(std::io::stderr(), "\nSKIPPED: no mount namespace").expect("a terminal");
        return;
    }
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}
