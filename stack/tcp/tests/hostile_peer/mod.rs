//! A hostile peer or third party, whose frames pass net and tcp: boundary values, contradictions,
//! guesses, any order, random bytes. Nothing panics, every invariant of
//! [`ironwarp_tcp::Tcp::check`] holds after every frame, a bystander connection transfers every
//! byte, and no resource leaks.

mod acks;
mod blind;
mod fields;
mod frames;
mod repeats;
mod scene;
mod sequences;
mod windows;
