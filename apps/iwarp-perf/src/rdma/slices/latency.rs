//! Round trips: Send, Send with Invalidate, Write, Read, Immediate Data, and Write with Immediate.
//!
//! One message is in flight at a time, on each queue pair in turn. iWARP has no receiver-not-ready,
//! so both ends post receives ahead and replace each one used. Both ends poll the last byte of a
//! Write, which changes with every message. An end that waits for events cannot poll a byte, so
//! each Write is followed by an empty Send, which is delivered after it (RFC 5040 s5.5).

use std::time::{Duration, Instant};

use ironwarp::{Access, Completion, CompletionFlags, CompletionOpcode, STag, SendWr};
use ironwarp_bench::{
    RoundTrip, ServerSlice, Slice, StopCondition, StopSignal, Test, Wait, measure_round_trips,
};
use ironwarp_types::limits::INLINE_BYTES_MAX;

use super::super::case::RdmaTest;
use super::super::endpoint::Endpoint;
use super::super::open_case::{Arrived, OpenCase, wr_id};
use super::timer::linger;
use crate::error::{Error, Result};

const STAG_BYTES: usize = 4;

/// One end of a latency case.
pub struct LatencyTest {
    open: OpenCase,
    /// The queue pair of the next message.
    next_index: usize,
    last_arrived: Arrived,
}

impl LatencyTest {
    pub fn new(open: OpenCase) -> Self {
        LatencyTest { open, next_index: 0, last_arrived: Arrived::default() }
    }

    /// Sends one message and waits for the reply. Returns whether all compared bytes were right.
    fn round_trip(&mut self, endpoint: &mut Endpoint, until: StopCondition<'_>) -> Result<bool> {
        let (index, test) = (self.next_qp(), self.open.case.test);
        self.open.qps[index].sent += 1;
        let message = self.open.qps[index].sent;
        match test {
            Test::SendInvLat => self.post_with_window(endpoint, index, message)?,
            _ => self.post_message(endpoint, index, message)?,
        }
        let kind = match test {
            Test::SendLat | Test::SendInvLat | Test::WriteLat => CompletionOpcode::Receive,
            Test::ReadLat => CompletionOpcode::Read,
            _ => CompletionOpcode::ReceiveImmediate,
        };
        if test == Test::WriteLat && !self.is_announced() {
            self.wait_for_last_byte(endpoint, index, message, until)?;
        } else {
            let completion = self.wait_for(endpoint, kind, until)?;
            if test.is_immediate() && completion.immediate != message.to_be_bytes() {
                return Ok(false);
            }
            if test == Test::SendInvLat && !self.is_window_invalidated(index, &completion) {
                return Ok(false);
            }
        }
        self.open.qps[index].received += 1;
        // A Read always returns the server's message 0.
        self.is_intact(index, if test == Test::ReadLat { 0 } else { message })
    }

    /// Whether the last message that arrived holds the pattern of number `message`, where the case
    /// is validated.
    fn is_intact(&self, index: usize, message: u64) -> Result<bool> {
        let (case, own) = (&self.open.case, &self.open.qps[index]);
        let (qp_ctx, slot) = match case.test {
            // Immediate Data is not placed in memory.
            Test::ImmLat => return Ok(true),
            Test::SendLat | Test::SendInvLat if self.open.has_srq() => {
                let Arrived { memory_of, slot, .. } = self.last_arrived;
                (&self.open.qps[memory_of], slot)
            }
            Test::SendLat | Test::SendInvLat => (own, own.last_slot()),
            _ => (own, 0),
        };
        let skipped_tail_bytes = match case.test {
            // The last octets are the STag.
            Test::SendInvLat => STAG_BYTES,
            // The last byte is the message number.
            Test::WriteLat => 1,
            _ => 0,
        };
        Ok(!case.validate || qp_ctx.sink_matches(case, slot, message, skipped_tail_bytes)?)
    }

    /// Posts a message. Only a Read is signaled: for the others the reply implies completion, and a
    /// sleeping end must be woken by arrivals only. A request that fails completes in any case.
    fn post_message(&self, endpoint: &mut Endpoint, index: usize, message: u64) -> Result<()> {
        let (case, qp_ctx) = (&self.open.case, &self.open.qps[index]);
        let (id, octets) = (wr_id(index, 0), message.to_be_bytes());
        match case.test {
            Test::ImmLat => {}
            Test::ReadLat if case.validate => qp_ctx.sink.fill(0, case.bytes as usize, 0)?,
            Test::ReadLat => {}
            _ => qp_ctx.fill_source(case, 0, message)?,
        }
        if case.test == Test::WriteLat {
            qp_ctx.source.write_at(case.bytes as usize - 1, &[message as u8])?;
        }
        let mut buffer = [0; INLINE_BYTES_MAX];
        let inline = qp_ctx.inline_bytes(case, &mut buffer)?;
        let wr = match case.test {
            Test::ImmLat => SendWr::immediate(id, &octets).unsignaled(),
            Test::ReadLat => qp_ctx.message_wr(case, id, 0, None),
            _ => qp_ctx.message_wr(case, id, 0, inline).unsignaled(),
        };
        let second = match case.test {
            Test::WriteImmLat => SendWr::immediate(id, &octets),
            _ if self.is_announced() => SendWr::send_inline(id, &[]),
            _ => return Ok(endpoint.ctx.post_send(qp_ctx.qp, &wr)?),
        };
        endpoint.ctx.post_sends(qp_ctx.qp, &[wr, second.unsignaled()]).map_err(|(_, error)| error.into())
    }

    /// Polls until one completion of a kind has come.
    fn wait_for(
        &mut self,
        endpoint: &mut Endpoint,
        kind: CompletionOpcode,
        until: StopCondition<'_>,
    ) -> Result<Completion> {
        loop {
            let count = self.open.poll(endpoint)?;
            let mut reaped = self.open.reaped[..count].iter();
            if let Some(&completion) = reaped.find(|completion| completion.opcode == kind) {
                self.last_arrived = self.open.arrived(&completion);
                return Ok(completion);
            }
            if until.halted() {
                return Err(Error::Halted);
            }
        }
    }

    /// Polls until the last byte of the sink is that of a message.
    fn wait_for_last_byte(
        &mut self,
        endpoint: &mut Endpoint,
        index: usize,
        message: u64,
        until: StopCondition<'_>,
    ) -> Result<()> {
        loop {
            endpoint.poll();
            if self.has_last_byte(index, message)? {
                return Ok(());
            }
            self.open.reap(endpoint)?;
            if until.halted() {
                return Err(Error::Halted);
            }
        }
    }

    fn has_last_byte(&self, index: usize, message: u64) -> Result<bool> {
        let last = self.open.case.bytes as usize - 1;
        Ok(self.open.qps[index].sink.load_u8_acquire(last)? == message as u8)
    }

    /// One iteration of the server: answers all received requests.
    fn answer(&mut self, endpoint: &mut Endpoint, server: &mut ServerSlice) -> Result<()> {
        match self.open.case.test {
            test if test.has_receives() => self.reply_to_sends(endpoint, server),
            Test::WriteLat if self.is_announced() => self.reply_to_sends(endpoint, server),
            Test::WriteLat => self.reply_to_write(endpoint, server),
            // The stack alone answers Reads.
            _ if endpoint.waits_for_events() => self.open.poll(endpoint).map(drop),
            _ => {
                endpoint.poll();
                Ok(())
            }
        }
    }

    /// Replies to each message of a Send or Immediate Data, and to each announced Write. Replies
    /// are sent before the used receives are replaced, since others are posted.
    fn reply_to_sends(&mut self, endpoint: &mut Endpoint, server: &mut ServerSlice) -> Result<()> {
        let count = self.open.poll(endpoint)?;
        if count == 0 {
            return Ok(());
        }
        for index_in_batch in 0..count {
            if let Some(arrived) = self.received_at(index_in_batch) {
                let index = arrived.index;
                self.last_arrived = arrived;
                let octets = self.open.reaped[index_in_batch].immediate;
                let expected = (self.open.qps[index].received + 1).to_be_bytes();
                server.errors += u64::from(self.open.case.test.is_immediate() && octets != expected);
                self.reply(endpoint, index, server)?;
            }
        }
        endpoint.poll();
        for index_in_batch in 0..count {
            if let Some(arrived) = self.received_at(index_in_batch) {
                self.open.replace_receive(endpoint, arrived)?;
            }
        }
        Ok(())
    }

    /// Where the message of a completion arrived, if it is one of a receive.
    fn received_at(&self, index_in_batch: usize) -> Option<Arrived> {
        let completion = &self.open.reaped[index_in_batch];
        let is_receive =
            matches!(completion.opcode, CompletionOpcode::Receive | CompletionOpcode::ReceiveImmediate);
        is_receive.then(|| self.open.arrived(completion))
    }

    fn reply_to_write(&mut self, endpoint: &mut Endpoint, server: &mut ServerSlice) -> Result<()> {
        endpoint.poll();
        let index = self.next_index;
        if self.has_last_byte(index, self.open.qps[index].received + 1)? {
            self.next_qp();
            self.reply(endpoint, index, server)?;
            self.open.reap(endpoint)?;
        }
        Ok(())
    }

    /// Counts an arrived message, compares it where the case is validated, and sends the reply.
    fn reply(&mut self, endpoint: &mut Endpoint, index: usize, server: &mut ServerSlice) -> Result<()> {
        let (validate, test) = (self.open.case.validate, self.open.case.test);
        self.open.qps[index].received += 1;
        let message = self.open.qps[index].received;
        server.messages += 1;
        server.bytes += self.open.case.bytes;
        if validate && test != Test::ImmLat {
            server.errors += u64::from(!self.is_intact(index, message)?);
            server.verified_bytes += self.open.case.bytes;
        }
        match test {
            Test::SendInvLat => self.post_invalidating(endpoint, index, message),
            _ => self.post_message(endpoint, index, message),
        }
    }

    /// Returns the current queue pair and advances to the next one.
    fn next_qp(&mut self) -> usize {
        let next = if self.next_index + 1 == self.open.qps.len() { 0 } else { self.next_index + 1 };
        std::mem::replace(&mut self.next_index, next)
    }

    /// Whether an empty Send follows each Write.
    fn is_announced(&self) -> bool {
        self.open.case.test == Test::WriteLat && self.open.case.wait == Wait::Block
    }
}

/// The messages of Send with Invalidate.
///
/// The client binds a window for each message, as the initiator of a storage protocol does for each
/// command. The Send behind the binding carries the STag in its last octets, and the reply
/// invalidates it. The client checks that the completion of its receive names this STag
/// (RFC 5040 s5.3).
impl LatencyTest {
    /// Binds the window to the first slot of the sink, and sends its next STag behind the binding.
    fn post_with_window(&mut self, endpoint: &mut Endpoint, index: usize, message: u64) -> Result<()> {
        let (case, qp_ctx, id) = (&self.open.case, &mut self.open.qps[index], wr_id(index, 0));
        qp_ctx.fill_source(case, 0, message)?;
        let Some(window) = &mut qp_ctx.window else { return Err(Error::failed("no window in this test")) };
        let stag = window.next_stag().0.to_be_bytes();
        qp_ctx.source.write_at(case.bytes as usize - STAG_BYTES, &stag)?;
        let bind = SendWr::bind_with_current_stag(id, window, &qp_ctx.scatter[0], Access::REMOTE_WRITE);
        let send = SendWr::send(id, &qp_ctx.gather[0]).unsignaled();
        endpoint.ctx.post_sends(qp_ctx.qp, &[bind.unsignaled(), send]).map_err(|(_, error)| error.into())
    }

    /// Replies with a Send that invalidates the STag in the last message.
    fn post_invalidating(&self, endpoint: &mut Endpoint, index: usize, message: u64) -> Result<()> {
        let (case, qp_ctx, id) = (&self.open.case, &self.open.qps[index], wr_id(index, 0));
        let Arrived { memory_of, slot, .. } = self.last_arrived;
        let mut octets = [0; STAG_BYTES];
        let end = (slot + 1) * case.bytes as usize;
        self.open.qps[memory_of].sink.read_at(end - STAG_BYTES, &mut octets)?;
        qp_ctx.fill_source(case, 0, message)?;
        let stag = STag(u32::from_be_bytes(octets));
        let wr = qp_ctx.message_wr(case, id, 0, None).with_invalidate(stag).unsignaled();
        Ok(endpoint.ctx.post_send(qp_ctx.qp, &wr)?)
    }

    /// Whether the completion of a receive names the STag of the last binding as invalidated.
    fn is_window_invalidated(&self, index: usize, completion: &Completion) -> bool {
        let window = &self.open.qps[index].window;
        completion.flags.contains(CompletionFlags::INVALIDATED)
            && window.as_ref().is_some_and(|window| window.stag() == completion.invalidated)
    }
}

impl RdmaTest for LatencyTest {
    fn open(&mut self) -> &mut OpenCase {
        &mut self.open
    }

    /// The client's part of a slice. In an open loop a round trip is timed from its intended start.
    fn run_client(&mut self, endpoint: &mut Endpoint, until: StopCondition<'_>) -> Result<(Slice, u64)> {
        let (bytes, validate) = (self.open.case.bytes, self.open.case.validate);
        let period = self.open.case.rate.map(|rate| Duration::from_secs_f64(1.0 / rate));
        let slice = measure_round_trips(bytes, until, |measured| {
            let intended_start = match (period, measured) {
                (Some(period), Some((start, done))) => {
                    let intended = start + period.mul_f64(done as f64);
                    while Instant::now() < intended {
                        endpoint.poll();
                    }
                    intended
                }
                _ => Instant::now(),
            };
            let is_intact = match self.round_trip(endpoint, until) {
                Err(Error::Halted) => return Ok(RoundTrip::Halted),
                outcome => outcome?,
            };
            let rtt = intended_start.elapsed();
            // A receive for the one that the round trip used.
            if self.open.case.test.has_receives() || self.is_announced() {
                self.open.replace_receive(endpoint, self.last_arrived)?;
            }
            Ok::<_, Error>(RoundTrip::Done { rtt, is_intact })
        })?;
        Ok((Slice { verified_bytes: if validate { slice.bytes } else { 0 }, ..slice }, 0))
    }

    fn run_server(&mut self, endpoint: &mut Endpoint, stop: &StopSignal) -> Result<ServerSlice> {
        let mut server = ServerSlice::default();
        while stop.raised().is_none() {
            self.answer(endpoint, &mut server)?;
        }
        linger(|| {
            endpoint.poll();
            self.open.reap(endpoint).map(drop)
        })?;
        Ok(server)
    }

    fn serve(&mut self, endpoint: &mut Endpoint) -> Result<()> {
        self.answer(endpoint, &mut ServerSlice::default())
    }
}
