//! Names the shared library for the dynamic linker, by the number that changes when programs must
//! be compiled again: the upper half of `IW_ABI_VERSION`.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libironwarp.so.1");
}
