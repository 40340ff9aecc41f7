//! All tests of the crate as one program: each program is compiled and linked with the whole stack.

mod adversaries;
mod command_line;
mod many;
mod sctp;
mod seeds;
mod tcp;
