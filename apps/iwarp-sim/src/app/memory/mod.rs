//! Memory as an application keeps it: regions with a shadow of what they must hold, and the tags that lead to parts of
//! them for a time.

pub mod grant;
pub mod pattern;
pub mod shadowed_region;
pub mod tag;

pub use grant::{Grant, GrantState, GrantUse};
pub use pattern::Pattern;
pub use shadowed_region::{Piece, ShadowedRegion};
pub use tag::Tag;
