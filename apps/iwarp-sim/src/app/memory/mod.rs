//! The application's memory: regions, each with a shadow of its expected contents, and the tags
//! that grant access to parts of them.

pub mod grant;
pub mod pattern;
pub mod shadowed_region;
pub mod tag;

pub use grant::{Grant, GrantState, GrantUse};
pub use pattern::Pattern;
pub use shadowed_region::{Piece, ShadowedRegion};
pub use tag::Tag;
