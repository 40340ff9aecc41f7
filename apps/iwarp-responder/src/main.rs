//! Placeholder until the public API lands.
fn main() {}
