//! ironwarp for asynchronous Rust, on tokio.
//!
//! | type | what it waits for |
//! | --- | --- |
//! | [`AsyncContext`] | events of connections, and decisions about connection requests |
//! | [`AsyncCq`] | completions of one queue |
//! | [`run_worker`] | whatever a worker has to be polled for, with `core.idle = "sleep"` |
//!
//! Everything else is the crate `ironwarp`: an [`AsyncContext`] is its [`Context`] with two calls
//! more. Nothing here polls in a loop: a task waits for the descriptors of the context, of its
//! queues and of the worker, which tokio watches. A completion costs the wake-up of a task more
//! than polling does; a program that needs the shortest latency polls.
//!
//! A worker runs as a task ([`run_worker`]), or on a thread of the library
//! ([`Worker::spawn`](ironwarp::Worker::spawn)). `examples/echo.rs` is a whole program.
#![forbid(unsafe_code)]

mod cq;
mod descriptor;
mod worker;

use std::collections::VecDeque;
use std::io;
use std::ops::{Deref, DerefMut};
use std::pin::pin;
use std::task::{Context as TaskContext, Poll, ready};

use ironwarp::{Completion, ConnectionRequest, Context, Event};

pub use cq::AsyncCq;
use descriptor::Descriptor;
pub use worker::run_worker;

/// A context whose events and completions are futures. Used by one task at a time, as a [`Context`]
/// is by one thread; it may be sent to another task.
pub struct AsyncContext {
    context: Context,
    events: Descriptor,
    /// Events that arrived while a program decided about a request.
    kept: VecDeque<Event>,
}

/// Events that are kept while a program decides. Further ones stay with the library until it has
/// decided.
const KEPT_MAX: usize = 1024;

impl AsyncContext {
    /// Registers the descriptor of a context's events with tokio.
    ///
    /// # Errors
    ///
    /// The system's error if it refuses the descriptor.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime with its I/O driver enabled.
    pub fn new(context: Context) -> io::Result<Self> {
        let events = Descriptor::of(context.event_fd())?;
        Ok(AsyncContext { context, events, kept: VecDeque::new() })
    }

    /// Returns the context itself. Drops the events that [`AsyncContext::decide`] has kept.
    pub fn into_inner(self) -> Context {
        self.context
    }

    /// Waits for the next event. Cancel safe: a dropped future has taken no event.
    ///
    /// # Errors
    ///
    /// The system's error if the descriptor cannot be read.
    pub async fn event(&mut self) -> io::Result<Event> {
        std::future::poll_fn(|task| self.poll_next_event(task)).await
    }

    /// As [`AsyncContext::event`], for futures that wait for several things of one context.
    pub fn poll_next_event(&mut self, task: &mut TaskContext<'_>) -> Poll<io::Result<Event>> {
        match self.kept.pop_front() {
            Some(event) => Poll::Ready(Ok(event)),
            None => self.poll_arrival(task),
        }
    }

    /// Waits for `decision`, which the answer to a connection request depends on: a look-up, a
    /// queue of the program's. Returns its output, or `None` as soon as the request has ended
    /// ([`Event::RequestEnded`]): the peer has left, or its time is over, and the answer would have
    /// no effect. Other events are kept for [`AsyncContext::event`], in order. Cancel safe: a
    /// dropped future has taken no event but the end of its request.
    ///
    /// ```no_run
    /// # use ironwarp::{ConnectionRequest, QueuePair};
    /// # use ironwarp_tokio::AsyncContext;
    /// # async fn is_welcome() -> bool { true }
    /// # async fn answer(
    /// #     ctx: &mut AsyncContext, request: ConnectionRequest, qp: QueuePair,
    /// # ) -> Result<(), Box<dyn std::error::Error>> {
    /// match ctx.decide(&request, is_welcome()).await? {
    ///     Some(true) => ctx.accept(request, qp, b"welcome")?,
    ///     Some(false) => ctx.reject(request, b"not today")?,
    ///     // Nobody waits for the answer any more.
    ///     None => {}
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// The system's error if the descriptor cannot be read.
    pub async fn decide<F: Future>(
        &mut self,
        request: &ConnectionRequest,
        decision: F,
    ) -> io::Result<Option<F::Output>> {
        let is_end =
            |event: &Event| matches!(event, Event::RequestEnded { request: ended } if ended == request);
        if let Some(at) = self.kept.iter().position(is_end) {
            self.kept.remove(at);
            return Ok(None);
        }
        let mut decision = pin!(decision);
        std::future::poll_fn(|task| {
            while self.kept.len() < KEPT_MAX {
                match self.poll_arrival(task)? {
                    Poll::Ready(event) if is_end(&event) => return Poll::Ready(Ok(None)),
                    Poll::Ready(event) => self.kept.push_back(event),
                    Poll::Pending => break,
                }
            }
            decision.as_mut().poll(task).map(|decided| Ok(Some(decided)))
        })
        .await
    }

    /// Waits for an event that was not kept.
    fn poll_arrival(&mut self, task: &mut TaskContext<'_>) -> Poll<io::Result<Event>> {
        loop {
            if let Some(event) = self.context.poll_event() {
                return Poll::Ready(Ok(event));
            }
            self.context.arm_events();
            // Whatever arrived before the arming wakes nobody.
            if let Some(event) = self.context.poll_event() {
                return Poll::Ready(Ok(event));
            }
            ready!(self.events.poll_reset(task))?;
        }
    }

    /// Waits until `cq` has completions and moves them into `into`. Returns their number, at least
    /// 1 unless `into` is empty. Cancel safe: a dropped future has taken no completion.
    ///
    /// # Errors
    ///
    /// - An error of kind [`io::ErrorKind::InvalidInput`] if `cq` is not a queue of this context.
    /// - The system's error if the descriptor cannot be read.
    pub async fn completions(&mut self, cq: &AsyncCq, into: &mut [Completion]) -> io::Result<usize> {
        std::future::poll_fn(|task| self.poll_completions(task, cq, into)).await
    }

    /// As [`AsyncContext::completions`], for futures that wait for several things of one context:
    ///
    /// ```no_run
    /// # use ironwarp_tokio::{AsyncContext, AsyncCq};
    /// # use std::task::Poll;
    /// enum Next {
    ///     Event(ironwarp::Event),
    ///     Completions(usize),
    /// }
    /// # async fn next(ctx: &mut AsyncContext, cq: &AsyncCq, into: &mut [ironwarp::Completion]) -> std::io::Result<Next> {
    /// std::future::poll_fn(|task| {
    ///     if let Poll::Ready(count) = ctx.poll_completions(task, cq, into) {
    ///         return Poll::Ready(count.map(Next::Completions));
    ///     }
    ///     ctx.poll_next_event(task).map(|event| event.map(Next::Event))
    /// })
    /// .await
    /// # }
    /// ```
    pub fn poll_completions(
        &mut self,
        task: &mut TaskContext<'_>,
        cq: &AsyncCq,
        into: &mut [Completion],
    ) -> Poll<io::Result<usize>> {
        if into.is_empty() {
            return Poll::Ready(Ok(0));
        }
        loop {
            let reaped = cq.reap(&mut self.context, into)?;
            if reaped > 0 {
                return Poll::Ready(Ok(reaped));
            }
            cq.arm(&mut self.context)?;
            let reaped = cq.reap(&mut self.context, into)?;
            if reaped > 0 {
                return Poll::Ready(Ok(reaped));
            }
            ready!(cq.poll_reset(task))?;
        }
    }
}

impl Deref for AsyncContext {
    type Target = Context;

    fn deref(&self) -> &Context {
        &self.context
    }
}

impl DerefMut for AsyncContext {
    fn deref_mut(&mut self) -> &mut Context {
        &mut self.context
    }
}
