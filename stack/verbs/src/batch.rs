//! Posting of requests that are converted from another form, for the interfaces to other languages.
//!
//! Takes a list, a conversion and a call that posts; gives the number of posted requests. A few requests are converted at a
//! time, so that each doorbell announces several and nothing is allocated.

use arrayvec::ArrayVec;

/// Requests that are converted and posted with one doorbell.
pub const BATCH: usize = 16;

/// Converts the first [`BATCH`] requests and posts them. If one is refused, by `convert` or by `post`, those before it are
/// posted. Returns the number of posted requests, and the refusal.
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
    fn requests_before_a_refused_one_are_posted() {
        assert_eq!(post(&[2, 4, 6]), (3, Ok(())));
        assert_eq!(post(&[2, 4, 5, 6]), (2, Err("odd")));
        assert_eq!(post(&[2, 10, 5]), (1, Err("full")), "the queue refuses the earlier one");
        assert_eq!(post(&[]), (0, Ok(())));
        assert_eq!(post(&[0; BATCH + 1]), (BATCH, Ok(())), "the rest is the next batch");
    }
}
