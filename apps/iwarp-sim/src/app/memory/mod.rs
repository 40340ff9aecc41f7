//! Memory as an application keeps it: regions with a shadow of what they must hold, and the tags that lead to parts of
//! them for a time.

pub mod loan;
pub mod pattern;
pub mod plot;
pub mod tag;

pub use loan::{Loan, State, Use};
pub use pattern::Pattern;
pub use plot::{Piece, Plot};
pub use tag::Tag;
