//! A limit of the protection errors that a host may cause before its connections are refused for a
//! while.
//!
//! RFC 5042 s6.1.1, s8.1.1: a peer that guesses steering tags learns from each wrong one only that
//! it was wrong, and loses a connection. Without a limit it can guess as fast as it can connect. A
//! host may cause a number of errors at once and one more each second; beyond that its new
//! connections are reset. Those that exist are not affected.

use core::net::IpAddr;

use ironwarp_types::Nanos;

use super::half_open_by_host::host_key;

/// At this rate a host regains the errors that it may cause.
const INTERVAL: Nanos = Nanos::from_secs(1);

/// Hosts with errors that are remembered at a time.
const HOSTS_MAX: usize = 256;

/// The hosts that recently caused protection errors.
pub(super) struct ProtectionBackoff {
    /// Each with the time when all its errors are forgotten.
    hosts: Vec<(IpAddr, Nanos)>,
    /// How long the errors that a host may cause at once are remembered; 0: there is no limit.
    burst: Nanos,
}

impl ProtectionBackoff {
    /// Allows `errors` at once; 0 allows any number.
    pub(super) fn new(errors: u32) -> Self {
        let hosts = Vec::with_capacity(if errors == 0 { 0 } else { HOSTS_MAX });
        ProtectionBackoff { hosts, burst: INTERVAL.times(errors.into()) }
    }

    /// Returns whether new connections of a host are refused now.
    pub(super) fn is_refused(&self, now: Nanos, host: IpAddr) -> bool {
        let forgotten = self.find(host).and_then(|at| self.hosts.get(at)).map(|(_, forgotten)| *forgotten);
        forgotten.is_some_and(|forgotten| forgotten + INTERVAL > now + self.burst)
    }

    /// Records that a host caused an error.
    pub(super) fn record(&mut self, now: Nanos, host: IpAddr) {
        if self.burst == Nanos::ZERO {
            return;
        }
        self.hosts.retain(|(_, forgotten)| *forgotten > now);
        // Connections that exist go on to cause errors: twice the burst is not exceeded.
        let longest = now + self.burst + self.burst;
        if let Some((_, forgotten)) = self.find(host).and_then(|at| self.hosts.get_mut(at)) {
            *forgotten = (*forgotten + INTERVAL).min(longest);
            return;
        }
        if self.hosts.len() == HOSTS_MAX {
            let least = self.hosts.iter().enumerate().min_by_key(|(_, (_, forgotten))| *forgotten);
            if let Some(at) = least.map(|(at, _)| at) {
                self.hosts.swap_remove(at);
            }
        }
        self.hosts.push((host_key(host), now + INTERVAL));
    }

    fn find(&self, host: IpAddr) -> Option<usize> {
        let key = host_key(host);
        self.hosts.iter().position(|(known, _)| *known == key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(number: u8) -> IpAddr {
        [10, 0, 0, number].into()
    }

    /// RFC 5042 s8.1.1: after a burst, one guess a second.
    #[test]
    fn a_host_beyond_its_errors_waits() {
        let mut backoff = ProtectionBackoff::new(3);
        let at = |seconds: u64| Nanos::from_secs(100 + seconds);
        for errors in 0..3 {
            assert!(!backoff.is_refused(at(0), host(1)), "after {errors} errors");
            backoff.record(at(0), host(1));
        }
        assert!(backoff.is_refused(at(0), host(1)));
        assert!(!backoff.is_refused(at(0), host(2)), "others are not affected");
        assert!(!backoff.is_refused(at(1), host(1)), "one more after a second");
        backoff.record(at(1), host(1));
        assert!(backoff.is_refused(at(1), host(1)));
    }

    #[test]
    fn many_errors_at_once_are_remembered_for_twice_the_burst() {
        let mut backoff = ProtectionBackoff::new(3);
        (0..1_000).for_each(|_| backoff.record(Nanos::ZERO, host(1)));
        assert!(backoff.is_refused(Nanos::from_millis(3_999), host(1)));
        assert!(!backoff.is_refused(Nanos::from_secs(4), host(1)));
    }

    #[test]
    fn a_full_table_forgets_the_host_with_the_fewest_errors() {
        let mut backoff = ProtectionBackoff::new(3);
        (0..3).for_each(|_| backoff.record(Nanos::ZERO, host(255)));
        for number in 0..=u16::MAX {
            backoff.record(Nanos::ZERO, [10, 1, (number >> 8) as u8, number as u8].into());
        }
        assert_eq!(backoff.hosts.len(), HOSTS_MAX);
        assert!(backoff.is_refused(Nanos::ZERO, host(255)));
    }

    #[test]
    fn zero_is_no_limit() {
        let mut backoff = ProtectionBackoff::new(0);
        (0..1_000).for_each(|_| backoff.record(Nanos::ZERO, host(1)));
        assert!(!backoff.is_refused(Nanos::ZERO, host(1)));
    }
}
