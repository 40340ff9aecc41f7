//! Values with units.

use std::net::{IpAddr, SocketAddr};

use crate::plan::PORT;

/// Larger messages do not fit the memory of the two ends many times over.
const MESSAGE_MAX: u64 = 1 << 30;

/// Bytes: a number, with k, M or G for powers of 1024.
pub fn bytes(text: &str) -> Result<u64, String> {
    let allowed = "1 to 1G bytes; k, M and G are powers of 1024";
    let digits = text.trim_end_matches("iB").trim_end_matches(['k', 'K', 'm', 'M', 'g', 'G']);
    let shift = match text[digits.len()..].chars().next().map(|unit| unit.to_ascii_lowercase()) {
        None => 0,
        Some('k') => 10,
        Some('m') => 20,
        _ => 30,
    };
    let one_unit = text.len() - digits.len() <= 3 && text[digits.len()..].trim_end_matches("iB").len() <= 1;
    let value =
        digits.parse::<u64>().ok().filter(|_| one_unit).and_then(|value| value.checked_mul(1 << shift));
    value.filter(|bytes| (1..=MESSAGE_MAX).contains(bytes)).ok_or_else(|| allowed.to_owned())
}

/// Seconds: more than none, at most a day.
pub fn seconds(text: &str) -> Result<f64, String> {
    positive(text, 0.001, 86_400.0).ok_or_else(|| "0.001 to 86400 seconds".to_owned())
}

/// Messages a second.
pub fn rate(text: &str) -> Result<f64, String> {
    positive(text, 0.1, 1e9).ok_or_else(|| "0.1 to 1e9 messages a second".to_owned())
}

fn positive(text: &str, least: f64, most: f64) -> Option<f64> {
    text.parse::<f64>().ok().filter(|value| (least..=most).contains(value))
}

/// An address, and a port where it is not the usual one. IPv6 in brackets when a port follows.
pub fn address(text: &str) -> Result<SocketAddr, String> {
    let allowed =
        "an IPv4 or IPv6 address, and a port where it is not 18515, as 10.0.0.1:4420 or [fd00::1]:4420";
    let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
    let whole = bare.parse::<IpAddr>().map(|ip| SocketAddr::new(ip, PORT));
    let found = whole.or_else(|_| text.parse::<SocketAddr>());
    found.ok().filter(|address| address.port() != 0).ok_or_else(|| allowed.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units_of_1024() {
        for (text, value) in
            [("1", 1), ("64", 64), ("1k", 1024), ("4KiB", 4096), ("1M", 1 << 20), ("1G", 1 << 30)]
        {
            assert_eq!(bytes(text), Ok(value), "{text}");
        }
    }

    #[test]
    fn sizes_that_are_none_are_refused() {
        for text in
            ["", "0", "-1", "k", "1kk", "1kM", "1T", "2G", "1.5k", "0x10", "99999999999999999999", "1iB1"]
        {
            assert!(bytes(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_duration_is_positive_and_finite() {
        assert_eq!(seconds("0.5"), Ok(0.5));
        for text in ["0", "-1", "nan", "inf", "1e9", "two"] {
            assert!(seconds(text).is_err(), "{text}");
        }
    }

    #[test]
    fn an_address_may_have_a_port() {
        let meant = |text: &str| Ok(text.parse().expect("an address with its port"));
        assert_eq!(address("10.0.0.2"), meant("10.0.0.2:18515"));
        assert_eq!(address("10.0.0.2:7"), meant("10.0.0.2:7"));
        assert_eq!(address("fd00::1"), meant("[fd00::1]:18515"));
        assert_eq!(address("[fd00::1]"), meant("[fd00::1]:18515"));
        assert_eq!(address("[fd00::1]:4420"), meant("[fd00::1]:4420"));
        for text in
            ["10.0.0", "host", "10.0.0.2:", "10.0.0.2:0", "10.0.0.2:70000", "[::1]:0", "[::1", "fd00::g"]
        {
            assert!(address(text).is_err(), "{text}");
        }
    }
}
