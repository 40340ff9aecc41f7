//! Queries of ports: the device, its link and its addresses.
//!
//! What is constant is recorded when the stack starts. Core 0 updates the state of the link, four
//! times a second.

use core::net::IpAddr;

use ironwarp_port::LinkState;
use ironwarp_types::MacAddr;

use super::Context;
use crate::error::VerbsError;
use crate::shared::StackShared;

/// A port of a stack.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct PortInfo {
    /// The kind of device, as in the configuration: `memif`, `pci`, and so on.
    pub device: &'static str,
    /// The link address of the stack.
    pub mac: MacAddr,
    /// The largest IP packet, in bytes.
    pub mtu_bytes: u16,
    /// The link, as core 0 last saw it.
    pub link: LinkState,
    /// The configured addresses, in their order. The link-local IPv6 address that is derived from
    /// `mac` is not listed.
    pub addresses: Vec<InterfaceAddress>,
    /// The memory node (NUMA) of the device, if it is known.
    pub memory_node: Option<u16>,
}

/// A local address and its network.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InterfaceAddress {
    /// The address.
    pub address: IpAddr,
    /// The length of the network prefix in bits.
    pub prefix_len: u8,
}

impl StackShared {
    /// Returns the state of a port.
    pub(crate) fn query_port(&self, port: u8) -> Result<PortInfo, VerbsError> {
        let (what, allowed) = ("port", "below the number of ports");
        let unknown = VerbsError::OutOfRange { what, value: port.into(), allowed };
        let state = self.ports().get(usize::from(port)).ok_or(unknown)?;
        Ok(PortInfo { link: state.link.load(), ..state.info.clone() })
    }
}

impl Context {
    /// Returns the number of ports of the stack.
    pub fn ports(&self) -> u8 {
        u8::try_from(self.shared.ports().len()).unwrap_or(u8::MAX)
    }

    /// Returns the state of a port: the device, its link and its addresses. The first port has
    /// number 0.
    ///
    /// # Errors
    ///
    /// [`VerbsError::OutOfRange`] if there is no such port.
    pub fn query_port(&self, port: u8) -> Result<PortInfo, VerbsError> {
        self.shared.query_port(port)
    }
}
