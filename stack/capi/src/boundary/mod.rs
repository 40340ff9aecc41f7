//! The boundary to C: no panic unwinds across it, every pointer is checked, every error has a
//! number and a text.

mod codes;
#[macro_use]
mod error;
#[macro_use]
mod handle;
mod log;
mod pointer;

pub use codes::*;
pub use error::iw_last_error;
pub(crate) use error::{ApiError, call};
pub(crate) use handle::{FreeHandles, HandleKind, Slot, alloc_handle, close_handle, with};
pub use log::*;
pub(crate) use pointer::{
    OutList, create, create_handle, out_slice, read, read_list, read_size, read_sized, read_slice, text,
    write_init, write_optional, write_out, write_sized, write_text,
};
