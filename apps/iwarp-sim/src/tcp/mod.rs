//! Nodes of the network and TCP layers alone, ours and stock smoltcp's, on simulated links.
