//! The server: takes clients, reads their texts and writes them back.
//!
//! What one client does wrong ends its own connection, with a line that says what it was. A server that is not
//! persistent serves one client and ends as that one did.

use core::net::SocketAddr;
use core::sync::atomic::{AtomicBool, Ordering};
use std::collections::HashMap;
use std::time::Duration;

use ironwarp::{Completion, ConnectionRequest, Event, VerbsError};

use crate::end::{End, LEAVES_WITHIN, PingError};
use crate::message::Fault;
use crate::session::Session;
use crate::tally::ServerTally;

/// Completions reaped at a time.
const REAP: usize = 32;
/// After the last client's end, so that the last acknowledgement gets out.
const LINGER: Duration = Duration::from_millis(5);

/// What a server is to do.
#[derive(Clone, Debug)]
pub struct Offer {
    /// Where it listens.
    pub local: SocketAddr,
    /// Bytes of the longest text that is taken, 1 to [`TEXT_BYTES_MAX`](crate::TEXT_BYTES_MAX).
    pub bytes_max: u32,
    /// Pings that each client is to make; any number unless given.
    pub count: Option<u64>,
    /// Compare every text with what `rping`'s clients send.
    pub verify: bool,
    /// Print every text.
    pub verbose: bool,
    /// Serve one client after the other, and several at once.
    pub persistent: bool,
    /// How long a client may be silent.
    pub patience: Duration,
}

impl Offer {
    /// Whether texts are looked at.
    pub(crate) fn looks(&self) -> bool {
        self.verify || self.verbose
    }
}

/// A server that listens.
pub struct Server {
    end: End,
    offer: Offer,
    sessions: HashMap<u32, Session>,
    /// Clients whose queue pairs could not be given back yet: the core has more to do than it has heard of.
    leaving: Vec<Session>,
    tally: ServerTally,
    /// How the last client ended, unless in order.
    last: Option<PingError>,
    over: bool,
    /// A client has gone since the last look at who leaves.
    parted: bool,
    tell: Tell,
}

/// Who hears of each client that was given up.
pub type Tell = Box<dyn FnMut(SocketAddr, &PingError) + Send>;

impl Server {
    /// Listens.
    pub fn new(mut end: End, offer: Offer, tell: Tell) -> Result<Self, PingError> {
        end.listen(offer.local)?;
        let (sessions, leaving, tally) = (HashMap::new(), Vec::new(), ServerTally::default());
        Ok(Server { end, offer, sessions, leaving, tally, last: None, over: false, parted: false, tell })
    }

    /// What was done.
    pub fn tally(&self) -> ServerTally {
        self.tally
    }

    /// Serves until `stop` is raised, or until the first client has gone where the server is not persistent. Fails as
    /// that client did.
    pub fn run(&mut self, stop: &AtomicBool) -> Result<(), PingError> {
        self.end.rest_until(true, stop, None);
        while !stop.load(Ordering::Relaxed) && !self.over {
            let glance = self.end.turn();
            self.on_completions()?;
            while let Some(event) = self.end.ctx.poll_event() {
                self.on_event(event)?;
            }
            if glance {
                self.glance(stop)?;
            }
        }
        self.close()
    }

    /// Ends what is still connected, and the run.
    fn close(&mut self) -> Result<(), PingError> {
        for session in self.sessions.values() {
            // One that is closing already needs no second word.
            let _ = self.end.ctx.disconnect(session.qp);
        }
        for (_, session) in self.sessions.drain() {
            self.tally.pings += session.pings;
            self.tally.bytes += session.bytes;
        }
        if self.end.is_linked() {
            self.end.turn_for(LINGER);
        }
        self.end.leave_last();
        match self.last.take() {
            Some(error) if !self.offer.persistent => Err(error),
            _ => Ok(()),
        }
    }

    fn on_completions(&mut self) -> Result<usize, PingError> {
        let mut reaped = [Completion::default(); REAP];
        let count = self.end.ctx.poll_cq(self.end.cq, &mut reaped)?;
        for completion in reaped.iter().take(count) {
            let num = completion.qp.0;
            // Of a client that was given up, what comes still is of no interest.
            let Some(session) = self.sessions.get_mut(&num) else { continue };
            if let Err(error) = session.on_completion(&mut self.end, &self.offer, completion) {
                self.part(num, Err(error))?;
            }
        }
        Ok(count)
    }

    fn on_event(&mut self, event: Event) -> Result<(), PingError> {
        match event {
            Event::ConnectRequest { request, remote, .. } => self.on_request(request, remote)?,
            Event::Terminated { qp, sent, terminate } => {
                if let Some(session) = self.sessions.get_mut(&qp.num().0) {
                    session.on_terminate(sent, terminate);
                }
            }
            Event::Disconnected { qp, reason } => {
                // What was done before the end counts.
                while self.on_completions()? > 0 {}
                let num = qp.num().0;
                if let Some(session) = self.sessions.get(&num) {
                    let outcome = session.part(&self.offer, reason).map_err(PingError::from);
                    self.part(num, outcome)?;
                }
            }
            Event::ConnectFailed { qp, reason } => {
                self.part(qp.num().0, Err(Fault::Unanswered(reason).into()))?;
            }
            Event::ListenFailed { local } => return Err(PingError::Listen(local)),
            _ => {}
        }
        Ok(())
    }

    fn on_request(&mut self, request: ConnectionRequest, remote: SocketAddr) -> Result<(), PingError> {
        let most = if self.offer.persistent { self.end.connections_max } else { 1 };
        if self.sessions.len() >= most || self.over {
            tracing::warn!("{remote} was turned away: busy");
            return self.turn_away(request, b"busy with another client");
        }
        let session = match Session::new(&mut self.end, &self.offer, remote) {
            Ok(session) => session,
            Err(error) => {
                tracing::warn!("{remote} was turned away: {error}");
                return self.turn_away(request, b"no resources");
            }
        };
        if let Err(error) = self.end.ctx.accept(request, session.qp, &[]) {
            // It asks no more, or a queue pair that was given up is still on its way back.
            tracing::warn!("{remote} was not accepted: {error}");
            return self.give_up(session);
        }
        tracing::info!("{remote} is connected");
        self.sessions.insert(session.qp.num().0, session);
        Ok(())
    }

    fn turn_away(&mut self, request: ConnectionRequest, why: &[u8]) -> Result<(), PingError> {
        match self.end.ctx.reject(request, why) {
            // The client hears nothing, and gives up by itself.
            Err(VerbsError::Busy) => Ok(()),
            outcome => Ok(outcome?),
        }
    }

    /// Parts with a client. A connection that is still up is reset.
    fn part(&mut self, num: u32, outcome: Result<(), PingError>) -> Result<(), PingError> {
        let Some(session) = self.sessions.remove(&num) else { return Ok(()) };
        self.tally.pings += session.pings;
        self.tally.bytes += session.bytes;
        match outcome {
            Ok(()) => {
                self.tally.served += 1;
                tracing::info!("{} was served: {} pings", session.remote, session.pings);
            }
            Err(error) => {
                self.tally.failed += 1;
                (self.tell)(session.remote, &error);
                self.last = Some(error);
            }
        }
        (self.over, self.parted) = (!self.offer.persistent, true);
        self.give_up(session)
    }

    /// Gives a client's queue pair back, or keeps it until the core can be told.
    fn give_up(&mut self, session: Session) -> Result<(), PingError> {
        match self.end.ctx.destroy_qp(session.qp) {
            Err(VerbsError::Busy) => self.leaving.push(session),
            outcome => outcome?,
        }
        Ok(())
    }

    /// Gives up clients that are silent or gone, and keeps its hands off a link whose far end leaves.
    fn glance(&mut self, stop: &AtomicBool) -> Result<(), PingError> {
        std::mem::take(&mut self.leaving).into_iter().try_for_each(|session| self.give_up(session))?;
        if !self.end.is_linked() {
            self.part_with(|session| Err(Fault::LinkDown(session.pings)))?;
            if !self.over {
                self.end.rest_until(true, stop, None);
            }
        } else if self.sessions.is_empty() && std::mem::take(&mut self.parted) && self.end.is_shared() {
            self.after_the_last(stop);
        }
        let patience = self.offer.patience;
        self.part_with(|session| session.check_silence(patience))
    }

    /// The far end of a memif leaves when its client is done: nobody polls meanwhile.
    fn after_the_last(&mut self, stop: &AtomicBool) {
        self.end.turn_for(LINGER);
        if self.end.rest_until(false, stop, Some(LEAVES_WITHIN)) {
            self.end.rest_until(true, stop, None);
        }
    }

    fn part_with(&mut self, is_well: impl Fn(&Session) -> Result<(), Fault>) -> Result<(), PingError> {
        let ill = self.sessions.iter().filter_map(|(num, session)| Some((*num, is_well(session).err()?)));
        let ill: Vec<(u32, Fault)> = ill.collect();
        ill.into_iter().try_for_each(|(num, fault)| self.part(num, Err(fault.into())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ironwarp::memory::{MemoryConfig, pair};
    use ironwarp::{Config, Stack};

    /// A client has gone while the core has as much to hear as it may be told: its queue pair is kept, and given back once
    /// the core has heard.
    #[test]
    fn a_queue_pair_is_kept_until_the_core_can_hear_of_its_end() {
        let config = Config::in_memory("10.0.0.1/24").expect("a valid configuration");
        let (port, _other_end) = pair(&MemoryConfig::default(), &MemoryConfig::default());
        let (stack, worker) = Stack::builder(config.clone()).memory_port(port).build_one().expect("a stack");
        let local: SocketAddr = "10.0.0.1:1".parse().expect("an address");
        let patience = Duration::from_secs(60);
        let offer = Offer {
            local,
            bytes_max: 100,
            count: None,
            verify: false,
            verbose: false,
            persistent: true,
            patience,
        };
        let end = End::over(&config, stack, worker).expect("an end");
        let mut server = Server::new(end, offer, Box::new(|_, _| {})).expect("a server");
        let session = Session::new(&mut server.end, &server.offer, local).expect("a queue pair");
        // Asking for a connection, here of nobody, gives it a core.
        server
            .end
            .ctx
            .connect(session.qp, "10.0.0.2:1".parse().expect("an address"), &[])
            .expect("a free queue pair");
        while server.end.ctx.unlisten("10.0.0.1:2".parse().expect("an address")).is_ok() {}

        server.give_up(session).expect("busy is no failure");
        server.glance(&AtomicBool::new(false)).expect("nor is it later");
        assert_eq!(server.leaving.len(), 1);
        (0..1000).for_each(|_| _ = server.end.turn());
        server.glance(&AtomicBool::new(false)).expect("it is given back");
        assert!(server.leaving.is_empty());
    }
}
