//! The TCP engine.
#![forbid(unsafe_code)]

mod stream;

pub use stream::{ByteStream, UnitSource};
