//! A device's offloads and memory node, in one line for the log.

use ironwarp_port::{PortCaps, Spread, TxOffloads};

/// Names what the device computes and what is left to software.
pub(crate) fn summary(caps: &PortCaps, cores: u16) -> String {
    let has = |offload| caps.tx_offloads.contains(offload);
    let works = [
        ("IPv4 checksums of what is sent", has(TxOffloads::IPV4_CHECKSUM)),
        ("TCP checksums of what is sent", has(TxOffloads::TCP_CHECKSUM)),
        ("TCP checksums over IPv6", has(TxOffloads::TCP_CHECKSUM_IPV6)),
        ("checksums of what is received", caps.rx_checksum),
    ];
    let of = |by_device: bool| {
        let names = works.iter().filter(|(_, claimed)| *claimed == by_device).map(|(name, _)| *name);
        let names: Vec<&str> = names.collect();
        if names.is_empty() { "nothing".to_owned() } else { names.join(", ") }
    };
    let spread = match caps.spread {
        _ if cores == 1 => "one core",
        Spread::Toeplitz { .. } => "flows come to their cores by the device's hash",
        Spread::Unknown => "flows are handed to their cores in software",
    };
    let node = caps.numa_node.map_or_else(String::new, |node| format!("memory node {node}; "));
    format!("mtu {}; {node}by the device: {}; in software: {}; {spread}", caps.mtu_bytes, of(true), of(false))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ironwarp_types::MacAddr;

    fn caps(tx_offloads: TxOffloads, rx_checksum: bool, spread: Spread) -> PortCaps {
        let mac = MacAddr([2, 0, 0, 0, 0, 1]);
        PortCaps { mac, mtu_bytes: 1500, rx_checksum, tx_offloads, rss_hash: false, spread, numa_node: None }
    }

    #[test]
    fn what_a_device_does_not_claim_is_said_to_be_done_in_software() {
        assert_eq!(
            summary(&caps(TxOffloads::empty(), false, Spread::Unknown), 1),
            "mtu 1500; by the device: nothing; in software: IPv4 checksums of what is sent, TCP checksums of what is \
             sent, TCP checksums over IPv6, checksums of what is received; one core"
        );
        assert_eq!(
            summary(&caps(TxOffloads::all(), true, Spread::Toeplitz { entries: 128, key: 1 }), 2),
            "mtu 1500; by the device: IPv4 checksums of what is sent, TCP checksums of what is sent, TCP checksums over \
             IPv6, checksums of what is received; in software: nothing; flows come to their cores by the device's hash"
        );
        let some = summary(&caps(TxOffloads::IPV4_CHECKSUM, false, Spread::Unknown), 2);
        assert!(some.contains("by the device: IPv4 checksums of what is sent; in software: TCP"), "{some}");
        assert!(some.ends_with("flows are handed to their cores in software"), "{some}");
        let near = PortCaps { numa_node: Some(1), ..caps(TxOffloads::empty(), false, Spread::Unknown) };
        assert!(summary(&near, 1).starts_with("mtu 1500; memory node 1; by the device: nothing"));
    }
}
