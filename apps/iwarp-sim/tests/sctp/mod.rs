//! SCTP between hosts that have nothing above it: goodput, hostile hosts, shared associations.

mod goodput;
mod hostile;
mod queue_pairs;
