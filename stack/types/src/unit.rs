//! Times of a configuration, whose keys name their units. Longer times than the type holds are its
//! longest.

use serde::{Deserialize, Deserializer};

use crate::Nanos;

/// Converts from microseconds.
pub fn micros<'de, D: Deserializer<'de>>(number: D) -> Result<Nanos, D::Error> {
    u64::deserialize(number).map(|us| Nanos(us.saturating_mul(1_000)))
}

/// Converts from milliseconds.
pub fn millis<'de, D: Deserializer<'de>>(number: D) -> Result<Nanos, D::Error> {
    u64::deserialize(number).map(|ms| Nanos(ms.saturating_mul(1_000_000)))
}

/// Converts from milliseconds. 0 is [`Nanos::MAX`]: never.
pub fn millis_or_never<'de, D: Deserializer<'de>>(number: D) -> Result<Nanos, D::Error> {
    millis(number).map(|time| if time == Nanos::ZERO { Nanos::MAX } else { time })
}
