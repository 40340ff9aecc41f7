//! Connection requests of all clients of one listener.
//!
//! Whichever thread looks first reads the events of the listening context. It keeps what belongs to
//! the client of another thread for that thread. A client is known by its address, because its
//! stack has one of its own. A peer that cannot be served is rejected at once with the reason. What
//! waits here is bounded by `limits.half_open` of the stack.
//!
//! All clients' threads take the lock, so nothing is written under it: lines wait for the thread of
//! the server, a few of them.

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Mutex, MutexGuard, PoisonError};

use ironwarp::{ConnectionRequest, Context, Event};

use super::super::control_channel::{check_greeting, is_greeting};

/// A client that is admitted and not served yet.
pub struct Newcomer {
    pub request: ConnectionRequest,
    pub remote: SocketAddr,
}

/// The requests of all clients.
pub struct Arrivals(Mutex<State>);

struct State {
    ctx: Context,
    /// Clients that may be admitted at a time.
    clients_max: usize,
    /// Requests of the admitted clients, by address.
    waiting: HashMap<IpAddr, VecDeque<Event>>,
    newcomers: VecDeque<Newcomer>,
    /// Clients that were rejected because the server was busy.
    busy: u64,
    /// Lines about peers that were turned away, which nobody has written yet.
    lines: Vec<String>,
}

/// Lines that wait, at most. The last one stands for all that follow.
const LINES_MAX: usize = 16;

impl Arrivals {
    /// Takes the listening context. At most `clients_max` clients are admitted at a time.
    pub fn new(ctx: Context, clients_max: usize) -> Self {
        let (waiting, newcomers) = (HashMap::new(), VecDeque::new());
        Arrivals(Mutex::new(State { ctx, clients_max, waiting, newcomers, busy: 0, lines: Vec::new() }))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the next request of an admitted client.
    pub fn next_of(&self, client: IpAddr) -> Option<Event> {
        let mut state = self.lock();
        state.sort_events();
        state.waiting.get_mut(&client)?.pop_front()
    }

    /// Admits a client, if one has arrived. [`Arrivals::dismiss`] must follow when it has been
    /// served.
    pub fn next_client(&self) -> Option<Newcomer> {
        let mut state = self.lock();
        state.sort_events();
        state.newcomers.pop_front()
    }

    /// Rejects the remaining requests of a client, and lets another one take its place.
    pub fn dismiss(&self, client: IpAddr) {
        let mut state = self.lock();
        for event in state.waiting.remove(&client).into_iter().flatten() {
            if let Event::ConnectRequest { request, .. } = event {
                state.reject(request, "the run has ended");
            }
        }
    }

    pub fn reject(&self, newcomer: Newcomer, why: &str) {
        self.lock().reject(newcomer.request, why);
        self.dismiss(newcomer.remote.ip());
    }

    /// Returns the lines about peers that were turned away since the last call.
    pub fn take_lines(&self) -> Vec<String> {
        std::mem::take(&mut self.lock().lines)
    }

    /// Returns the clients that were rejected because the server was busy.
    pub fn busy(&self) -> u64 {
        self.lock().busy
    }
}

impl State {
    /// Reads all events of the listener, and keeps or rejects each request.
    fn sort_events(&mut self) {
        while let Some(event) = self.ctx.poll_event() {
            match event {
                Event::ConnectRequest { request, remote, private_data, .. } if is_greeting(&private_data) => {
                    self.on_greeting(Newcomer { request, remote }, check_greeting(&private_data));
                }
                Event::ConnectRequest { remote, .. } if self.waiting.contains_key(&remote.ip()) => {
                    self.waiting.entry(remote.ip()).or_default().push_back(event);
                }
                Event::ConnectRequest { request, remote, .. } => {
                    self.turn_away(request, remote, "not a near end of iwarp-perf");
                }
                Event::RequestEnded { request } => self.forget(&request),
                _ => {}
            }
        }
    }

    /// Removes a request that has ended, and the client if it has not been served yet: its bound
    /// stays that of the stack.
    fn forget(&mut self, ended: &ConnectionRequest) {
        let is_ended =
            |event: &Event| matches!(event, Event::ConnectRequest { request, .. } if request == ended);
        self.waiting.values_mut().for_each(|events| events.retain(|event| !is_ended(event)));
        if let Some(index) = self.newcomers.iter().position(|newcomer| newcomer.request == *ended)
            && let Some(newcomer) = self.newcomers.remove(index)
        {
            self.waiting.remove(&newcomer.remote.ip());
        }
    }

    fn on_greeting(&mut self, newcomer: Newcomer, version: Result<(), String>) {
        let Newcomer { request, remote } = newcomer;
        if let Err(why) = version {
            return self.turn_away(request, remote, &why);
        }
        let served = self.waiting.len();
        let why = if self.waiting.contains_key(&remote.ip()) {
            "busy: still serves an earlier run of this address".to_owned()
        } else if served >= self.clients_max {
            format!("busy: serves {served} clients, which is its limit (--clients)")
        } else {
            self.waiting.insert(remote.ip(), VecDeque::new());
            return self.newcomers.push_back(Newcomer { request, remote });
        };
        self.busy += 1;
        self.turn_away(request, remote, &why);
    }

    fn turn_away(&mut self, request: ConnectionRequest, remote: SocketAddr, why: &str) {
        match self.lines.len() + 1 {
            LINES_MAX => self.lines.push("further peers were turned away".to_owned()),
            ..LINES_MAX => self.lines.push(format!("{remote} was turned away: {why}")),
            _ => {}
        }
        self.reject(request, why);
    }

    /// Rejects a request. One that has timed out needs no reply.
    fn reject(&mut self, request: ConnectionRequest, why: &str) {
        let _ = self.ctx.reject(request, why.as_bytes());
    }
}
