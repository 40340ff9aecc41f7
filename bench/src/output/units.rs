//! Figures as text, in units that people read.

/// Formats a time in nanoseconds as microseconds with about three digits.
pub(super) fn micros(ns: f64) -> String {
    match ns / 1000.0 {
        us if us < 10.0 => format!("{us:.2}"),
        us if us < 1000.0 => format!("{us:.1}"),
        us => format!("{us:.0}"),
    }
}

/// Formats a size in the largest unit that gives a whole number.
pub(super) fn size(bytes: u64) -> String {
    let units = [(30, "GiB"), (20, "MiB"), (10, "KiB")];
    let whole = units.into_iter().find(|(shift, _)| bytes > 0 && bytes.is_multiple_of(1 << shift));
    let (shift, unit) = whole.unwrap_or((0, "B"));
    format!("{} {unit}", bytes >> shift)
}

/// Formats a rate with about three digits.
pub(super) fn rate(per_s: f64) -> String {
    match per_s {
        rate if rate >= 1e6 => format!("{:.2} M", rate / 1e6),
        rate if rate >= 1e3 => format!("{:.1} k", rate / 1e3),
        rate => format!("{rate:.0}"),
    }
}
