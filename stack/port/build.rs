//! Notices when the `dpdk` feature is on and DPDK is not there: `dpdk-sys` then exports no version.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-check-cfg=cfg(dpdk_missing)");
    println!("cargo::rerun-if-env-changed=DEP_DPDK_VERSION");
    if std::env::var_os("CARGO_FEATURE_DPDK").is_some() && std::env::var_os("DEP_DPDK_VERSION").is_none() {
        println!("cargo::rustc-cfg=dpdk_missing");
    }
}
