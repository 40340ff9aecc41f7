//! One end of a control stream.
//!
//! A thread reads messages and detects the end of the stream while this end polls its device. It sleeps in the kernel
//! while no message arrives, which is the case during a slice.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::thread;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Why a message could not be sent or received.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ChannelError {
    /// The other end closed the stream.
    #[error("the other end closed the connection")]
    Closed,
    /// No message arrived in time.
    #[error("the other end does not respond")]
    TimedOut,
}

/// What to do with a message that the reading thread passed to the handler.
pub enum Dispatch<T> {
    /// Queue it for `recv`.
    Queue(T),
    /// Nothing: the handler processed it.
    Handled,
}

/// One end of a control stream that receives messages of type `In`.
#[derive(Debug)]
pub struct Channel<In> {
    out: Output,
    inbox: Receiver<In>,
}

/// The destination of messages.
#[derive(Debug)]
enum Output {
    Socket(UnixStream),
    Carrier(Sender<String>),
}

/// The transport side of a channel without a socket: messages to carry, and messages that were carried.
pub struct Carrier {
    outbox: Receiver<String>,
    callbacks: Option<CarrierCallbacks>,
}

/// Receives a line; returns whether it was a valid message.
type OnLine = dyn FnMut(&[u8]) -> bool + Send;

struct CarrierCallbacks {
    on_line: Box<OnLine>,
    on_close: Box<dyn FnOnce() + Send>,
}

impl Carrier {
    /// Returns the next message to carry, with its line feed.
    pub fn next_line(&mut self) -> Option<String> {
        self.outbox.try_recv().ok()
    }

    /// Delivers a line. Returns false if it is not a valid message or the channel is gone.
    pub fn on_line(&mut self, line: &[u8]) -> bool {
        self.callbacks.as_mut().is_some_and(|callbacks| (callbacks.on_line)(line))
    }

    /// Reports the end of the stream to the channel.
    pub fn close(&mut self) {
        if let Some(CarrierCallbacks { on_line, on_close }) = self.callbacks.take() {
            drop(on_line);
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
    /// Starts the reading thread of a connected socket. The thread passes every message to `on_message`, and calls
    /// `on_close` at the end of the stream.
    pub fn new(
        socket: UnixStream,
        on_message: impl FnMut(In) -> Dispatch<In> + Send + 'static,
        on_close: impl FnOnce() + Send + 'static,
    ) -> std::io::Result<Self> {
        let reader = BufReader::new(socket.try_clone()?);
        let (mut on_line, inbox) = line_handler(on_message);
        thread::Builder::new().name("control".into()).spawn(move || {
            // An invalid line comes from some other program; it ends the stream too.
            let _ = reader.split(b'\n').find(|line| !line.as_ref().is_ok_and(|line| on_line(line)));
            on_close();
        })?;
        Ok(Channel { out: Output::Socket(socket), inbox })
    }

    /// Creates a channel over a carrier instead of a socket. The two functions are those of [`Channel::new`], but the
    /// thread of the carrier calls them.
    pub fn over_carrier(
        on_message: impl FnMut(In) -> Dispatch<In> + Send + 'static,
        on_close: impl FnOnce() + Send + 'static,
    ) -> (Self, Carrier) {
        let ((out, outbox), (on_line, inbox)) = (channel(), line_handler(on_message));
        let callbacks = CarrierCallbacks { on_line: Box::new(on_line), on_close: Box::new(on_close) };
        (Channel { out: Output::Carrier(out), inbox }, Carrier { outbox, callbacks: Some(callbacks) })
    }

    /// Sends a message.
    pub fn send(&self, message: &impl Serialize) -> Result<(), ChannelError> {
        let mut line = serde_json::to_string(message).map_err(|_| ChannelError::Closed)?;
        line.push('\n');
        match &self.out {
            Output::Socket(socket) => {
                let mut socket = socket;
                socket.write_all(line.as_bytes()).map_err(|_| ChannelError::Closed)
            }
            Output::Carrier(out) => out.send(line).map_err(|_| ChannelError::Closed),
        }
    }

    /// Waits for the next message.
    pub fn recv(&self) -> Result<In, ChannelError> {
        self.inbox.recv().map_err(|_| ChannelError::Closed)
    }

    /// Waits for the next message, at most for `limit`.
    pub fn recv_within(&self, limit: Duration) -> Result<In, ChannelError> {
        self.inbox.recv_timeout(limit).map_err(|error| match error {
            RecvTimeoutError::Timeout => ChannelError::TimedOut,
            RecvTimeoutError::Disconnected => ChannelError::Closed,
        })
    }

    /// Returns the next message if one has arrived.
    pub fn try_recv(&self) -> Result<Option<In>, ChannelError> {
        match self.inbox.try_recv() {
            Ok(message) => Ok(Some(message)),
            Err(TryRecvError::Empty) => Ok(None),
            Err(TryRecvError::Disconnected) => Err(ChannelError::Closed),
        }
    }
}

/// Returns a function that parses lines and the queue of the messages in them. The function returns false for an invalid
/// line, and if the queue is gone.
fn line_handler<In: DeserializeOwned + Send + 'static>(
    mut on_message: impl FnMut(In) -> Dispatch<In> + Send + 'static,
) -> (impl FnMut(&[u8]) -> bool + Send + 'static, Receiver<In>) {
    let (queue, inbox) = channel();
    let on_line = move |line: &[u8]| match serde_json::from_slice(line).map(&mut on_message) {
        Ok(Dispatch::Queue(message)) => queue.send(message).is_ok(),
        Ok(Dispatch::Handled) => true,
        Err(_) => false,
    };
    (on_line, inbox)
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
        (Channel::new(ours, Dispatch::Queue, || {}).expect("a thread"), theirs)
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
        let channel: Channel<u32> = Channel::new(ours, Dispatch::Queue, on_close).expect("a thread");
        drop(theirs);
        closed_rx.recv().expect("the end is reported");
        assert_eq!(channel.recv(), Err(ChannelError::Closed));
        assert_eq!(channel.send(&1), Err(ChannelError::Closed));
    }

    #[test]
    fn an_invalid_line_ends_the_stream() {
        let (channel, theirs) = pair();
        (&theirs).write_all(b"GET / HTTP/1.1\n").expect("room");
        assert_eq!(channel.recv(), Err(ChannelError::Closed));
    }

    #[test]
    fn a_carrier_rejects_invalid_lines_and_reports_its_end() {
        let (closed_tx, closed_rx) = mpsc::channel();
        let (channel, mut carrier) = Channel::<u32>::over_carrier(Dispatch::Queue, move || {
            closed_tx.send(()).expect("the test waits")
        });
        channel.send(&7).expect("carried");
        assert_eq!(carrier.next_line().as_deref(), Some("7\n"));
        assert!(carrier.on_line(b"8\n") && !carrier.on_line(b"GET /\n"));
        assert_eq!(channel.recv(), Ok(8));
        drop(carrier);
        closed_rx.recv().expect("the end is reported");
        assert_eq!(channel.recv(), Err(ChannelError::Closed));
        assert_eq!(channel.send(&1), Err(ChannelError::Closed));
    }

    #[test]
    fn a_timeout_differs_from_the_end_of_the_stream() {
        let (channel, _theirs) = pair();
        assert_eq!(channel.recv_within(Duration::from_millis(1)), Err(ChannelError::TimedOut));
    }

    #[test]
    fn a_message_handled_on_the_reading_thread_is_not_queued() {
        let (ours, theirs) = UnixStream::pair().expect("a socket pair");
        let keep_odd = |n: u32| if n.is_multiple_of(2) { Dispatch::Handled } else { Dispatch::Queue(n) };
        let channel = Channel::new(ours, keep_odd, || {}).expect("a thread");
        (&theirs).write_all(b"2\n3\n").expect("room");
        assert_eq!(channel.recv(), Ok(3));
    }
}
