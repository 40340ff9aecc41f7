//! librdmacm: identifiers, their events, addresses and connections.
//!
//! Addresses are resolved by the configuration and routes by the stack's network, so both complete
//! at once. Connections are those of the crate `ironwarp`, whose events [`dispatch`] turns into
//! those of identifiers.

mod address;
mod addrinfo;
mod connect;
mod dispatch;
mod endpoint;
mod event;
mod id;
mod listen;
mod ports;

pub(crate) use event::{ClosedChannels, CmEvent, EventChannel, UnseenRequests};
pub(crate) use id::{CmId, IdState};
pub(crate) use listen::Listeners;
pub(crate) use ports::PortTable;
