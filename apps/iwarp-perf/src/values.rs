//! Parsers of values with units.

use std::net::{IpAddr, SocketAddr};

use crate::limits::BYTES;
use crate::plan::PORT;

/// Parses bytes: a number, with k, M or G for powers of 1024.
pub fn bytes(text: &str) -> Result<u64, String> {
    let (digits, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
    let shift = match unit.strip_suffix("iB").unwrap_or(unit) {
        "k" | "K" => Some(10),
        "m" | "M" => Some(20),
        "g" | "G" => Some(30),
        _ => unit.is_empty().then_some(0),
    };
    let value = shift.and_then(|shift| digits.parse::<u64>().ok()?.checked_mul(1 << shift));
    let allowed = "1 to 1G bytes; k, M and G are powers of 1024";
    value.filter(|bytes| BYTES.contains(bytes)).ok_or_else(|| allowed.to_owned())
}

/// Parses seconds: at least a millisecond, at most a day.
pub fn seconds(text: &str) -> Result<f64, String> {
    in_range(text, 0.001, 86_400.0).ok_or_else(|| "0.001 to 86400 seconds".to_owned())
}

/// Parses the seconds of an interval: at least a tenth, at most an hour.
pub fn interval(text: &str) -> Result<f64, String> {
    in_range(text, 0.1, 3600.0).ok_or_else(|| "0.1 to 3600 seconds".to_owned())
}

/// Parses messages per second.
pub fn rate(text: &str) -> Result<f64, String> {
    in_range(text, 0.1, 1e9).ok_or_else(|| "0.1 to 1e9 messages a second".to_owned())
}

fn in_range(text: &str, least: f64, most: f64) -> Option<f64> {
    text.parse::<f64>().ok().filter(|value| (least..=most).contains(value))
}

/// Parses an address with an optional port. An IPv6 address before a port is in brackets.
pub fn address(text: &str) -> Result<SocketAddr, String> {
    let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
    let without_port = bare.parse::<IpAddr>().map(|ip| SocketAddr::new(ip, PORT));
    let address = without_port.or_else(|_| text.parse()).ok().filter(|address| address.port() != 0);
    address.ok_or_else(|| {
        format!("an IPv4 or IPv6 address, and a port if it is not {PORT}: 10.0.0.1:4420 or [fd00::1]:4420")
    })
}
