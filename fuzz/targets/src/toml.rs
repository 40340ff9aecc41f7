//! Any text as a configuration: an error or a configuration, never a panic.

use ironwarp::Config;

/// Runs one input.
pub fn run(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    match Config::from_toml(text) {
        Ok(config) => {
            let _ = config.validate();
            let _ = config.addresses();
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}
