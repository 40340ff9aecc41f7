//! A peer, or a stranger, that sends what it should not, as whole frames through net and tcp: fields at their edges,
//! contradictions, guesses, any order, any bytes. Nothing panics, every invariant of [`ironwarp_tcp::Tcp::check`] holds
//! after every frame, a connection that is not meant goes on to the byte, and nothing stays behind.

#[path = "../common/mod.rs"]
mod common;

mod blind;
mod fields;
mod frames;
mod repeats;
mod scene;
mod sequences;
mod windows;
