//! SCTP between hosts that have nothing above it: goodput, hostile hosts, peers that lie or
//! restart, shared associations.

mod beside;
mod goodput;
mod hostile;
mod queue_pairs;
