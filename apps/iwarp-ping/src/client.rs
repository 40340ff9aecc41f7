//! The client: advertises a text, lets it be read, advertises room, lets it be written, and compares.

use core::net::SocketAddr;
use core::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ironwarp::{
    Access, Completion, CompletionOpcode, CompletionStatus, ConnectParams, Event, Nanos, QpAttr, QueuePair,
    RecvWr, Region, RemoteMemory, SendWr, Terminate,
};
use ironwarp_cli::say;

use crate::end::{End, PingError};
use crate::message::{Advertisement, Fault, MESSAGE_BYTES, RECEIVE_BYTES, ended, failed, shown, write_text};
use crate::tally::ClientTally;

/// Receives posted. A server has one message on its way at a time.
const RECEIVES: usize = 2;
/// Sends on their way: two a ping, and those of the ping before.
const SENDS: u32 = 8;
/// Completions reaped at a time.
const REAP: usize = 8;
/// What room for a text holds before it comes: a byte that no text has.
const POISON: u8 = 0xff;
/// The device of a memif may be waited for so long.
const LINK_WITHIN: Duration = Duration::from_secs(8);
/// A ping that was begun may take so long after Ctrl-C.
const STOP_WITHIN: Duration = Duration::from_secs(1);
/// The connection's orderly end.
const CLOSE_WITHIN: Duration = Duration::from_secs(2);
/// Between the last word and this end's leaving, which takes a memif away from the server.
const LEAVE_AFTER: Duration = Duration::from_millis(100);

/// What a client is to do.
#[derive(Clone, Debug)]
pub struct Call {
    /// The server.
    pub server: SocketAddr,
    /// Pings; until Ctrl-C unless given.
    pub count: Option<u64>,
    /// Bytes of a text, 1 to [`TEXT_BYTES_MAX`](crate::TEXT_BYTES_MAX).
    pub bytes: u32,
    /// Compare every byte that comes back.
    pub verify: bool,
    /// Print every text.
    pub verbose: bool,
    /// How long the server may be silent.
    pub patience: Duration,
    /// Wait so long before the first message; what the configuration says unless given.
    pub hold_off: Option<Duration>,
}

/// A client with its memory.
pub struct Client {
    end: End,
    call: Call,
    qp: QueuePair,
    source: Region,
    sink: Region,
    messages: Region,
    /// The text that is on its way, and room for the one that came back.
    text: Vec<u8>,
    came: Vec<u8>,
    /// Messages of the server that wait to be taken: their lengths.
    heard: [Option<u32>; RECEIVES],
    /// Whether the server has what this end said last.
    told: bool,
    terminate: Option<(bool, Terminate)>,
    up: bool,
    tally: ClientTally,
}

impl Client {
    /// Makes everything but the connection.
    pub fn new(mut end: End, call: Call) -> Result<Self, PingError> {
        let room = |end: &End, access| end.ctx.register(end.pd, vec![0; call.bytes as usize], access);
        let source = room(&end, Access::REMOTE_READ)?;
        let sink = room(&end, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
        let messages = end.ctx.register(end.pd, vec![0; RECEIVES * RECEIVE_BYTES], Access::LOCAL_WRITE)?;
        let attr =
            QpAttr { send_depth: SENDS, recv_depth: RECEIVES as u32, ird: 1, ord: 1, ..QpAttr::new(end.cq) };
        let qp = end.ctx.create_qp(end.pd, &attr)?;
        let (text, came) = (vec![0; call.bytes as usize], vec![0; call.bytes as usize]);
        let tally = ClientTally::new(call.bytes, call.verify);
        let mut client = Client {
            end,
            call,
            qp,
            source,
            sink,
            messages,
            text,
            came,
            heard: [None; RECEIVES],
            told: false,
            terminate: None,
            up: false,
            tally,
        };
        (0..RECEIVES).try_for_each(|slot| client.post_receive(slot))?;
        Ok(client)
    }

    /// Pings until all was done that was asked for, or `stop` is raised.
    pub fn run(&mut self, stop: &AtomicBool) -> Result<(), PingError> {
        let outcome = self.connect(stop).and_then(|()| {
            self.tally.begin();
            let outcome = self.pings(stop);
            self.tally.end();
            outcome
        });
        self.leave();
        match outcome {
            Err(error) if error.is_stop() || (stop.load(Ordering::Relaxed) && error.is_parting()) => {
                self.stopped().map_or(Ok(()), Err)
            }
            outcome => outcome,
        }
    }

    /// What was done.
    pub fn tally(&self) -> &ClientTally {
        &self.tally
    }

    fn connect(&mut self, stop: &AtomicBool) -> Result<(), PingError> {
        if !self.end.rest_until(true, stop, Some(LINK_WITHIN)) {
            return Err(if stop.load(Ordering::Relaxed) {
                PingError::Interrupted
            } else {
                PingError::NoLink
            });
        }
        let first_fpdu_holdoff = self.call.hold_off.map(|wait| Nanos(wait.as_nanos() as u64));
        let params = ConnectParams { first_fpdu_holdoff, ..ConnectParams::default() };
        self.end.ctx.connect_with(self.qp, self.call.server, &params)?;
        self.wait(stop, |client| client.up.then_some(()))
    }

    fn pings(&mut self, stop: &AtomicBool) -> Result<(), PingError> {
        while self.call.count.is_none_or(|count| self.tally.pings() < count) {
            if stop.load(Ordering::Relaxed) {
                return Err(PingError::Interrupted);
            }
            self.ping(stop)?;
        }
        Ok(())
    }

    /// Ctrl-C is how pings without number end, wherever they are; it cuts a number of them short.
    #[cold]
    fn stopped(&self) -> Option<PingError> {
        Some(PingError::Stopped { came: self.tally.pings(), wanted: self.call.count? })
    }

    fn ping(&mut self, stop: &AtomicBool) -> Result<(), PingError> {
        let ping = self.tally.pings();
        write_text(ping, &mut self.text);
        self.source.write_at(0, &self.text)?;
        if self.call.verify {
            self.sink.fill(0, self.text.len(), POISON)?;
        }
        let start = Instant::now();
        self.advertise(&place(&self.source))?;
        self.await_message(stop)?;
        self.advertise(&place(&self.sink))?;
        self.await_message(stop)?;
        let trip = start.elapsed();
        if self.call.verify {
            self.compare(ping)?;
        }
        self.tally.record(trip);
        self.show()
    }

    fn compare(&mut self, ping: u64) -> Result<(), PingError> {
        self.sink.read_at(0, &mut self.came)?;
        let pairs = self.came.iter().zip(&self.text).enumerate();
        match pairs.into_iter().find(|(_, (found, wanted))| found != wanted) {
            None => Ok(()),
            Some((offset, (&found, &wanted))) => Err(Fault::Wrong { ping, offset, found, wanted }.into()),
        }
    }

    fn show(&mut self) -> Result<(), PingError> {
        if self.call.verbose {
            self.sink.read_at(0, &mut self.came)?;
            say(format_args!("ping data: {}\n", shown(&self.came)));
        }
        Ok(())
    }

    fn advertise(&mut self, place: &Advertisement) -> Result<(), PingError> {
        if self.heard.iter().any(Option::is_some) {
            // It answers what nobody has asked yet.
            return Err(Fault::OutOfTurn.into());
        }
        self.told = false;
        let message = place.encode();
        Ok(self.end.ctx.post_send(self.qp, &SendWr::send_inline(0, &message))?)
    }

    /// Waits for the server's next message, which says nothing but that it is there. An answer acknowledges what it is one
    /// to, so our Send is complete by then.
    fn await_message(&mut self, stop: &AtomicBool) -> Result<(), PingError> {
        let bytes = self.wait(stop, |client| client.heard.iter_mut().find_map(Option::take))?;
        match bytes as usize {
            _ if !self.told => Err(Fault::OutOfTurn.into()),
            MESSAGE_BYTES => Ok(()),
            _ => Err(Fault::Length(bytes).into()),
        }
    }

    /// Polls until something is so. Fails when the connection has ended, or when it takes too long.
    fn wait<T>(
        &mut self,
        stop: &AtomicBool,
        mut is_so: impl FnMut(&mut Self) -> Option<T>,
    ) -> Result<T, PingError> {
        let start = Instant::now();
        let mut stopped = None;
        loop {
            let glance = self.end.turn();
            self.reap()?;
            if let Some(found) = is_so(self) {
                return Ok(found);
            }
            self.hear_news()?;
            if glance {
                self.look_around(start, stop, &mut stopped)?;
            }
        }
    }

    fn look_around(
        &mut self,
        start: Instant,
        stop: &AtomicBool,
        stopped: &mut Option<Instant>,
    ) -> Result<(), PingError> {
        if stop.load(Ordering::Relaxed) {
            let since = stopped.get_or_insert_with(Instant::now);
            // Nobody waits for a connection that is not wanted any more.
            if !self.up || since.elapsed() > STOP_WITHIN {
                return Err(PingError::Interrupted);
            }
        }
        let (ping, patience) = (self.tally.pings(), self.call.patience);
        if !self.end.is_linked() {
            return Err(Fault::LinkDown(ping).into());
        }
        if start.elapsed() > patience {
            return Err(Fault::Silent { ping, seconds: patience.as_secs() }.into());
        }
        Ok(())
    }

    fn reap(&mut self) -> Result<(), PingError> {
        let mut reaped = [Completion::default(); REAP];
        let count = self.end.ctx.poll_cq(self.end.cq, &mut reaped)?;
        for completion in reaped.iter().take(count) {
            match (completion.status, completion.opcode) {
                (CompletionStatus::Success, CompletionOpcode::Receive) => self.on_message(completion)?,
                (CompletionStatus::Success, CompletionOpcode::Send) => self.told = true,
                _ => failed(completion, self.tally.pings())?,
            }
        }
        Ok(())
    }

    fn on_message(&mut self, completion: &Completion) -> Result<(), PingError> {
        let slot = completion.wr_id as usize;
        let free = self.heard.iter_mut().find(|heard| heard.is_none());
        *free.ok_or(Fault::OutOfTurn)? = Some(completion.byte_len);
        Ok(self.post_receive(slot)?)
    }

    fn hear_news(&mut self) -> Result<(), PingError> {
        let ping = self.tally.pings();
        match self.end.ctx.poll_event() {
            Some(Event::Established { .. }) => self.up = true,
            Some(Event::Terminated { sent, terminate, .. }) => self.terminate = Some((sent, terminate)),
            Some(Event::Disconnected { reason, .. }) => {
                return Err(Fault::Left { ping, how: ended(reason, self.terminate) }.into());
            }
            Some(Event::ConnectFailed { reason, .. }) => return Err(Fault::Unanswered(reason).into()),
            Some(Event::Rejected { private_data, .. }) => {
                let why = shown(&private_data);
                let why = if why.is_empty() { why } else { format!(": {why}") };
                return Err(Fault::Rejected(why).into());
            }
            _ => {}
        }
        Ok(())
    }

    fn post_receive(&mut self, slot: usize) -> Result<(), ironwarp::VerbsError> {
        let addr = self.messages.base_to() + (slot * RECEIVE_BYTES) as u64;
        let place = ironwarp::Sge { addr, len: RECEIVE_BYTES as u32, lkey: self.messages.stag() };
        self.end.ctx.post_recv(self.qp, &RecvWr::new(slot as u64, &[place]))
    }

    /// Closes the connection where there is one, and gives the server time to hear it.
    fn leave(&mut self) {
        if self.end.is_linked() && self.end.ctx.disconnect(self.qp).is_ok() {
            let start = Instant::now();
            while start.elapsed() < CLOSE_WITHIN && self.end.is_linked() {
                self.end.turn();
                if matches!(self.end.ctx.poll_event(), Some(Event::Disconnected { .. })) {
                    break;
                }
            }
        }
        if self.end.is_linked() {
            self.end.turn_for(LEAVE_AFTER / 20);
            if self.end.is_shared() {
                std::thread::sleep(LEAVE_AFTER);
            }
        }
    }
}

fn place(region: &Region) -> Advertisement {
    let at = RemoteMemory { stag: region.stag(), tagged_offset: region.base_to() };
    Advertisement { at, bytes: region.len() as u32 }
}
