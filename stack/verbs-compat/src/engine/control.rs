//! Requests to the core.
//!
//! The stack hands them over by a ring of fixed size, which fills if the worker does not run: the call fails with
//! [`VerbsError::Busy`] and has changed nothing. Here the caller holds the worker, so a full ring is no error of the
//! program's: [`State::control`] runs the worker, which empties the ring, and calls again.

use verbs::VerbsError;

use super::{EBUSY, ITERATIONS_MAX, Outcome, State};

impl State {
    /// Calls the stack, and again after the worker has run if the ring to the core is full. Then runs the worker once, so
    /// that what was asked for is begun now and not at the next poll. For every call that may fail with
    /// [`VerbsError::Busy`].
    ///
    /// Running the worker passes events on, so the caller keeps no reference to an object across this call.
    pub(crate) fn control<T>(
        &mut self,
        call: impl FnMut(&mut verbs::Context) -> Result<T, VerbsError>,
    ) -> Outcome<T> {
        let result = self.control_quietly(call)?;
        self.advance();
        Ok(result)
    }

    /// The same without running the worker after a success, for calls in loops.
    pub(crate) fn control_quietly<T>(
        &mut self,
        mut call: impl FnMut(&mut verbs::Context) -> Result<T, VerbsError>,
    ) -> Outcome<T> {
        for _ in 0..ITERATIONS_MAX {
            match call(&mut self.device()?.context) {
                Err(VerbsError::Busy) => self.advance(),
                outcome => return Ok(outcome?),
            };
        }
        Err(EBUSY)
    }
}
