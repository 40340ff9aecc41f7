//! Shared value types of the stack: time, sequence numbers, identifiers, limits.
//!
//! All layers use these types, so that mixing up two numbers of the same width does not compile. No
//! allocation, no clock: time is a value that the core loop samples once per
//! iteration.
#![forbid(unsafe_code)]

mod clock;
mod ecn;
mod flow;
mod ids;
pub mod limits;
mod nanos;
mod seeded;
mod seq;
pub mod unit;

pub use clock::{Clock, Entropy};
pub use ecn::Ecn;
pub use flow::{Flow, FlowKeyV4, MacAddr};
pub use ids::{CoreId, PdId, QpNum, STag};
pub use nanos::Nanos;
pub use seeded::SeededEntropy;
pub use seq::Seq;
