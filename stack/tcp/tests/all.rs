//! The tests that need no process of their own, as one program: each program is compiled and linked
//! with the whole stack.

mod common;

mod closing;
mod congestion;
mod cookies;
mod handshake;
mod hostile;
mod hostile_peer;
mod keep_alive;
mod lossy_pair;
mod marking;
mod memory;
mod moving;
mod out_of_order;
mod quota;
mod rack;
mod receive_fast;
mod receiving;
mod reductions;
mod requirements;
mod selective;
mod sending;
mod situations;
mod smoltcp_peer;
mod throughput;
mod timestamps;
mod tlp;
mod transmit_fast;
mod units;
