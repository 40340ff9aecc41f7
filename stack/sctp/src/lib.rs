//! SCTP, RFC 9260, as a lower layer of DDP (RFC 5043).
//!
//! | part | state |
//! | --- | --- |
//! | formats: [`packet`] | all chunks, parameters and error causes of RFC 9260, and the adaptation layer indication of RFC 5061 |
//! | associations, data transfer, several paths | not yet |
//!
//! Not planned: dynamic addresses (RFC 5061 but for the indication), authentication (RFC 4895),
//! partial reliability (RFC 3758).
#![forbid(unsafe_code)]
#![warn(clippy::indexing_slicing, clippy::unwrap_used)]
#![cfg_attr(test, allow(clippy::indexing_slicing, clippy::unwrap_used))]

pub mod packet;
