//! Lists of requests and completions that are converted from or to another form, for the interfaces
//! to other languages.
//!
//! Takes a conversion and a call that posts or polls; gives the number of requests or completions.
//! A few are converted at a time, so that each doorbell announces several and nothing is allocated.

use arrayvec::ArrayVec;

use crate::Completion;

/// Requests that are converted and posted with one doorbell.
pub const BATCH: usize = 16;

/// Converts the first [`BATCH`] requests and posts them. If one is refused, by `convert` or by
/// `post`, those before it are posted. Returns the number of posted requests, and the refusal.
pub fn post_converted<T, W, E>(
    requests: impl IntoIterator<Item = T>,
    mut convert: impl FnMut(T) -> Result<W, E>,
    post: impl FnOnce(&[W]) -> Result<(), (usize, E)>,
) -> (usize, Result<(), E>) {
    let mut converted = ArrayVec::<W, BATCH>::new();
    let mut refused = Ok(());
    for request in requests.into_iter().take(BATCH) {
        match convert(request) {
            Ok(one) => converted.push(one),
            Err(fault) => {
                refused = Err(fault);
                break;
            }
        }
    }
    match post(&converted) {
        Ok(()) => (converted.len(), refused),
        Err((posted, error)) => (posted, Err(error)),
    }
}

/// Reaps up to `wanted` completions, as many at a time as `room` has, and passes each to `take`.
/// Returns their number. An error of `poll` is returned if nothing was reaped before.
#[inline]
pub fn reap<E>(
    wanted: usize,
    room: &mut [Completion],
    mut poll: impl FnMut(&mut [Completion]) -> Result<usize, E>,
    mut take: impl FnMut(&Completion),
) -> Result<usize, E> {
    let mut reaped = 0;
    while reaped < wanted {
        let places = room.len().min(wanted - reaped);
        let (some, _) = room.split_at_mut(places);
        let found = match poll(some) {
            Err(_) if reaped > 0 => break,
            found => found?,
        };
        some.iter().take(found).for_each(&mut take);
        reaped += found;
        if found < places {
            break;
        }
    }
    Ok(reaped)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Posts even numbers below 8, doubled, and refuses others as the queue does.
    fn post(numbers: &[u32]) -> (usize, Result<(), &'static str>) {
        let even = |number: &u32| if number.is_multiple_of(2) { Ok(number * 2) } else { Err("odd") };
        post_converted(numbers, even, |doubled| match doubled.iter().position(|number| *number >= 16) {
            Some(posted) => Err((posted, "full")),
            None => Ok(()),
        })
    }

    #[test]
    fn completions_are_reaped_until_there_is_none_or_enough_are_taken() {
        let reaped = |wanted, mut there: usize| {
            let (mut room, mut taken) = ([Completion::default(); 4], 0);
            let poll = |some: &mut [Completion]| match there {
                0 => Err("gone"),
                _ => {
                    let found = some.len().min(there);
                    there -= found;
                    Ok(found)
                }
            };
            let outcome = reap(wanted, &mut room, poll, |_| taken += 1);
            (outcome, taken)
        };
        assert_eq!(reaped(10, 9), (Ok(9), 9));
        assert_eq!(reaped(10, 8), (Ok(8), 8), "what was reaped comes before the error");
        assert_eq!(reaped(3, 8), (Ok(3), 3));
        assert_eq!(reaped(1, 0), (Err("gone"), 0));
        assert_eq!(reaped(0, 8), (Ok(0), 0));
    }

    #[test]
    fn requests_before_a_refused_one_are_posted() {
        assert_eq!(post(&[2, 4, 6]), (3, Ok(())));
        assert_eq!(post(&[2, 4, 5, 6]), (2, Err("odd")));
        assert_eq!(post(&[2, 10, 5]), (1, Err("full")), "the queue refuses the earlier one");
        assert_eq!(post(&[]), (0, Ok(())));
        assert_eq!(post(&[0; BATCH + 1]), (BATCH, Ok(())), "the rest is the next batch");
    }
}
