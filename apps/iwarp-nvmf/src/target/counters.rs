//! Counts of what a target refused or ended, by name.
//!
//! All cores count here. Nothing on the path of a command that succeeds does: waits are counted by
//! each core, and added some fifty times a second.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counters {
    ($($(#[doc = $doc:literal])* $name:ident = $text:literal;)*) => {
        /// What a target counts.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum TargetCounter {
            $($(#[doc = $doc])* $name,)*
        }

        impl TargetCounter {
            /// All of them.
            pub const ALL: &[TargetCounter] = &[$(TargetCounter::$name,)*];

            /// Returns its name.
            pub fn name(self) -> &'static str {
                match self {
                    $(TargetCounter::$name => $text,)*
                }
            }
        }
    };
}

counters! {
    /// A Connect while another one of the queue is in flight, or after it.
    ConnectsOutOfOrder = "connects_out_of_order";
    /// Connects refused because the host's NQN is on no list.
    ConnectsNotAllowed = "connects_not_allowed";
    /// Connects refused because the host, by NQN or address, has as many controllers as one host
    /// may have.
    ControllersPerHostFull = "controllers_per_host_full";
    /// Connects refused because all controllers are in use, and no host has more than its share.
    ControllersFull = "controllers_full";
    /// The same for discovery controllers.
    DiscoveryControllersFull = "discovery_controllers_full";
    /// Controllers ended because their host had the most and another host needed one.
    ControllersEvicted = "controllers_evicted";
    /// Controllers ended because their host was silent.
    KeepAliveExpired = "keep_alive_expired";
    /// Connections rejected because of their private data.
    ConnectionsInvalid = "connections_invalid";
    /// Connections rejected because their address has as many as one address may have on a core.
    ConnectionsPerAddressFull = "connections_per_address_full";
    /// Connections rejected because a core has no place or no capsules left.
    ConnectionsFull = "connections_full";
    /// Connections rejected because too many requests of their address, or of all, waited for an
    /// answer.
    RequestsFull = "requests_full";
    /// Connections ended because their address had the most and another needed a place.
    ConnectionsEvicted = "connections_evicted";
    /// Connections ended because they sent no Connect.
    ConnectTimeouts = "connect_timeouts";
    /// Connections ended because their host did not take or send data in time.
    PeerTimeouts = "peer_timeouts";
    /// Connections ended because their host held data buffers that others waited for.
    ContendedTimeouts = "contended_timeouts";
    /// Authentications that failed: a wrong response, no secret, or nothing in common.
    AuthenticationFailures = "authentication_failures";
    /// Authentications that failed because of a message that was wrong or not due.
    AuthenticationMessagesInvalid = "authentication_messages_invalid";
    /// Connections, and exchanges on authenticated ones, that ended because the host did not go on.
    AuthenticationTimeouts = "authentication_timeouts";
    /// Commands refused because their host had not proved itself.
    CommandsUnauthenticated = "commands_unauthenticated";
    /// Connections ended because of a capsule without a whole entry.
    CapsulesShort = "capsules_short";
    /// Times that a command waited for a data buffer.
    WaitsForBuffers = "waits_for_buffers";
    /// Times that a command waited because its host had had its share of a turn.
    WaitsForTurn = "waits_for_turn";
    /// Times that a command waited because the backend was full.
    WaitsForDevice = "waits_for_device";
    /// Dataset Management and Write Zeroes commands that exceed what Identify reports.
    SizeLimitsExceeded = "size_limits_exceeded";
    /// Pauses of a core, after which keep-alive timers are judged when the waiting frames are read.
    Pauses = "pauses";
}

/// The counts.
#[derive(Debug)]
pub struct TargetCounters([AtomicU64; TargetCounter::ALL.len()]);

impl Default for TargetCounters {
    fn default() -> Self {
        TargetCounters([const { AtomicU64::new(0) }; TargetCounter::ALL.len()])
    }
}

impl TargetCounters {
    /// Counts one.
    #[cold]
    pub fn add(&self, counter: TargetCounter) {
        if let Some(count) = self.0.get(counter as usize) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counts several, if any.
    pub fn add_many(&self, counter: TargetCounter, times: u64) {
        if times > 0
            && let Some(count) = self.0.get(counter as usize)
        {
            count.fetch_add(times, Ordering::Relaxed);
        }
    }

    /// Returns a count.
    pub fn read(&self, counter: TargetCounter) -> u64 {
        self.0.get(counter as usize).map_or(0, |count| count.load(Ordering::Relaxed))
    }

    /// Returns all names and counts.
    pub fn all(&self) -> impl Iterator<Item = (&'static str, u64)> {
        TargetCounter::ALL.iter().map(|&one| (one.name(), self.read(one)))
    }
}
