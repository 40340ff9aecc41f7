//! The life of a connection: how it is established and how it ends.

use std::collections::VecDeque;

use ironwarp::{ConnectParams, QpAttr, QueuePair, VerbsError};
use ironwarp_types::Nanos;

use super::conn_qp::ConnQp;
use super::{AtomicsApp, CLIENT, PORT, SERVER};
use crate::app::CORRUPTED_SESSION_TIMEOUT;
use crate::app::lifecycle::session_private_data;
use crate::atomics::atomics_oracle::{AtomicsConn, Endpoint, EndpointStage, NAMES};
use crate::plan::{AtomicsConnEnding, addresses_of};

/// How long after the peer has ended an endpoint without an event ends too: a reset may have been lost.
const PEER_GONE_TIMEOUT: Nanos = Nanos::from_millis(30);

/// Delay between a failed connection attempt and the next one.
const RETRY_DELAY: Nanos = Nanos::from_millis(200);

/// Most connection attempts while links are faulty.
const ATTEMPTS_MAX: u32 = 60;

impl AtomicsApp {
    /// Advances every connection of this host.
    pub(super) fn drive_connections(&mut self, now: Nanos) {
        let count = self.atomics_oracle.borrow().conns.len();
        for conn in 0..count {
            let is_mine =
                self.role == SERVER || self.atomics_oracle.borrow().conns[conn].plan.host == self.host;
            if !is_mine || self.atomics_oracle.borrow().conns[conn].is_over {
                continue;
            }
            if let Err(error) = self.drive_connection(now, conn) {
                self.report_failure(conn, &format!("a call failed: {error}"));
            }
            self.finish_connection(conn);
        }
    }

    fn drive_connection(&mut self, now: Nanos, conn: usize) -> Result<(), VerbsError> {
        let hopeless = {
            let oracle = self.oracle.borrow();
            oracle.undetected_corruption && now > oracle.healed_at + CORRUPTED_SESSION_TIMEOUT
        };
        let (stage, not_before, left_alone) = {
            let conn = &self.atomics_oracle.borrow().conns[conn];
            let left_alone = conn.ended_at.is_some_and(|at| now >= at + PEER_GONE_TIMEOUT);
            (conn.endpoints[self.role].stage, conn.not_before, left_alone)
        };
        match stage {
            EndpointStage::Waiting if self.role == CLIENT && now >= not_before => self.connect(conn)?,
            EndpointStage::Connecting | EndpointStage::Up | EndpointStage::Closing if left_alone => {
                self.destroy_and_leave(now, conn)
            }
            // With a damaged length field, the receiver waits for bytes that are never sent, and no side detects that.
            EndpointStage::Up | EndpointStage::Closing if hopeless => {
                self.atomics_oracle.borrow_mut().conns[conn].is_damaged = true;
                self.start_ending(conn, stage);
                self.destroy_and_leave(now, conn)
            }
            EndpointStage::Connecting => self.post_receives(conn)?,
            EndpointStage::Up => {
                self.post(conn)?;
                self.end_if_due(now, conn)?;
            }
            _ => {}
        }
        Ok(())
    }

    fn connect(&mut self, conn: usize) -> Result<(), VerbsError> {
        self.work += 1;
        let extensions = {
            let atomics_oracle = &mut *self.atomics_oracle.borrow_mut();
            atomics_oracle.conns[conn].reset(CLIENT);
            atomics_oracle.conns[conn].stream = atomics_oracle.history.new_stream();
            atomics_oracle.conns[conn].attempts += 1;
            Some(atomics_oracle.plan.extensions)
        };
        let by_v6 = self.atomics_oracle.borrow().conns[conn].plan.by_v6;
        let [v4, v6] = addresses_of(0);
        let mut there = if by_v6 { v6 } else { v4 };
        there.set_port(PORT);
        let qp = self.create_conn_qp(conn)?;
        let private_data = &session_private_data(conn);
        self.ctx.connect_with(
            qp,
            there,
            &ConnectParams { private_data, extensions, ..Default::default() },
        )?;
        self.atomics_oracle.borrow_mut().conns[conn].endpoints[CLIENT].stage = EndpointStage::Connecting;
        Ok(())
    }

    pub(super) fn create_conn_qp(&mut self, conn: usize) -> Result<QueuePair, VerbsError> {
        let plan = self.atomics_oracle.borrow().conns[conn].plan.clone();
        let attr = QpAttr {
            send_depth: plan.send_depth,
            recv_depth: plan.receives,
            ird: plan.reads,
            ord: plan.reads,
            ..QpAttr::new(self.cq)
        };
        let qp = self.ctx.create_qp(self.pd, &attr)?;
        self.by_qp.insert(qp.num().0, conn);
        let conn_qp = ConnQp {
            qp,
            out: VecDeque::new(),
            next: 0,
            receives: VecDeque::new(),
            has_failed: false,
            posted: 0,
            names: None,
        };
        self.conn_qps.insert(conn, conn_qp);
        self.post_receives(conn)?;
        Ok(qp)
    }

    fn end_if_due(&mut self, now: Nanos, conn: usize) -> Result<(), VerbsError> {
        let Some(conn_qp) = self.conn_qps.get(&conn) else { return Ok(()) };
        let (qp, posted) = (conn_qp.qp, conn_qp.posted);
        let (ending, is_done, is_busy, bad_atomic_posted, posted_count) = {
            let atomics_oracle = self.atomics_oracle.borrow();
            let conn = &atomics_oracle.conns[conn];
            let posted_count = (conn.endpoints[CLIENT].stage == EndpointStage::Up)
                .then_some(conn.endpoints[CLIENT].posted_count);
            (
                conn.plan.ending,
                conn.is_done(),
                conn.endpoints[CLIENT].open > 0,
                conn.bad_atomic_posted,
                posted_count,
            )
        };
        match ending {
            AtomicsConnEnding::Graceful | AtomicsConnEnding::Revoked { .. }
                if self.role == CLIENT && is_done =>
            {
                self.start_ending(conn, EndpointStage::Closing);
                self.ctx.disconnect(qp)?;
            }
            AtomicsConnEnding::Destroy { by, after } if by == self.role && posted_count >= Some(after) => {
                self.start_ending(conn, EndpointStage::Up);
                self.destroy_and_leave(now, conn);
            }
            AtomicsConnEnding::Revoked { after, name }
                if self.role == SERVER && posted_count >= Some(after) && is_busy =>
            {
                self.schedule_revocation(conn, name);
            }
            AtomicsConnEnding::BadAtomic { after, .. }
                if self.role == CLIENT && posted >= after && !bad_atomic_posted =>
            {
                self.post_bad_atomic(conn)?;
            }
            _ => {}
        }
        Ok(())
    }

    pub(super) fn start_ending(&mut self, conn: usize, stage: EndpointStage) {
        self.work += 1;
        let conn = &mut self.atomics_oracle.borrow_mut().conns[conn];
        conn.is_ending = true;
        conn.endpoints[self.role].stage = stage;
    }

    /// Destroys the queue pair. Completed requests are known. Requests without a completion may or may not have taken
    /// effect.
    pub(super) fn destroy_and_leave(&mut self, now: Nanos, conn: usize) {
        self.reap(now, usize::MAX);
        self.destroy_conn_qp(conn);
        self.atomics_oracle.borrow_mut().conns[conn].mark_gone(now, self.role);
    }

    /// Destroys the queue pair, if there is one.
    pub(super) fn destroy_conn_qp(&mut self, conn: usize) {
        let Some(conn_qp) = self.conn_qps.remove(&conn) else { return };
        self.work += 1;
        self.by_qp.remove(&conn_qp.qp.num().0);
        self.retired.insert(conn_qp.qp.num().0);
        if let Err(error) = self.ctx.destroy_qp(conn_qp.qp) {
            self.report_failure(conn, &format!("a queue pair could not be destroyed: {error}"));
        }
    }

    /// A connection attempt has failed.
    pub(super) fn schedule_retry(&mut self, now: Nanos, conn: usize) {
        self.destroy_conn_qp(conn);
        let attempts = self.atomics_oracle.borrow().conns[conn].attempts;
        if self.role == CLIENT && attempts >= ATTEMPTS_MAX {
            return self.report_failure(conn, "no connection attempt succeeds");
        }
        let conn = &mut self.atomics_oracle.borrow_mut().conns[conn];
        conn.endpoints[self.role].stage = EndpointStage::Waiting;
        conn.not_before = now + RETRY_DELAY;
        self.oracle.borrow_mut().totals.retried += u64::from(self.role == CLIENT);
    }

    /// The context is gone, and this connection with it.
    pub(super) fn on_context_dropped(&mut self, now: Nanos, conn: usize) {
        let conn = &mut self.atomics_oracle.borrow_mut().conns[conn];
        (conn.is_ending, conn.context_dropped) = (true, true);
        conn.mark_gone(now, self.role);
    }

    /// Ends a connection for good.
    fn finish_connection(&mut self, conn: usize) {
        let atomics_oracle = &mut *self.atomics_oracle.borrow_mut();
        let this_conn = &mut atomics_oracle.conns[conn];
        if this_conn.is_over || !this_conn.has_ended() {
            return;
        }
        this_conn.is_over = true;
        let outcome = this_conn.check_result();
        let mut oracle = self.oracle.borrow_mut();
        oracle.open -= 1;
        if let Err(fault) = outcome {
            oracle.report_failure(conn, self.role, &fault);
        }
    }
}

impl AtomicsConn {
    /// Resets an endpoint to its state before the first attempt.
    pub fn reset(&mut self, role: usize) {
        self.endpoints[role] = Endpoint::default();
        // Messages in flight to it or from it are lost.
        self.endpoints[1 - role].incoming.clear();
        if role == SERVER {
            self.names.clear();
            self.revoked_names = [false; NAMES];
        }
    }

    /// Returns whether both endpoints have posted and completed everything.
    fn is_done(&self) -> bool {
        let [client, server] = &self.endpoints;
        let posted_count = client.posted_count >= self.plan.ops && server.posted_count >= self.plan.messages;
        posted_count && self.endpoints.iter().all(|end| end.open == 0 && end.incoming.is_empty())
    }
}
