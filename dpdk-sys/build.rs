//! Finds DPDK, compiles the shim, generates the bindings, and says what to link.
//!
//! DPDK older than 22.11, or none, is no error: the crate then compiles empty with cfg
//! `dpdk_missing` and one warning, so that the workspace builds everywhere. `IRONWARP_NO_DPDK=1`
//! makes it look as if none were installed. Dependents with a build script read `DEP_DPDK_VERSION`,
//! which is absent when DPDK is.

use std::env;
use std::path::PathBuf;
use std::process::Command;

const OLDEST: &str = "22.11";

/// Releases whose headers or layouts differ in ways that matter to users of this crate.
const RELEASES: [((u32, u32), &str); 3] =
    [((23, 11), "dpdk_ge_23_11"), ((24, 11), "dpdk_ge_24_11"), ((25, 11), "dpdk_ge_25_11")];

/// Functions of DPDK itself that the port backend calls; the shim's own come in by their prefix.
const FUNCTIONS: &str = "dsys_.*|rte_eal_(init|has_hugepages|cleanup|get_runtime_dir|hotplug_add|hotplug_remove)\
    |rte_version(_year|_month)?|rte_strerror|rte_lcore_count|rte_socket_id\
    |rte_mempool_(free|avail_count)|rte_ring_(create|free)|rte_eth_from_rings\
    |rte_eth_dev_(get_port_by_name|get_name_by_port|info_get|configure|adjust_nb_rx_tx_desc|start|stop|close|socket_id\
    |set_mtu|get_mtu)|rte_eth_(rx|tx)_queue_setup|rte_eth_macaddr_get|rte_eth_promiscuous_enable\
    |rte_eth_allmulticast_enable|rte_eth_dev_rx_intr_(enable|disable|ctl_q_get_fd)\
    |rte_eth_stats_get|rte_eth_find_next";

/// Static linking: libraries that only answer calls, in the order in which they lean on each other.
const STATIC_CORE: &str = "common_iavf common_idpf common_sfc_efx vhost security rib pcapng ip_frag gso gro eventdev dmadev cryptodev bpf timer hash metrics \
    cmdline pci ethdev meter net mbuf mempool rcu ring eal telemetry kvargs";

/// Static linking: libraries that register themselves from constructors nobody calls, so they must
/// be taken whole. They are all drivers of network cards for this kind of machine that need no
/// library of the system's beyond
/// [`STATIC_SYSTEM`]: not mlx4, mlx5 and mana, which need libibverbs and its own drivers.
const STATIC_DRIVERS: &str = "bus_vdev bus_pci bus_vmbus mempool_ring net_af_packet net_af_xdp net_memif net_null \
    net_pcap net_ring net_tap net_vhost net_virtio net_vmxnet3 net_ark net_atlantic net_avp net_axgbe net_bnx2x net_bnxt \
    net_cxgbe net_e1000 net_ena net_enic net_fm10k net_gve net_hinic net_hns3 net_i40e net_iavf net_ice net_idpf net_igc \
    net_ionic net_ixgbe net_liquidio net_netvsc net_nfp net_ngbe net_octeon_ep net_qede net_sfc net_txgbe";

/// Static linking: what the archives themselves need from the system.
const STATIC_SYSTEM: &str = "xdp bpf elf z pcap numa bsd atomic m dl pthread";

/// Dynamic linking: what we call. Drivers are loaded by the EAL from its plug-in directory.
const DYNAMIC: &str = "net_ring ethdev mbuf mempool ring eal";

fn main() {
    declare_cfgs();
    match find_dpdk() {
        Ok(dpdk) => bind(&dpdk),
        Err(reason) => {
            println!("cargo::rustc-cfg=dpdk_missing");
            println!("cargo::warning=dpdk-sys is empty, the DPDK backend is not available: {reason}");
            look_again_after_an_installation();
        }
    }
}

/// Names the folders that pkg-config searches, so that a DPDK installed after a failed build is
/// found by the next one.
fn look_again_after_an_installation() {
    println!("cargo::rerun-if-env-changed=PKG_CONFIG_PATH");
    let searched = pkg_config::get_variable("pkg-config", "pc_path").unwrap_or_default();
    let more = env::var("PKG_CONFIG_PATH").unwrap_or_default();
    // A folder that does not exist would make every build look again.
    for folder in env::split_paths(&searched).chain(env::split_paths(&more)).filter(|folder| folder.is_dir())
    {
        println!("cargo::rerun-if-changed={}", folder.display());
    }
}

fn declare_cfgs() {
    println!("cargo::rustc-check-cfg=cfg(dpdk_missing)");
    for (_, cfg) in RELEASES {
        println!("cargo::rustc-check-cfg=cfg({cfg})");
    }
    println!("cargo::rerun-if-env-changed=IRONWARP_NO_DPDK");
    for file in ["build.rs", "csrc/shim.h", "csrc/shim.c"] {
        println!("cargo::rerun-if-changed={file}");
    }
}

struct Dpdk {
    version: String,
    compiler_flags: Vec<String>,
    library_paths: Vec<PathBuf>,
}

fn find_dpdk() -> Result<Dpdk, String> {
    if env::var_os("IRONWARP_NO_DPDK").is_some_and(|value| value != "0") {
        return Err("IRONWARP_NO_DPDK is set".into());
    }
    let found = pkg_config::Config::new()
        .atleast_version(OLDEST)
        .cargo_metadata(false)
        .env_metadata(true)
        .probe("libdpdk")
        .map_err(|_| {
            format!("pkg-config finds no libdpdk {OLDEST} or newer (Debian: apt install libdpdk-dev)")
        })?;
    Ok(Dpdk {
        version: found.version,
        compiler_flags: compiler_flags()?,
        library_paths: library_paths(found.link_paths),
    })
}

/// The flags as pkg-config prints them. The pkg-config crate drops `-include rte_config.h` and
/// `-march=corei7`, without which SIMD headers break and layouts may differ.
fn compiler_flags() -> Result<Vec<String>, String> {
    let tool = env::var("PKG_CONFIG").unwrap_or_else(|_| "pkg-config".into());
    let output = Command::new(&tool)
        .args(["--cflags", "libdpdk"])
        .output()
        .map_err(|error| format!("cannot run {tool}: {error}"))?;
    let flags = String::from_utf8_lossy(&output.stdout);
    Ok(flags.split_whitespace().map(str::to_owned).collect())
}

/// pkg-config leaves out the system's own library folder, where rustc does not look for archives by
/// itself.
fn library_paths(mut paths: Vec<PathBuf>) -> Vec<PathBuf> {
    if let Ok(folder) = pkg_config::get_variable("libdpdk", "libdir") {
        paths.push(folder.into());
    }
    paths
}

fn bind(dpdk: &Dpdk) {
    println!("cargo::metadata=VERSION={}", dpdk.version);
    for (release, cfg) in RELEASES {
        if year_and_month(&dpdk.version) >= release {
            println!("cargo::rustc-cfg={cfg}");
        }
    }
    compile_shim(dpdk);
    generate_bindings(dpdk);
    link(dpdk);
}

fn year_and_month(version: &str) -> (u32, u32) {
    let mut numbers = version.split(['.', '-']).map(|number| number.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

fn compile_shim(dpdk: &Dpdk) {
    let mut shim = cc::Build::new();
    shim.file("csrc/shim.c").opt_level(3).std("gnu11").warnings(false);
    for flag in &dpdk.compiler_flags {
        shim.flag(flag);
    }
    shim.compile("dsys_shim");
}

fn generate_bindings(dpdk: &Dpdk) {
    let bindings = bindgen::Builder::default()
        .header("csrc/shim.h")
        .clang_args(&dpdk.compiler_flags)
        .allowlist_function(FUNCTIONS)
        .allowlist_var("DSYS_.*")
        .blocklist_type("rte_mbuf")
        .raw_line("use crate::Mbuf as rte_mbuf;")
        .opaque_type("rte_(mempool|ring|device|intr_handle|eth_rxseg.*|eth_vmdq.*|eth_dcb.*)")
        .derive_debug(false)
        .derive_default(true)
        .generate_comments(false)
        .use_core()
        .generate()
        .unwrap_or_else(|error| {
            panic!(
                "bindgen cannot read DPDK's headers: {error}\n\
                 With several versions of clang installed, point it at one: LIBCLANG_PATH=/usr/lib/llvm-14/lib, and \
                 BINDGEN_EXTRA_CLANG_ARGS=-I/usr/lib/llvm-14/lib/clang/14.0.6/include when an intrinsics header is \
                 missing."
            )
        });
    let file = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default()).join("bindings.rs");
    bindings.write_to_file(&file).unwrap_or_else(|error| panic!("cannot write {}: {error}", file.display()));
}

fn link(dpdk: &Dpdk) {
    for path in &dpdk.library_paths {
        println!("cargo::rustc-link-search=native={}", path.display());
    }
    if env::var_os("CARGO_FEATURE_STATIC").is_none() {
        return link_all("dylib=rte_", DYNAMIC);
    }
    link_all("static:+whole-archive,-bundle=rte_", STATIC_DRIVERS);
    link_all("static:-bundle=rte_", STATIC_CORE);
    link_all("dylib=", STATIC_SYSTEM);
}

fn link_all(prefix: &str, libraries: &str) {
    for library in libraries.split_whitespace() {
        println!("cargo::rustc-link-lib={prefix}{library}");
    }
}
