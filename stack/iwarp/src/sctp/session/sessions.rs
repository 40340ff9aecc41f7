//! The sessions of one association.

use super::{Session, SessionFault};

/// The sessions of one association, one for each pair of streams with the same number.
#[derive(Debug)]
pub struct Sessions<M> {
    sessions: Box<[Session<M>]>,
    /// The first stream on which this side begins sessions. Every second one follows.
    first: usize,
    requests_max: usize,
}

impl<M: PartialEq> Sessions<M> {
    /// Creates the sessions of an association with `streams` in each direction. `is_opener`: this
    /// side opened the association, so it begins sessions on even streams and its peer on odd ones.
    /// Each session holds at most `held_max` messages. At most `requests_max` requests of the peer
    /// wait for a decision (RFC 5043 s6.4).
    pub fn new(streams: u16, is_opener: bool, held_max: usize, requests_max: usize) -> Self {
        let sessions = (0..streams).map(|_| Session::new(held_max)).collect();
        Sessions { sessions, first: usize::from(!is_opener), requests_max }
    }

    /// Returns the session of a stream.
    pub fn session(&mut self, stream: u16) -> Option<&mut Session<M>> {
        self.sessions.get_mut(usize::from(stream))
    }

    /// Returns a stream on which this side may begin a session, if `all_acked` says that the peer
    /// has acknowledged every chunk of this side on it.
    pub fn free_stream(&self, all_acked: impl Fn(u16) -> bool) -> Option<u16> {
        let own = self.sessions.iter().enumerate().skip(self.first).step_by(2);
        // There are at most 2^16 streams.
        own.filter(|(_, session)| session.is_reusable())
            .map(|(stream, _)| stream as u16)
            .find(|stream| all_acked(*stream))
    }

    /// Passes a message to the session of its stream: [`Session::on_message`]. On
    /// [`SessionFault::TooManyRequests`] the session waits for its Terminate
    /// ([`Session::terminate`]), and the application does not see the request.
    pub fn on_message(
        &mut self,
        stream: u16,
        chunk: (u32, bool, &[u8]),
        message: M,
    ) -> Result<Option<u16>, SessionFault> {
        let session = self.session(stream).ok_or(SessionFault::NoSession)?;
        let was_requested = session.is_requested();
        let distance = session.on_message(chunk, message)?;
        if !was_requested && session.is_requested() && self.requests() > self.requests_max {
            self.session(stream).into_iter().for_each(Session::pop);
            return Err(SessionFault::TooManyRequests);
        }
        Ok(distance)
    }

    fn requests(&self) -> usize {
        self.sessions.iter().filter(|session| session.is_requested()).count()
    }
}
