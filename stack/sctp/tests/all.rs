//! The tests of the engine, as one program.

mod common;

mod forged;
mod heartbeat;
mod lossy_data;
mod lossy_pair;
mod path_mtu;
mod paths;
mod receiving;
mod sending;
mod set_up;
mod shut_down;
mod udp;
mod unexpected;
