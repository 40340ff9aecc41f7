//! The tests of the engine, as one program.

mod common;

mod forged;
mod lossy_pair;
mod receiving;
mod set_up;
mod shut_down;
mod unexpected;
