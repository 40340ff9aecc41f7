//! Every counter of the stack, in one list: name, layer, meaning.

macro_rules! counters {
    ($($layer:literal { $($name:ident = $text:literal: $help:literal,)* })*) => {
        /// A counter.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[repr(usize)]
        pub enum Counter {
            $($(#[doc = $help] $name,)*)*
        }

        impl Counter {
            /// Every counter, in the order of the page.
            pub const ALL: &'static [Counter] = &[$($(Counter::$name,)*)*];

            /// The name as it is printed.
            pub fn name(self) -> &'static str {
                match self { $($(Counter::$name => $text,)*)* }
            }

            /// The layer that counts.
            pub fn layer(self) -> &'static str {
                match self { $($(Counter::$name => $layer,)*)* }
            }

            /// What is counted, in one line.
            pub fn help(self) -> &'static str {
                match self { $($(Counter::$name => $help,)*)* }
            }
        }
    };
}

counters! {
    "port" {
        PortRxFrames = "port_rx_frames": "Frames received.",
        PortTxFrames = "port_tx_frames": "Frames that the device took.",
        PortTxLinkDown = "port_tx_link_down": "Frames to send dropped because the device has no link and takes none.",
        PortRxCopied = "port_rx_copied": "Frames copied on arrival: they came in several buffers or their sender still held them.",
        PortRxTooLong = "port_rx_too_long": "Frames in several buffers that were too long for one, dropped.",
        PortRxNoBuffer = "port_rx_no_buffer": "Frames to be copied on arrival that found no buffer, dropped.",
        PortFaultDrops = "port_fault_drops": "Frames dropped by the fault injector.",
        PortFaultDuplicates = "port_fault_duplicates": "Frames doubled by the fault injector.",
        PortFaultReorders = "port_fault_reorders": "Frames that the fault injector let others overtake.",
        PortFaultCorruptions = "port_fault_corruptions": "Frames in which the fault injector changed a byte.",
        PortFaultTruncations = "port_fault_truncations": "Frames cut short by the fault injector.",
        PortFaultDelays = "port_fault_delays": "Frames held back by the fault injector.",
        PortFaultsSkipped = "port_faults_skipped": "Faults not injected because no buffer or place was free.",
        PortPcapFrames = "port_pcap_frames": "Frames written to a capture.",
        PortPcapDrops = "port_pcap_drops": "Frames left out of a capture because its disk was too far behind.",
        PortPcapStops = "port_pcap_stops": "Captures switched off because writing failed or their size limit was reached.",
        PortMemifConnects = "port_memif_connects": "Links of the stack's own memif that came up.",
        PortMemifDisconnects = "port_memif_disconnects": "Links of the stack's own memif that ended.",
        PortMemifRefused = "port_memif_refused": "memif peers refused: another interface or mode, a link that has a peer already, rings of another number.",
        PortMemifRateLimited = "port_memif_rate_limited": "memif peers refused because their user has started too many links.",
        PortMemifAcceptErrors = "port_memif_accept_errors": "memif peers that could not be accepted, as without a free descriptor; tried again.",
        PortMemifTimeouts = "port_memif_timeouts": "memif peers that did not finish the start of their link in time.",
        PortMemifNoPeer = "port_memif_no_peer": "Frames to send dropped because the memif has no peer.",
        PortMemifBadMessage = "port_memif_bad_message": "memif peers dropped for a message of a wrong length, type or order.",
        PortMemifBadVersion = "port_memif_bad_version": "memif peers dropped for their version of the protocol.",
        PortMemifBadSecret = "port_memif_bad_secret": "memif peers dropped for a wrong secret.",
        PortMemifUnsealed = "port_memif_unsealed": "memif peers dropped because their memory can be taken away: no memfd sealed against shrinking, or sealed against further seals.",
        PortMemifHoles = "port_memif_holes": "memif peers dropped because pages of their memory do not exist: this end would pay for them.",
        PortMemifBadSize = "port_memif_bad_size": "memif peers dropped for too many regions, or for one that is empty, too large or longer than its file.",
        PortMemifBadRing = "port_memif_bad_ring": "memif peers dropped for a ring that is not inside its region, or has a wrong size or header.",
        PortMemifBadIndex = "port_memif_bad_index": "memif links ended because the peer's head or tail was out of range.",
        PortMemifBadRegion = "port_memif_bad_region": "memif descriptors that named no region.",
        PortMemifBadOffset = "port_memif_bad_offset": "memif descriptors whose bytes were not inside their region.",
        PortMemifBadLength = "port_memif_bad_length": "memif descriptors that were empty, or longer than their buffer.",
        PortMemifBadChain = "port_memif_bad_chain": "memif frames in too many descriptors, or without their last one.",
    }
    "tcp" {
        TcpRxSegments = "tcp_rx_segments": "Segments received.",
        TcpRxBytes = "tcp_rx_bytes": "Payload bytes received in order.",
        TcpTxSegments = "tcp_tx_segments": "Segments sent, those without payload included.",
        TcpTxBytes = "tcp_tx_bytes": "Payload bytes sent, those sent again included.",
        TcpTxAcks = "tcp_tx_acks": "Segments sent for their acknowledgement alone.",
        TcpTxRetransmits = "tcp_tx_retransmits": "Segments sent again.",
        TcpTxResets = "tcp_tx_resets": "Resets sent.",
        TcpRxResets = "tcp_rx_resets": "Resets that ended a connection or an attempt.",
        TcpActiveOpens = "tcp_active_opens": "Connections that this side began.",
        TcpPassiveOpens = "tcp_passive_opens": "Connections that a peer began.",
        TcpEstablished = "tcp_established": "Handshakes completed.",
        TcpTimeouts = "tcp_timeouts": "Retransmission timeouts of payload or a FIN.",
        TcpSynTimeouts = "tcp_syn_timeouts": "Retransmission timeouts of a SYN.",
        TcpFastRetransmits = "tcp_fast_retransmits": "Recoveries that began before a timeout.",
        TcpTailLossProbes = "tcp_tail_loss_probes": "Tail loss probes sent.",
        TcpEcnReductions = "tcp_ecn_reductions": "Windows reduced because the network marked congestion.",
        TcpDsackUndos = "tcp_dsack_undos": "Reductions taken back because nothing had been lost.",
        TcpSackReneging = "tcp_sack_reneging": "Times that a peer disowned what it had selectively acknowledged.",
        TcpPmtuBlackHoles = "tcp_pmtu_black_holes": "Segment sizes lowered because large segments vanished.",
        TcpRxDuplicateAcks = "tcp_rx_duplicate_acks": "Duplicate acknowledgements received.",
        TcpWindowProbes = "tcp_window_probes": "Probes sent into closed windows.",
        TcpChallengeAcks = "tcp_challenge_acks": "Challenge ACKs due for unacceptable segments, SYNs and resets (RFC 5961).",
        TcpTxRepliesRateLimited = "tcp_tx_replies_rate_limited": "Resets and challenge acknowledgements held back by their limit.",
        TcpTimeoutAborts = "tcp_timeout_aborts": "Connections and attempts given up because the peer was silent.",
        TcpRxPressureResets = "tcp_rx_pressure_resets": "Connections given up because half an FPDU of theirs kept others from receive memory.",
        TcpTxPressureResets = "tcp_tx_pressure_resets": "Connections given up because what they did not acknowledge kept others from transmit memory.",
        TcpZeroWindowAborts = "tcp_zero_window_aborts": "Connections given up because the peer's window stayed closed.",
        TcpRxOutOfOrder = "tcp_rx_out_of_order": "Segments held because bytes before them were missing.",
        TcpRxOutOfOrderDiscarded = "tcp_rx_out_of_order_discarded": "Connections whose out-of-order segments were discarded because they kept others from receive memory.",
        TcpRxOverlaps = "tcp_rx_overlaps": "Segments that repeated bytes or reached beyond the window, and were trimmed.",
        TcpRxCeMarked = "tcp_rx_ce_marked": "Segments with payload that met congestion on the way.",
        TcpRxTimeWait = "tcp_rx_time_wait": "Segments for flows in TIME-WAIT.",
        TcpTimeWaitEvicted = "tcp_time_wait_evicted": "Flows whose TIME-WAIT ended early because the table was full.",
        TcpTxNoBuffer = "tcp_tx_no_buffer": "Segments not sent because there was no transmit buffer.",
        TcpTxRingFull = "tcp_tx_ring_full": "Segments dropped because the device took no more.",
        TcpDropBadHeader = "tcp_drop_bad_header": "Segments whose header does not fit them.",
        TcpDropNoConnection = "tcp_drop_no_connection": "Segments that belong to no connection, or to none that can use them.",
        TcpDropOutsideWindow = "tcp_drop_outside_window": "Segments of which no part lay in the window.",
        TcpDropUnacceptableAck = "tcp_drop_unacceptable_ack": "Segments that acknowledged what was never sent or long settled.",
        TcpDropNoAck = "tcp_drop_no_ack": "Segments without an acknowledgement where one must be.",
        TcpDropUnexpectedSyn = "tcp_drop_unexpected_syn": "SYNs for connections that exist.",
        TcpSynCookiesSent = "tcp_syn_cookies_sent": "SYN-ACKs with a cookie, sent because too many handshakes were open.",
        TcpSynCookiesValid = "tcp_syn_cookies_valid": "Connections that a returned cookie opened.",
        TcpSynCookiesEarly = "tcp_syn_cookies_early": "Segments with a valid cookie that overtook the first one of their connection; dropped.",
        TcpSynCookiesInvalid = "tcp_syn_cookies_invalid": "ACKs to a listener with a wrong SYN cookie, counted only while cookies are outstanding.",
        TcpRxIcmp = "tcp_rx_icmp": "ICMP errors that quote a segment in flight.",
        TcpDropIcmp = "tcp_drop_icmp": "ICMP errors that quote nothing in flight.",
        TcpPathMtuLowered = "tcp_path_mtu_lowered": "Times that a connection lowered its path MTU.",
        TcpKeepAliveProbes = "tcp_keep_alive_probes": "Probes of idle peers.",
        TcpDropPaws = "tcp_drop_paws": "Segments older than what had arrived, by their time stamps.",
        TcpDropNoTimestamps = "tcp_drop_no_timestamps": "Segments without time stamps where every segment has them.",
        TcpDropHalfOpenFull = "tcp_drop_half_open_full": "SYNs dropped because too many handshakes were open.",
        TcpDropConnectionTableFull = "tcp_drop_connection_table_full": "SYNs dropped because there was no room for another connection.",
        TcpDropOutOfOrderFull = "tcp_drop_out_of_order_full": "Out-of-order segments dropped because too many were held.",
        TcpDropRxBufferFull = "tcp_drop_rx_buffer_full": "In-order segments dropped because no frame may be held any more.",
    }
    "iwarp" {
        IwarpRxFpdus = "iwarp_rx_fpdus": "FPDUs received.",
        IwarpTxFpdus = "iwarp_tx_fpdus": "FPDUs handed to TCP.",
        IwarpRxFpdusReassembled = "iwarp_rx_fpdus_reassembled": "FPDUs that lay in several pieces and were gathered.",
        IwarpRxCrcErrors = "iwarp_rx_crc_errors": "FPDUs whose CRC was wrong; each ended its stream.",
        IwarpRxSends = "iwarp_rx_sends": "Sends delivered.",
        IwarpRxWrites = "iwarp_rx_writes": "RDMA Writes whose last segment was placed.",
        IwarpRxImmediates = "iwarp_rx_immediates": "Immediate Data messages delivered.",
        IwarpRxAtomicRequests = "iwarp_rx_atomic_requests": "Atomic Requests accepted.",
        IwarpRxReadRequests = "iwarp_rx_read_requests": "Read Requests accepted.",
        IwarpRxTerminates = "iwarp_rx_terminates": "Terminates received.",
        IwarpTxTerminates = "iwarp_tx_terminates": "Terminates handed to TCP.",
        IwarpStreamsFailed = "iwarp_streams_failed": "Streams ended by an error found here.",
        IwarpLocalErrors = "iwarp_local_errors": "Requests and received FPDUs that failed for an error of this side; each ended its stream.",
        IwarpMemoryFaults = "iwarp_memory_faults": "Streams ended because registered memory was gone or protected (ddp.catch_memory_faults).",
        IwarpRxInvalidates = "iwarp_rx_invalidates": "Steering tags that peers' Sends invalidated.",
        IwarpLocalOperations = "iwarp_local_operations": "Invalidations, bindings and fast registrations carried out.",
        IwarpWrsFlushed = "iwarp_wrs_flushed": "Work requests completed because their stream had ended.",
        IwarpStartupErrors = "iwarp_startup_errors": "Start-up frames that were not as RFC 5044 wants them.",
        IwarpRxMarkerErrors = "iwarp_rx_marker_errors": "FPDUs with a marker that points elsewhere than to their start; each ended its stream.",
        IwarpStreamsWithMarkers = "iwarp_streams_with_markers": "Streams with markers in one direction or both.",
        IwarpEnhancedStartups = "iwarp_enhanced_startups": "Start-ups that ended with the enhanced data of revision 2.",
        IwarpRevisionFallbacks = "iwarp_revision_fallbacks": "Connections begun again with revision 1 because the peer closed on revision 2.",
        IwarpTxRtrs = "iwarp_tx_rtrs": "Ready-to-receive indications sent.",
        IwarpRxRtrs = "iwarp_rx_rtrs": "Ready-to-receive indications received.",
        IwarpOutOfOrderPlacements = "iwarp_out_of_order_placements": "Segments placed before what comes before them in the stream had arrived.",
        IwarpOutOfOrderCopiesSkipped = "iwarp_out_of_order_copies_skipped": "Segments that were placed before they were in order.",
        IwarpOutOfOrderOverwritten = "iwarp_out_of_order_overwritten": "Runs of segments placed early that were copied again in order, because another segment had gone to the same memory.",
        IwarpOutOfOrderSkippedNoMarker = "iwarp_out_of_order_skipped_no_marker": "Arrivals beyond a gap in which no marker located an FPDU.",
        IwarpOutOfOrderSkippedBadFpdu = "iwarp_out_of_order_skipped_bad_fpdu": "FPDUs beyond a gap with a wrong CRC or marker; each stopped early placement on its stream.",
        IwarpOutOfOrderSkippedUntagged = "iwarp_out_of_order_skipped_untagged": "Segments beyond a gap that go to a queue.",
        IwarpOutOfOrderSkippedLast = "iwarp_out_of_order_skipped_last": "Tagged segments beyond a gap that end a message.",
        IwarpOutOfOrderSkippedHeader = "iwarp_out_of_order_skipped_header": "Segments beyond a gap whose header or operation places nothing.",
        IwarpOutOfOrderSkippedResponse = "iwarp_out_of_order_skipped_response": "Read Responses beyond a gap that are no part of the oldest Read's answer.",
        IwarpOutOfOrderSkippedAccess = "iwarp_out_of_order_skipped_access": "Segments beyond a gap whose steering tag did not allow them.",
        IwarpOutOfOrderSkippedOverlap = "iwarp_out_of_order_skipped_overlap": "Segments beyond a gap that go where another one was placed early.",
        IwarpOutOfOrderSkippedFull = "iwarp_out_of_order_skipped_full": "Segments beyond a gap that were not placed because no more can be noted.",
    }
    "net" {
        NetArpRequestsSent = "net_arp_requests_sent": "ARP requests sent.",
        NetArpRepliesSent = "net_arp_replies_sent": "ARP requests for our address, answered.",
        NetArpUpdates = "net_arp_updates": "ARP frames that confirmed or updated a neighbour and asked for no answer.",
        NetNdSolicitationsSent = "net_nd_solicitations_sent": "Neighbour solicitations sent.",
        NetNdUnsolicitedSent = "net_nd_unsolicited_sent": "Unsolicited neighbour advertisements sent (RFC 4861 s7.2.6).",
        NetNdAdvertisementsSent = "net_nd_advertisements_sent": "Neighbour solicitations for our addresses, answered.",
        NetNdUpdates = "net_nd_updates": "Neighbour advertisements that confirmed or updated a neighbour.",
        NetAddressesDuplicate = "net_addresses_duplicate": "Addresses of ours given up because another station has them.",
        NetAddressesDefended = "net_addresses_defended": "Announcements sent because another station claimed our address.",
        NetPathsUpdated = "net_paths_updated": "Connections whose path was changed because their neighbour has another link address.",
        NetNeighboursChanged = "net_neighbours_changed": "Neighbours whose link address changed.",
        NetNeighboursUnreachable = "net_neighbours_unreachable": "Neighbours that no longer answered.",
        NetNeighbourTableFull = "net_neighbour_table_full": "Neighbours that found no place in the table.",
        NetTxNoBuffer = "net_tx_no_buffer": "Requests not sent because the transmit pool was empty or the ring full.",
        NetEchoRepliesSent = "net_echo_replies_sent": "ICMP echo requests answered.",
        NetDropShort = "net_drop_short": "Frames shorter than an Ethernet header or than the header they announce.",
        NetDropNotOurMac = "net_drop_not_our_mac": "Frames for another station.",
        NetDropSourceMac = "net_drop_source_mac": "Frames from a group address.",
        NetDropVlan = "net_drop_vlan": "Frames of another VLAN than ours, or with a provider's tag.",
        NetDropUntagged = "net_drop_untagged": "Frames without a VLAN, although we are in one.",
        NetDropEthertype = "net_drop_ethertype": "Frames of a protocol other than ARP, IPv4 and IPv6.",
        NetDropArpMalformed = "net_drop_arp_malformed": "ARP frames that are not Ethernet and IPv4 or name impossible addresses.",
        NetDropArpConflict = "net_drop_arp_conflict": "ARP frames in which another station claims our address, or probes for it.",
        NetDropArpOther = "net_drop_arp_other": "ARP frames that neither concern us nor a known neighbour.",
        NetDropIpVersion = "net_drop_ip_version": "IP frames whose header has another version.",
        NetDropIpHeader = "net_drop_ip_header": "IPv4 headers with an impossible header length.",
        NetDropIpLength = "net_drop_ip_length": "IP packets longer than their frame or shorter than their header.",
        NetDropIpChecksum = "net_drop_ip_checksum": "IPv4 headers with a wrong checksum.",
        NetDropIpSource = "net_drop_ip_source": "IP packets from an address that cannot be a source.",
        NetDropIpNotOurs = "net_drop_ip_not_ours": "IP packets for another address, and TCP for a group.",
        NetDropIpBroadcastFrame = "net_drop_ip_broadcast_frame": "IP packets for us in a frame for a group, or the other way round.",
        NetDropIpOptions = "net_drop_ip_options": "IP packets with malformed options or extension headers, or a source route.",
        NetDropIpFragment = "net_drop_ip_fragment": "IP fragments. An IPv6 packet with a fragment header that is not split (RFC 6946) counts too.",
        NetDropIpProtocol = "net_drop_ip_protocol": "IP packets of a protocol other than TCP and ICMP.",
        NetDropIcmpShort = "net_drop_icmp_short": "ICMP messages shorter than their header.",
        NetDropIcmpChecksum = "net_drop_icmp_checksum": "ICMP messages with a wrong checksum.",
        NetDropIcmpOther = "net_drop_icmp_other": "ICMP messages other than echo requests and errors.",
        NetDropIcmpRateLimited = "net_drop_icmp_rate_limited": "ICMP errors beyond the rate that is read.",
        NetDropIcmpQuote = "net_drop_icmp_quote": "ICMP errors that quote no TCP segment of ours.",
        NetDropIcmpMtu = "net_drop_icmp_mtu": "Reports of packets too big whose limit cannot be true.",
        NetDropNdMalformed = "net_drop_nd_malformed": "Neighbour discovery messages that are not as they must be, or passed a router.",
        NetDropNdRouter = "net_drop_nd_router": "Router solicitations, router advertisements and redirects: routes are configured.",
        NetDropNdConflict = "net_drop_nd_conflict": "Neighbour discovery messages in which another station claims our address.",
        NetDropNdOther = "net_drop_nd_other": "Neighbour discovery messages that neither concern us nor a known neighbour.",
        NetDropEchoRateLimited = "net_drop_echo_rate_limited": "ICMP echo requests beyond the rate that is answered.",
        NetDropTxRingFull = "net_drop_tx_ring_full": "Replies to ARP, neighbour discovery and echo requests that found the transmit ring full.",
        NetDropTcpHeader = "net_drop_tcp_header": "TCP segments shorter than their header or with an impossible data offset.",
        NetDropTcpChecksum = "net_drop_tcp_checksum": "TCP segments with a wrong checksum.",
    }
    "cores" {
        CoresPolls = "cores_polls": "Iterations of the loop.",
        CoresPollsIdle = "cores_polls_idle": "Iterations of the loop that found nothing to do.",
        CoresClockSteps = "cores_clock_steps": "Times that the clock was behind its last reading. Time went on from there.",
        CoresSteeredOut = "cores_steered_out": "Frames and ICMP errors handed to the owner core of their flow.",
        CoresSteeredIn = "cores_steered_in": "Frames and ICMP errors received from other cores.",
        CoresSteeredDropped = "cores_steered_dropped": "Frames and ICMP errors dropped because the ring to the owner core was full.",
        CoresMessagesDropped = "cores_messages_dropped": "Messages for other cores that found the ring full; the receiver requests them again.",
    }
    "atomics" {
        AtomicsLocalCore = "atomics_local_core": "Atomic operations of peers carried out by the core that their connection lives on.",
        AtomicsShared = "atomics_shared": "Those of them on words that several cores change with locked instructions.",
        AtomicsForwarded = "atomics_forwarded": "Atomic operations of peers that another core was asked to carry out on its word.",
        AtomicsServedRemote = "atomics_served_remote": "Atomic operations carried out, or refused, for other cores.",
        AtomicsNoCredit = "atomics_no_credit": "Times that an atomic operation waited for a credit of the word's owner core.",
        AtomicsStaleReplies = "atomics_stale_replies": "Replies of other cores to requests that had ended.",
        AtomicsApplication = "atomics_application": "Atomic operations carried out, or refused, for applications of this process.",
    }
    "verbs" {
        VerbsConnectionsEstablished = "verbs_connections_established": "Connections that reached full operation.",
        VerbsHalfOpenEvicted = "verbs_half_open_evicted": "Incoming connections reset because their host had most of the places and another had fewer.",
        VerbsProtectionBackoffs = "verbs_protection_backoffs": "Incoming connections reset because their host caused many protection errors.",
        VerbsHalfOpenDropped = "verbs_half_open_dropped": "Incoming connections reset because none more could wait.",
        VerbsStartupTimeouts = "verbs_startup_timeouts": "Incoming connections dropped because start-up took too long.",
        VerbsCqOverruns = "verbs_cq_overruns": "Completions that found no place. Always 0.",
        VerbsCqFullDisconnects = "verbs_cq_full_disconnects": "Messages for shared receives that found no place for their completion; each ended its connection.",
        VerbsLinkChanges = "verbs_link_changes": "Times that the device lost its link or had it again.",
        VerbsSrqShareExceeded = "verbs_srq_share_exceeded": "Times that a peer took more than its share of a shared receive queue.",
        VerbsSrqEmptyDisconnects = "verbs_srq_empty_disconnects": "Messages that found their shared receive queue empty; each ended its connection.",
        VerbsReadTimeouts = "verbs_read_timeouts": "Connections ended because an outstanding Read got no further.",
        VerbsNotificationsDelayed = "verbs_notifications_delayed": "Notifications that waited because their context's ring was full.",
    }
}
