//! One end of a control stream.
//!
//! A thread reads messages and detects the end of the stream while this end polls its device. It
//! sleeps in the kernel while no message arrives, which is the case during a slice.
//!
//! At most [`QUEUE_MAX`] messages wait in each direction. A socket is not read further then. What
//! comes over a carrier is from another machine: it gets no credits while [`BACKLOG`] messages
//! wait, and an end that sends more all the same, or that does not take replies, loses the channel.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TryRecvError, sync_channel};
use std::thread;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::{Error, Result};

/// Messages that may wait in one direction. An end sends a request after the reply to the last one,
/// but for the end of a slice.
const QUEUE_MAX: usize = 64;
/// Received messages that wait after which a peer gets no credits.
const BACKLOG: usize = 4;

/// One end of a control stream that receives messages of type `In`.
#[derive(Debug)]
pub struct Channel<In> {
    out: Output,
    messages: Receiver<In>,
    /// Received messages that wait, as both threads know it.
    waiting: Arc<AtomicUsize>,
}

/// The destination of messages.
#[derive(Debug)]
enum Output {
    Socket(UnixStream),
    Carrier(SyncSender<String>),
}

/// The transport side of a channel without a socket: messages to carry, and messages that were
/// carried.
pub struct Carrier {
    outbox: Receiver<String>,
    /// `None` after the end of the stream.
    on_line: Option<Box<OnLine>>,
    on_close: Option<Box<dyn FnOnce() + Send>>,
    waiting: Arc<AtomicUsize>,
}

/// Receives a line, and returns whether it was a valid message.
type OnLine = dyn FnMut(&[u8]) -> bool + Send;

impl Carrier {
    /// The next message to carry, with its line feed.
    pub fn next_line(&mut self) -> Option<String> {
        self.outbox.try_recv().ok()
    }

    /// Whether so many messages wait that the peer should send no more.
    pub fn is_backlogged(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) >= BACKLOG
    }

    /// Delivers a line. Returns false if it is not a valid message, one too many, or the channel is
    /// gone.
    pub fn on_line(&mut self, line: &[u8]) -> bool {
        self.on_line.as_mut().is_some_and(|on_line| on_line(line))
    }

    /// Reports the end of the stream to the channel.
    pub fn close(&mut self) {
        self.on_line = None;
        if let Some(on_close) = self.on_close.take() {
            on_close();
        }
    }
}

impl Drop for Carrier {
    fn drop(&mut self) {
        self.close();
    }
}

impl<In: DeserializeOwned + Send + 'static> Channel<In> {
    /// Starts the reading thread of a connected socket. The thread passes every message to
    /// `on_message`, which returns those that are to be received, and calls `on_close` at the end
    /// of the stream.
    pub fn new(
        socket: UnixStream,
        on_message: impl FnMut(In) -> Option<In> + Send + 'static,
        on_close: impl FnOnce() + Send + 'static,
    ) -> Result<Self> {
        let reader = BufReader::new(socket.try_clone()?);
        let (mut on_line, messages, waiting) = line_handler(on_message, SyncSender::send);
        thread::Builder::new().name("control".into()).spawn(move || {
            // An invalid line comes from some other program; it ends the stream too.
            let _ = reader.split(b'\n').find(|line| !line.as_ref().is_ok_and(|line| on_line(line)));
            on_close();
        })?;
        Ok(Channel { out: Output::Socket(socket), messages, waiting })
    }

    /// Creates a channel over a carrier instead of a socket. The two functions are those of
    /// [`Channel::new`], but the thread of the carrier calls them.
    pub fn over_carrier(
        on_message: impl FnMut(In) -> Option<In> + Send + 'static,
        on_close: impl FnOnce() + Send + 'static,
    ) -> (Self, Carrier) {
        let (out, outbox) = sync_channel(QUEUE_MAX);
        let (on_line, messages, waiting) = line_handler(on_message, |queue, message| queue.try_send(message));
        let (on_line, on_close) = (Some(Box::new(on_line) as Box<_>), Some(Box::new(on_close) as Box<_>));
        let carrier = Carrier { outbox, on_line, on_close, waiting: waiting.clone() };
        (Channel { out: Output::Carrier(out), messages, waiting }, carrier)
    }

    pub fn send(&self, message: &impl Serialize) -> Result<()> {
        let line = serde_json::to_string(message)? + "\n";
        let sent = match &self.out {
            Output::Socket(socket) => Write::write_all(&mut &*socket, line.as_bytes()).is_ok(),
            // A peer that takes no replies is as one that is gone.
            Output::Carrier(out) => out.try_send(line).is_ok(),
        };
        if sent { Ok(()) } else { Err(Error::Gone) }
    }

    /// Waits for the next message.
    pub fn recv(&self) -> Result<In> {
        self.messages.recv().map_err(|_| Error::Gone).map(|message| self.count(message))
    }

    /// Waits for the next message, at most for `limit`.
    pub fn recv_within(&self, limit: Duration) -> Result<In> {
        match self.messages.recv_timeout(limit) {
            Ok(message) => Ok(self.count(message)),
            Err(RecvTimeoutError::Timeout) => Err(Error::Silent(limit)),
            Err(RecvTimeoutError::Disconnected) => Err(Error::Gone),
        }
    }

    /// Returns the next message if one has arrived.
    pub fn try_recv(&self) -> Result<Option<In>> {
        match self.messages.try_recv() {
            Ok(message) => Ok(Some(self.count(message))),
            Err(TryRecvError::Empty) => Ok(None),
            Err(TryRecvError::Disconnected) => Err(Error::Gone),
        }
    }

    /// Counts a message that no longer waits.
    fn count(&self, message: In) -> In {
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        message
    }
}

/// Returns a function that parses lines, the queue of the messages in them, to which `send` adds,
/// and their number. The function returns false for an invalid line, if the queue is gone, and if a
/// message is not added.
fn line_handler<In: DeserializeOwned + Send + 'static, E: 'static>(
    mut on_message: impl FnMut(In) -> Option<In> + Send + 'static,
    send: fn(&SyncSender<In>, In) -> Result<(), E>,
) -> (impl FnMut(&[u8]) -> bool + Send + 'static, Receiver<In>, Arc<AtomicUsize>) {
    let (queue, messages) = sync_channel(QUEUE_MAX);
    let waiting = Arc::new(AtomicUsize::new(0));
    let count = waiting.clone();
    let on_line = move |line: &[u8]| {
        let Ok(message) = serde_json::from_slice(line) else { return false };
        let Some(message) = on_message(message) else { return true };
        // Before the other thread can take the message.
        count.fetch_add(1, Ordering::Relaxed);
        let is_queued = send(&queue, message).is_ok();
        count.fetch_sub(usize::from(!is_queued), Ordering::Relaxed);
        is_queued
    };
    (on_line, messages, waiting)
}

impl<In> Drop for Channel<In> {
    /// Ends the reading thread too, which has the socket open.
    fn drop(&mut self) {
        if let Output::Socket(socket) = &self.out {
            let _ = socket.shutdown(std::net::Shutdown::Both);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    fn pair() -> (Channel<u32>, UnixStream) {
        let (ours, theirs) = UnixStream::pair().expect("a socket pair");
        (Channel::new(ours, Some, || {}).expect("a thread"), theirs)
    }

    #[test]
    fn messages_arrive_in_order() {
        let (channel, theirs) = pair();
        (&theirs).write_all(b"1\n2\n").expect("room");
        assert_eq!((channel.recv(), channel.recv()), (Ok(1), Ok(2)));
        assert_eq!(channel.try_recv(), Ok(None));
    }

    #[test]
    fn the_end_of_the_stream_is_reported() {
        let (ours, theirs) = UnixStream::pair().expect("a socket pair");
        let (closed_tx, closed_rx) = mpsc::channel();
        let on_close = move || closed_tx.send(()).expect("the test waits");
        let channel: Channel<u32> = Channel::new(ours, Some, on_close).expect("a thread");
        drop(theirs);
        closed_rx.recv().expect("the end is reported");
        assert_eq!(channel.recv(), Err(Error::Gone));
        assert_eq!(channel.send(&1), Err(Error::Gone));
    }

    #[test]
    fn an_invalid_line_ends_the_stream() {
        let (channel, theirs) = pair();
        (&theirs).write_all(b"GET / HTTP/1.1\n").expect("room");
        assert_eq!(channel.recv(), Err(Error::Gone));
    }

    #[test]
    fn a_carrier_rejects_invalid_lines_and_reports_its_end() {
        let (closed_tx, closed_rx) = mpsc::channel();
        let (channel, mut carrier) =
            Channel::<u32>::over_carrier(Some, move || closed_tx.send(()).expect("the test waits"));
        channel.send(&7).expect("carried");
        assert_eq!(carrier.next_line().as_deref(), Some("7\n"));
        assert!(carrier.on_line(b"8\n") && !carrier.on_line(b"GET /\n"));
        assert_eq!(channel.recv(), Ok(8));
        drop(carrier);
        closed_rx.recv().expect("the end is reported");
        assert_eq!(channel.recv(), Err(Error::Gone));
        assert_eq!(channel.send(&1), Err(Error::Gone));
    }

    #[test]
    fn messages_that_nobody_receives_stop_the_credits_and_then_end_the_channel() {
        let (channel, mut carrier) = Channel::<u32>::over_carrier(Some, || {});
        let delivered = (0..1000).filter(|_| carrier.on_line(b"8\n")).count();
        assert_eq!(delivered, QUEUE_MAX);
        assert!(carrier.is_backlogged());
        (0..QUEUE_MAX).for_each(|_| assert_eq!(channel.recv(), Ok(8)));
        assert_eq!(channel.try_recv(), Ok(None));
    }

    #[test]
    fn a_peer_gets_credits_again_when_its_messages_were_received() {
        let (channel, mut carrier) = Channel::<u32>::over_carrier(Some, || {});
        for _ in 0..BACKLOG {
            assert!(!carrier.is_backlogged() && carrier.on_line(b"8\n"));
        }
        assert!(carrier.is_backlogged());
        assert_eq!(channel.try_recv(), Ok(Some(8)));
        assert!(!carrier.is_backlogged());
    }

    #[test]
    fn replies_that_nobody_takes_end_the_channel() {
        let (channel, mut carrier) = Channel::<u32>::over_carrier(Some, || {});
        assert_eq!((0..1000).filter(|_| channel.send(&7).is_ok()).count(), QUEUE_MAX);
        assert_eq!(carrier.next_line().as_deref(), Some("7\n"));
        assert_eq!(channel.send(&7), Ok(()));
    }

    #[test]
    fn a_timeout_differs_from_the_end_of_the_stream() {
        let (channel, _theirs) = pair();
        assert_eq!(
            channel.recv_within(Duration::from_millis(1)),
            Err(Error::Silent(Duration::from_millis(1)))
        );
    }

    #[test]
    fn a_message_handled_on_the_reading_thread_is_not_queued() {
        let (ours, theirs) = UnixStream::pair().expect("a socket pair");
        let keep_odd = |n: u32| (!n.is_multiple_of(2)).then_some(n);
        let channel = Channel::new(ours, keep_odd, || {}).expect("a thread");
        (&theirs).write_all(b"2\n3\n").expect("room");
        assert_eq!(channel.recv(), Ok(3));
    }
}
