//! The control connection: a queue pair that carries control messages between two machines.
//!
//! Lines of JSON are split into inline Sends. iWARP has no receiver-not-ready, so each end posts
//! receives before the connection is made, and each Send costs a credit. A credit update returns
//! credits and costs none: receives beyond the credits are kept for them. An end sends one after
//! [`CREDIT_UPDATE_AFTER`] Sends of its peer, which has at most [`CREDITS`] in flight. An idle end
//! sends a heartbeat every second, since a user-space stack that is killed sends neither FIN nor
//! reset. The connection is polled every [`POLLS_PER_CONTROL_POLL`] polls of the endpoint. A peer
//! whose messages wait to be handled gets no credits meanwhile.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ironwarp::{
    Access, AlignedBuf, Completion, CompletionOpcode, CompletionQueue, CompletionStatus, Context,
    ProtectionDomain, QpAttr, QueuePair, RecvWr, Region, SendWr, Sge,
};
use serde::{Deserialize, Serialize};

use crate::control::Carrier;
use crate::error::{Error, Result};

/// Polls of the endpoint between two polls of the control connection: a power of two.
pub const POLLS_PER_CONTROL_POLL: u32 = 64;
/// Polls of the control connection between two clock reads.
const POLLS_PER_CLOCK_READ: u32 = 16;
/// The version of the messages, which both ends must share.
const VERSION: u32 = 2;

/// Sends in flight, at most.
const CREDITS: u32 = 12;
/// Received Sends after which credits are returned.
const CREDIT_UPDATE_AFTER: u32 = 6;
/// Receives: one per credit, the others for credit updates.
const RECEIVES: u32 = 16;
/// Depth of the send queue: acknowledgements can lag behind credits.
const SENDS: u32 = 64;
const SEND_BYTES: usize = 256;
/// Kind, a zero, and the returned credits, big-endian.
const HEADER_BYTES: usize = 4;
const DATA: u8 = b'D';
const CREDIT_UPDATE: u8 = b'N';
/// The longest message. A longer one is a protocol error.
const MESSAGE_BYTES_MAX: usize = 1 << 16;
/// An idle end sends an empty Send after this time.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(1);
/// A peer that is silent for this time has gone. Registering a gigabyte of memory takes less.
pub const PEER_TIMEOUT: Duration = Duration::from_secs(20);

/// The private data of the connection request and of its reply.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Greeting {
    control: u32,
}

pub fn greeting() -> Vec<u8> {
    serde_json::to_vec(&Greeting { control: VERSION }).unwrap_or_default()
}

pub fn is_greeting(bytes: &[u8]) -> bool {
    serde_json::from_slice::<Greeting>(bytes).is_ok()
}

/// Fails, with the text for the peer, unless the greeting has our version.
pub fn check_greeting(bytes: &[u8]) -> Result<(), String> {
    match serde_json::from_slice::<Greeting>(bytes) {
        Ok(Greeting { control: VERSION }) => Ok(()),
        Ok(Greeting { control }) => {
            Err(format!("control messages of version {control}; here version {VERSION}"))
        }
        Err(_) => Err("not a near end of iwarp-perf".to_owned()),
    }
}

/// One end of the control connection.
pub struct ControlChannel {
    pub qp: QueuePair,
    pub cq: CompletionQueue,
    region: Region,
    scatter: Vec<[Sge; 1]>,
    /// Sends that the peer has receives for.
    credits: u32,
    credits_to_return: u32,
    tx_bytes: VecDeque<u8>,
    rx_bytes: Vec<u8>,
    carrier: Carrier,
    poll_count: u32,
    last_tx: Instant,
    last_rx: Instant,
    /// The time without a message after which the peer has gone.
    peer_timeout: Duration,
    /// The connection ended because the peer sent nothing.
    pub is_peer_silent: bool,
    /// Ends the connection when set.
    halt: Option<Arc<AtomicBool>>,
    /// When the slice must be over, and how long it may last.
    slice_end: Option<(Instant, Duration)>,
}

impl ControlChannel {
    /// Creates an unconnected end with its receives posted. A peer has gone that sends nothing for
    /// `peer_timeout`: it sends heartbeats while it is idle.
    pub fn new(
        ctx: &mut Context,
        pd: ProtectionDomain,
        carrier: Carrier,
        halt: Option<Arc<AtomicBool>>,
        peer_timeout: Duration,
    ) -> Result<Self> {
        let region =
            ctx.register(pd, AlignedBuf::pages(RECEIVES as usize * SEND_BYTES)?, Access::LOCAL_WRITE)?;
        let slots = 0..RECEIVES as usize;
        let scatter: Result<Vec<_>> =
            slots.clone().map(|slot| Ok([region.slice(slot * SEND_BYTES, SEND_BYTES as u32)?])).collect();
        let cq = ctx.create_cq((SENDS + RECEIVES) * 2)?;
        let attr = QpAttr {
            send_depth: SENDS,
            recv_depth: RECEIVES,
            max_sge: 1,
            inline_bytes: SEND_BYTES,
            ..QpAttr::new(cq)
        };
        let (qp, now) = (ctx.create_qp(pd, &attr)?, Instant::now());
        let mut control = ControlChannel {
            qp,
            cq,
            region,
            scatter: scatter?,
            credits: CREDITS,
            credits_to_return: 0,
            tx_bytes: VecDeque::new(),
            rx_bytes: Vec::new(),
            carrier,
            poll_count: 0,
            last_tx: now,
            last_rx: now,
            peer_timeout,
            is_peer_silent: false,
            halt,
            slice_end: None,
        };
        slots.into_iter().try_for_each(|slot| control.post_receive(ctx, slot))?;
        Ok(control)
    }

    /// Ends the connection unless a slice that begins now is over within `limit`. `None`: it is
    /// over.
    pub fn limit_slice(&mut self, limit: Option<Duration>) {
        self.slice_end = limit.and_then(|limit| Some((Instant::now().checked_add(limit)?, limit)));
    }

    /// Closes the channel to both threads.
    pub fn close(&mut self) {
        self.carrier.close();
    }

    /// Receives and sends control messages. Fails, with the reason, when the connection is lost.
    pub fn poll(&mut self, ctx: &mut Context) -> Result<()> {
        let mut reaped = [Completion::default(); RECEIVES as usize];
        let count = ctx.poll_cq(self.cq, &mut reaped)?;
        for completion in reaped.iter().take(count) {
            if completion.status != CompletionStatus::Success {
                return Err(Error::failed("its connection ended"));
            }
            if completion.opcode == CompletionOpcode::Receive {
                self.on_receive(completion.wr_id as usize, completion.byte_len as usize)?;
                self.post_receive(ctx, completion.wr_id as usize)?;
            }
        }
        self.flush(ctx)?;
        self.poll_count = self.poll_count.wrapping_add(1);
        if self.poll_count.is_multiple_of(POLLS_PER_CLOCK_READ) { self.on_timer(ctx) } else { Ok(()) }
    }

    fn on_receive(&mut self, slot: usize, len: usize) -> Result<()> {
        let mut bytes = [0; SEND_BYTES];
        let bytes = bytes.get_mut(..len).ok_or_else(protocol_error)?;
        self.region.read_at(slot * SEND_BYTES, bytes)?;
        let (&[kind, 0, high, low], payload) =
            bytes.split_first_chunk::<HEADER_BYTES>().ok_or_else(protocol_error)?
        else {
            return Err(protocol_error());
        };
        self.last_rx = Instant::now();
        self.credits = self.credits.saturating_add(u16::from_be_bytes([high, low]).into());
        match kind {
            _ if self.credits > CREDITS => Err(protocol_error()),
            CREDIT_UPDATE if payload.is_empty() => Ok(()),
            // It has sent more than it had credits for.
            DATA if self.credits_to_return >= CREDITS => Err(protocol_error()),
            DATA => {
                self.credits_to_return += 1;
                self.on_bytes(payload)
            }
            _ => Err(protocol_error()),
        }
    }

    /// Passes whole messages to the carrier.
    fn on_bytes(&mut self, bytes: &[u8]) -> Result<()> {
        self.rx_bytes.extend_from_slice(bytes);
        while let Some(end) = self.rx_bytes.iter().position(|&byte| byte == b'\n') {
            let rest = self.rx_bytes.split_off(end + 1);
            let message = std::mem::replace(&mut self.rx_bytes, rest);
            if !self.carrier.on_line(&message) {
                return Err(protocol_error());
            }
        }
        if self.rx_bytes.len() > MESSAGE_BYTES_MAX { Err(protocol_error()) } else { Ok(()) }
    }

    fn flush(&mut self, ctx: &mut Context) -> Result<()> {
        if self.tx_bytes.is_empty() {
            self.tx_bytes.extend(self.carrier.next_line().unwrap_or_default().into_bytes());
        }
        while !self.tx_bytes.is_empty() && self.credits > 0 {
            let part = self.tx_bytes.len().min(SEND_BYTES - HEADER_BYTES);
            let payload: Vec<u8> = self.tx_bytes.drain(..part).collect();
            self.send(ctx, DATA, &payload)?;
        }
        if self.returnable_credits() < CREDIT_UPDATE_AFTER {
            return Ok(());
        }
        self.send(ctx, CREDIT_UPDATE, &[])
    }

    /// Credits to return now: none while the peer's messages wait.
    fn returnable_credits(&self) -> u32 {
        if self.carrier.is_backlogged() { 0 } else { self.credits_to_return }
    }

    fn send(&mut self, ctx: &mut Context, kind: u8, payload: &[u8]) -> Result<()> {
        let returned = self.returnable_credits();
        // At most the peer's credits.
        let [high, low] = (returned as u16).to_be_bytes();
        let bytes = [&[kind, 0, high, low], payload].concat();
        ctx.post_send(self.qp, &SendWr::send_inline(0, &bytes))?;
        self.credits_to_return -= returned;
        self.credits = self.credits.saturating_sub(u32::from(kind == DATA));
        self.last_tx = Instant::now();
        Ok(())
    }

    fn on_timer(&mut self, ctx: &mut Context) -> Result<()> {
        if self.halt.as_ref().is_some_and(|halt| halt.load(Ordering::Relaxed)) {
            return Err(Error::failed("this end was stopped"));
        }
        if let Some((end, limit)) = self.slice_end
            && Instant::now() > end
        {
            return Err(Error::Failed(format!("a slice took longer than {} s", limit.as_secs())));
        }
        if self.last_rx.elapsed() > self.peer_timeout {
            self.is_peer_silent = true;
            let limit = self.peer_timeout.as_secs();
            return Err(Error::Failed(format!("nothing was heard of it for {limit} s")));
        }
        if self.last_tx.elapsed() > HEARTBEAT_INTERVAL && self.credits > 0 {
            return self.send(ctx, DATA, &[]);
        }
        Ok(())
    }

    fn post_receive(&mut self, ctx: &mut Context, slot: usize) -> Result<()> {
        let scatter = self.scatter.get(slot).map_or(&[][..], |scatter| &scatter[..]);
        Ok(ctx.post_recv(self.qp, &RecvWr::new(slot as u64, scatter))?)
    }
}

fn protocol_error() -> Error {
    Error::failed("it speaks no language of ours")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_greeting_of_another_version_is_a_named_error() {
        assert_eq!(check_greeting(&greeting()), Ok(()));
        let other = check_greeting(br#"{"control":7}"#).expect_err("another version");
        assert_eq!(other, "control messages of version 7; here version 2");
        assert!(is_greeting(br#"{"control":7}"#));
        for other_protocol in [&b""[..], b"rping", br#"{"case":0,"lane":0}"#] {
            assert_eq!(
                check_greeting(other_protocol).expect_err("not a greeting"),
                "not a near end of iwarp-perf"
            );
        }
    }

    #[test]
    fn the_notes_that_may_be_on_their_way_find_receives_beyond_the_credits() {
        assert!(CREDITS + CREDITS.div_ceil(CREDIT_UPDATE_AFTER) <= RECEIVES);
    }
}
