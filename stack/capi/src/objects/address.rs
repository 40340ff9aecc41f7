//! Addresses of connections.

use core::ffi::c_char;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

use crate::boundary::{ApiError, call, read, text, write_out, write_text, *};

/// An IP address and a TCP port.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[repr(C)]
pub struct iw_addr {
    /// The address in network order: 4 bytes, or 16.
    pub ip: [u8; 16],
    /// The zone of a link-local IPv6 address, else 0.
    pub scope: u32,
    /// The port, in host order.
    pub port: u16,
    /// 4 or 6; 0 if there is no address.
    pub family: u16,
}

/// Parses an address such as `10.0.0.1:4791` or `[2001:db8::1]:4791`. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_addr_parse(text_of_address: *const c_char, out: *mut iw_addr) -> i32 {
    // SAFETY: guaranteed by the caller.
    call(|| unsafe {
        let said = text(text_of_address, "text_of_address")?;
        let parsed: SocketAddr = said.parse().map_err(|_| {
            fault!(IW_E_VALUE, "{said:?} is no address, as 10.0.0.1:4791 or [2001:db8::1]:4791")
        })?;
        write_out(out, "out", parsed.into())
    })
}

/// Writes an address as text into `size` bytes; 64 are always enough. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_addr_text(address: *const iw_addr, room: *mut c_char, size: usize) -> i32 {
    // SAFETY: guaranteed by the caller.
    call(|| unsafe {
        let address: SocketAddr = read(address, "address")?.to_rust()?;
        write_text(room, size, "room", &address.to_string())
    })
}

impl iw_addr {
    pub(crate) fn to_rust(self) -> Result<SocketAddr, ApiError> {
        match self.family {
            4 => {
                let [a, b, c, d, ..] = self.ip;
                Ok(SocketAddr::new(IpAddr::from(Ipv4Addr::new(a, b, c, d)), self.port))
            }
            6 => Ok(SocketAddrV6::new(Ipv6Addr::from(self.ip), self.port, 0, self.scope).into()),
            other => Err(fault!(IW_E_VALUE, "address.family = {other}: 4 or 6")),
        }
    }
}

impl From<SocketAddr> for iw_addr {
    fn from(address: SocketAddr) -> Self {
        let mut out = iw_addr { port: address.port(), ..iw_addr::default() };
        match address {
            SocketAddr::V4(v4) => {
                out.family = 4;
                let (four, _) = out.ip.split_at_mut(4);
                four.copy_from_slice(&v4.ip().octets());
            }
            SocketAddr::V6(v6) => (out.family, out.ip, out.scope) = (6, v6.ip().octets(), v6.scope_id()),
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_survive_the_way_through_c() {
        for text in ["10.0.0.1:4791", "[2001:db8::1]:80", "[fe80::1%3]:1"] {
            let address: SocketAddr = text.parse().expect("an address");
            assert_eq!(iw_addr::from(address).to_rust().expect("the same"), address);
        }
        let none = iw_addr::default().to_rust();
        assert_eq!(none.map_err(|fault| fault.code), Err(IW_E_VALUE));
    }
}
