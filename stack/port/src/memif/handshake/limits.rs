//! What the users of a server's socket may ask of it: starts of a link, and memory that is mapped
//! at a time.
//!
//! A start costs messages, mappings and their removal, on the control thread. Each user has
//! [`STARTS_MAX`] of them at once, and one more for each [`START_INTERVAL`]. Memory of an ended
//! link stays mapped until each queue has given its rings back, which a queue that nobody polls
//! does late: meanwhile new links may map [`MAPPED_BYTES_MAX`] with it.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use super::server::ALL_BYTES_MAX;
use crate::memif::region::Region;

/// Starts that a user may make at once.
const STARTS_MAX: u32 = 64;
/// The interval of further starts.
const START_INTERVAL: Duration = Duration::from_secs(1);
/// Users that are remembered. The one whose last start is longest ago is forgotten first.
const USERS_MAX: usize = 64;
/// Mapped bytes of all links: an ended one whose rings are in use, and the next one.
const MAPPED_BYTES_MAX: u64 = 2 * ALL_BYTES_MAX;

/// What the users of a socket have used up.
#[derive(Default)]
pub(super) struct Limits {
    users: Vec<User>,
    mapped: Vec<(Weak<Region>, u64)>,
}

struct User {
    id: u32,
    /// Starts that are left.
    starts: u32,
    /// When the first of the missing starts began to come back.
    since: Instant,
}

impl Limits {
    /// Counts a start of a user. Returns whether it is allowed.
    pub(super) fn may_start(&mut self, id: u32, now: Instant) -> bool {
        let mut user = match self.users.iter().position(|user| user.id == id) {
            Some(place) => self.users.remove(place),
            None => User { id, starts: STARTS_MAX, since: now },
        };
        if self.users.len() >= USERS_MAX {
            self.users.remove(0);
        }
        user.refill(now);
        let allowed = user.starts > 0;
        user.starts = user.starts.saturating_sub(1);
        // The list is in the order of the last starts.
        self.users.push(user);
        allowed
    }

    /// Returns whether a region of `bytes` may be mapped.
    pub(super) fn may_map(&mut self, bytes: u64) -> bool {
        self.mapped.retain(|(region, _)| region.strong_count() > 0);
        let mapped =
            self.mapped.iter().map(|(_, bytes)| bytes).fold(bytes, |sum, more| sum.saturating_add(*more));
        mapped <= MAPPED_BYTES_MAX
    }

    /// Counts a region as mapped, until its last user drops it.
    pub(super) fn on_mapped(&mut self, region: &Arc<Region>, bytes: u64) {
        self.mapped.push((Arc::downgrade(region), bytes));
    }
}

impl User {
    fn refill(&mut self, now: Instant) {
        let intervals = now.saturating_duration_since(self.since).as_secs() / START_INTERVAL.as_secs();
        let missing = STARTS_MAX - self.starts;
        match u32::try_from(intervals) {
            Ok(back) if back < missing => {
                self.starts += back;
                self.since += START_INTERVAL * back;
            }
            _ => (self.starts, self.since) = (STARTS_MAX, now),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: u32 = 1000;
    const B: u32 = 1001;

    #[test]
    fn a_user_has_so_many_starts_at_once_and_then_one_a_second() {
        let (mut limits, start) = (Limits::default(), Instant::now());
        let allowed = |limits: &mut Limits, now| (0..1000).filter(|_| limits.may_start(A, now)).count();
        assert_eq!(allowed(&mut limits, start), STARTS_MAX as usize);
        let at = |millis| start + Duration::from_millis(millis);
        assert_eq!(allowed(&mut limits, at(999)), 0);
        assert_eq!(allowed(&mut limits, at(1000)), 1);
        assert_eq!(allowed(&mut limits, at(3999)), 2);
        assert_eq!(allowed(&mut limits, at(4000)), 1, "no part of a second is lost");
        assert_eq!(allowed(&mut limits, at(4_000_000)), STARTS_MAX as usize);
        // Others have theirs.
        assert!(limits.may_start(B, at(4_000_000)) && !limits.may_start(A, at(4_000_000)));
        // A clock that stands still or goes back gives none.
        assert!(!limits.may_start(A, start));
    }

    #[test]
    fn so_many_users_that_one_is_forgotten_do_not_grow_the_list() {
        let (mut limits, now) = (Limits::default(), Instant::now());
        assert!((0..10_000).all(|id| limits.may_start(id, now)));
        assert_eq!(limits.users.len(), USERS_MAX);
    }

    #[test]
    fn memory_counts_until_its_last_user_is_gone() {
        let mut limits = Limits::default();
        let region = Arc::new(Region::create(4096).expect("a memfd").0);
        limits.on_mapped(&region, ALL_BYTES_MAX);
        assert!(limits.may_map(ALL_BYTES_MAX) && !limits.may_map(ALL_BYTES_MAX + 1));
        limits.on_mapped(&region, u64::MAX);
        assert!(!limits.may_map(1));
        drop(region);
        assert!(limits.may_map(MAPPED_BYTES_MAX) && !limits.may_map(u64::MAX));
    }
}
