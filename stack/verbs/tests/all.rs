//! The tests that need no process of their own, as one program: each program is compiled and linked
//! with the whole stack.
#![allow(clippy::duplicate_mod, reason = "some files run over two transports")]

mod common;

mod addresses;
mod atomics;
mod bad_input;
mod boundaries;
mod clock_steps;
mod config_keys;
mod connection_table;
mod connections;
mod drain;
mod errors;
mod extension_errors;
mod fabrics;
mod fairness;
mod fast_path;
mod first_fpdu;
mod full_control_ring;
mod golden;
mod immediate;
mod leaks;
mod loss;
mod malformed_requests;
mod many_cores;
mod memory;
mod memory_faults;
mod memory_release;
mod messages;
mod moving;
mod negotiation;
mod networks;
mod notifications;
mod operations;
mod order_table;
mod order_table_7306;
mod out_of_order_placement;
mod pauses;
mod queues;
mod quirks;
mod quotas;
mod revision_fallback;
mod sctp;
mod security;
mod segmentation;
mod shared_receives;
mod split;
mod stages;
mod startup;
mod teardown_events;
mod teardown_table;
mod timeouts;
mod unexpected_startup_bytes;
mod wireshark;
mod worker_end;
