//! The client: advertises a text, the server reads it; advertises a buffer, the server writes it;
//! then compares both.

use core::net::SocketAddr;
use core::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ironwarp::{
    Access, Completion, CompletionOpcode, CompletionStatus, ConnectParams, Event, Nanos, QueuePair, Region,
    RemoteMemory, SendWr, Terminate,
};
use ironwarp_cli::print_stdout;

use crate::endpoint::{Endpoint, PingError, RECEIVES};
use crate::message::{
    Advertisement, Fault, MESSAGE_BYTES, check_completion, disconnect_text, printable, write_text,
};
use crate::stats::ClientStats;

const REAP: usize = 8;
/// The fill of a receive buffer: a byte that no text contains.
const FILL_BYTE: u8 = 0xff;
/// The time to wait for the peer of a memif.
const LINK_UP_TIMEOUT: Duration = Duration::from_secs(8);
/// The time that a started ping has to end after Ctrl-C.
const STOP_TIMEOUT: Duration = Duration::from_secs(1);
/// The time within which the connection closes.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);
/// The interval between two checks of a link that is not up yet.
const LINK_CHECK_INTERVAL: Duration = Duration::from_millis(1);
/// The time to poll after the connection's end, so that the last acknowledgement is sent.
const LINGER: Duration = Duration::from_millis(5);

/// The parameters of a client.
#[derive(Clone, Debug)]
pub struct ClientConfig {
    pub server: SocketAddr,
    /// Pings to make; `None`: until Ctrl-C.
    pub count: Option<u64>,
    /// Bytes of a text, 1 to [`TEXT_BYTES_MAX`](crate::TEXT_BYTES_MAX).
    pub bytes: u32,
    /// Compare every byte that comes back.
    pub verify: bool,
    pub verbose: bool,
    /// The time that the server may be silent.
    pub timeout: Duration,
    /// The delay before the first message; `None`: the configuration's.
    pub hold_off: Option<Duration>,
}

/// A client with its memory.
pub struct Client {
    endpoint: Endpoint,
    client_config: ClientConfig,
    qp: QueuePair,
    source: Region,
    sink: Region,
    messages: Region,
    /// The text to send, and the buffer for the returned one.
    text: Vec<u8>,
    received_text: Vec<u8>,
    /// Messages of the server that are not handled yet: their lengths.
    received_lens: [Option<u32>; RECEIVES],
    /// Whether the peer has the last message of this side.
    send_completed: bool,
    terminate: Option<(bool, Terminate)>,
    up: bool,
    stats: ClientStats,
}

impl Client {
    /// Creates everything but the connection.
    pub fn new(mut endpoint: Endpoint, client_config: ClientConfig) -> Result<Self, PingError> {
        let room = |endpoint: &Endpoint, access| {
            endpoint.ctx.register(endpoint.pd, vec![0; client_config.bytes as usize], access)
        };
        let source = room(&endpoint, Access::REMOTE_READ)?;
        let sink = room(&endpoint, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
        let (qp, messages) = endpoint.create_qp()?;
        let (text, received_text) =
            (vec![0; client_config.bytes as usize], vec![0; client_config.bytes as usize]);
        let stats = ClientStats::new(client_config.bytes, client_config.verify);
        Ok(Client {
            endpoint,
            client_config,
            qp,
            source,
            sink,
            messages,
            text,
            received_text,
            received_lens: [None; RECEIVES],
            send_completed: false,
            terminate: None,
            up: false,
            stats,
        })
    }

    /// Pings until the requested number is done, or `stop` is set.
    pub fn run(&mut self, stop: &AtomicBool) -> Result<(), PingError> {
        let outcome = self.connect(stop).and_then(|()| {
            self.stats.start();
            let outcome = self.pings(stop);
            self.stats.stop();
            outcome
        });
        self.disconnect();
        match outcome {
            Err(error)
                if error.is_interrupted() || (stop.load(Ordering::Relaxed) && error.is_disconnect()) =>
            {
                self.stopped().map_or(Ok(()), Err)
            }
            outcome => outcome,
        }
    }

    pub fn stats(&self) -> &ClientStats {
        &self.stats
    }

    fn connect(&mut self, stop: &AtomicBool) -> Result<(), PingError> {
        let start = Instant::now();
        while !self.endpoint.is_linked() {
            if stop.load(Ordering::Relaxed) {
                return Err(PingError::Interrupted);
            }
            if start.elapsed() > LINK_UP_TIMEOUT {
                return Err(PingError::NoLink);
            }
            std::thread::sleep(LINK_CHECK_INTERVAL);
        }
        let first_fpdu_holdoff = self.client_config.hold_off.map(|wait| Nanos(wait.as_nanos() as u64));
        let params = ConnectParams { first_fpdu_holdoff, ..ConnectParams::default() };
        self.endpoint.ctx.connect_with(self.qp, self.client_config.server, &params)?;
        self.wait(stop, |client| client.up.then_some(()))
    }

    fn pings(&mut self, stop: &AtomicBool) -> Result<(), PingError> {
        while self.client_config.count.is_none_or(|count| self.stats.pings() < count) {
            if stop.load(Ordering::Relaxed) {
                return Err(PingError::Interrupted);
            }
            self.ping(stop)?;
        }
        Ok(())
    }

    /// Ctrl-C is the normal end of unlimited pings, at any point. A limited number of pings fails
    /// by it.
    #[cold]
    fn stopped(&self) -> Option<PingError> {
        Some(PingError::Stopped { came: self.stats.pings(), wanted: self.client_config.count? })
    }

    fn ping(&mut self, stop: &AtomicBool) -> Result<(), PingError> {
        let ping = self.stats.pings();
        write_text(ping, &mut self.text);
        self.source.write_at(0, &self.text)?;
        if self.client_config.verify {
            self.sink.fill(0, self.text.len(), FILL_BYTE)?;
        }
        let start = Instant::now();
        self.advertise(&advertisement(&self.source))?;
        self.await_message(stop)?;
        self.advertise(&advertisement(&self.sink))?;
        self.await_message(stop)?;
        let rtt = start.elapsed();
        if self.client_config.verify {
            self.compare(ping)?;
        }
        self.stats.record(rtt);
        self.show()
    }

    fn compare(&mut self, ping: u64) -> Result<(), PingError> {
        self.sink.read_at(0, &mut self.received_text)?;
        let pairs = self.received_text.iter().zip(&self.text).enumerate();
        match pairs.into_iter().find(|(_, (found, wanted))| found != wanted) {
            None => Ok(()),
            Some((offset, (&found, &wanted))) => Err(Fault::Mismatch { ping, offset, found, wanted }.into()),
        }
    }

    fn show(&mut self) -> Result<(), PingError> {
        if self.client_config.verbose {
            self.sink.read_at(0, &mut self.received_text)?;
            print_stdout(format_args!("ping data: {}\n", printable(&self.received_text)));
        }
        Ok(())
    }

    fn advertise(&mut self, advertisement: &Advertisement) -> Result<(), PingError> {
        if self.received_lens.iter().any(Option::is_some) {
            // A reply without a request.
            return Err(Fault::UnexpectedMessage.into());
        }
        self.send_completed = false;
        let message = advertisement.encode();
        Ok(self.endpoint.ctx.post_send(self.qp, &SendWr::send_inline(0, &message))?)
    }

    /// Waits for the server's next message, which has no contents. A reply implies an
    /// acknowledgement, so our Send is complete by then.
    fn await_message(&mut self, stop: &AtomicBool) -> Result<(), PingError> {
        let bytes = self.wait(stop, |client| client.received_lens.iter_mut().find_map(Option::take))?;
        match bytes as usize {
            _ if !self.send_completed => Err(Fault::UnexpectedMessage.into()),
            MESSAGE_BYTES => Ok(()),
            _ => Err(Fault::Length(bytes).into()),
        }
    }

    /// Polls until a condition holds. Fails if the connection has ended or the time is over.
    fn wait<T>(
        &mut self,
        stop: &AtomicBool,
        mut condition: impl FnMut(&mut Self) -> Option<T>,
    ) -> Result<T, PingError> {
        let start = Instant::now();
        let mut stopped = None;
        loop {
            // Before the poll, which may sleep.
            self.reap()?;
            if let Some(found) = condition(self) {
                return Ok(found);
            }
            self.poll_events()?;
            if self.endpoint.poll() {
                self.check_timeouts(start, stop, &mut stopped)?;
            }
        }
    }

    fn check_timeouts(
        &mut self,
        start: Instant,
        stop: &AtomicBool,
        stopped: &mut Option<Instant>,
    ) -> Result<(), PingError> {
        if stop.load(Ordering::Relaxed) {
            let since = stopped.get_or_insert_with(Instant::now);
            // Does not wait for a connection that is no longer wanted.
            if !self.up || since.elapsed() > STOP_TIMEOUT {
                return Err(PingError::Interrupted);
            }
        }
        let (ping, timeout) = (self.stats.pings(), self.client_config.timeout);
        if !self.endpoint.is_linked() {
            return Err(Fault::LinkDown(ping).into());
        }
        if start.elapsed() > timeout {
            return Err(Fault::Timeout { ping, seconds: timeout.as_secs() }.into());
        }
        Ok(())
    }

    fn reap(&mut self) -> Result<(), PingError> {
        let mut reaped = [Completion::default(); REAP];
        let count = self.endpoint.ctx.poll_cq(self.endpoint.cq, &mut reaped)?;
        for completion in reaped.iter().take(count) {
            match (completion.status, completion.opcode) {
                (CompletionStatus::Success, CompletionOpcode::Receive) => self.on_message(completion)?,
                (CompletionStatus::Success, CompletionOpcode::Send) => self.send_completed = true,
                _ => check_completion(completion, self.stats.pings())?,
            }
        }
        Ok(())
    }

    fn on_message(&mut self, completion: &Completion) -> Result<(), PingError> {
        let slot = completion.wr_id as usize;
        let free = self.received_lens.iter_mut().find(|received_lens| received_lens.is_none());
        *free.ok_or(Fault::UnexpectedMessage)? = Some(completion.byte_len);
        Ok(self.endpoint.post_receive(self.qp, &self.messages, slot)?)
    }

    fn poll_events(&mut self) -> Result<(), PingError> {
        let ping = self.stats.pings();
        match self.endpoint.ctx.poll_event() {
            Some(Event::Established { .. }) => self.up = true,
            Some(Event::Terminated { sent, terminate, .. }) => self.terminate = Some((sent, terminate)),
            Some(Event::Disconnected { reason, .. }) => {
                return Err(Fault::Disconnected { ping, how: disconnect_text(reason, self.terminate) }.into());
            }
            Some(Event::ConnectFailed { reason, .. }) => return Err(Fault::ConnectFailed(reason).into()),
            Some(Event::Rejected { private_data, .. }) => {
                let why = printable(&private_data);
                let why = if why.is_empty() { why } else { format!(": {why}") };
                return Err(Fault::Rejected(why).into());
            }
            _ => {}
        }
        Ok(())
    }

    /// Closes the connection, if there is one, and gives the server time to receive the FIN.
    fn disconnect(&mut self) {
        if self.endpoint.is_linked() && self.endpoint.ctx.disconnect(self.qp).is_ok() {
            let start = Instant::now();
            while start.elapsed() < CLOSE_TIMEOUT && self.endpoint.is_linked() {
                self.endpoint.poll();
                if matches!(self.endpoint.ctx.poll_event(), Some(Event::Disconnected { .. })) {
                    break;
                }
            }
        }
        if self.endpoint.is_linked() {
            self.endpoint.poll_for(LINGER);
        }
    }
}

fn advertisement(region: &Region) -> Advertisement {
    let at = RemoteMemory { stag: region.stag(), tagged_offset: region.base_to() };
    Advertisement { at, bytes: region.len() as u32 }
}
