//! Generates the layouts of libibverbs and librdmacm from the headers of rdma-core, with their
//! sizes and offsets checked when they are compiled.
//!
//! Without the headers the crate compiles empty, with one warning, so that the workspace builds
//! everywhere.

use std::env;
use std::path::{Path, PathBuf};

/// The types that the library uses. Constants of enumerations come with their types.
const TYPES: &str = "ibv_.*|verbs_context|rdma_.*|mbps";
const CONSTANTS: &str = "IBV_.*|RDMA_.*|RAI_.*";

fn main() {
    println!("cargo::rustc-check-cfg=cfg(verbs_headers)");
    println!("cargo::rerun-if-changed=headers.h");
    let folder =
        env::var_os("IRONWARP_VERBS_INCLUDE").map_or_else(|| PathBuf::from("/usr/include"), PathBuf::from);
    println!("cargo::rerun-if-env-changed=IRONWARP_VERBS_INCLUDE");
    println!("cargo::rerun-if-changed={}", folder.join("infiniband").display());
    match generate(&folder) {
        Ok(()) => println!("cargo::rustc-cfg=verbs_headers"),
        Err(reason) => println!("cargo::warning=ironwarp-verbs-compat is empty: {reason}"),
    }
}

fn generate(folder: &Path) -> Result<(), String> {
    for header in ["infiniband/verbs.h", "rdma/rdma_cma.h"] {
        if !folder.join(header).is_file() {
            return Err(format!("no {header} (Debian: apt install libibverbs-dev librdmacm-dev)"));
        }
    }
    let bindings = bindgen::Builder::default()
        .header("headers.h")
        .clang_arg(format!("-I{}", folder.display()))
        .allowlist_type(TYPES)
        .allowlist_var(CONSTANTS)
        .allowlist_recursively(true)
        .prepend_enum_name(false)
        .derive_default(true)
        .derive_debug(false)
        .layout_tests(true)
        .generate_comments(false)
        .generate()
        .map_err(|error| format!("the headers of rdma-core cannot be read: {error}"))?;
    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or("OUT_DIR is not set")?);
    bindings.write_to_file(out.join("layouts.rs")).map_err(|error| error.to_string())
}
