//! Ethernet, ARP, IPv4 and ICMP; neighbour and flow tables.
