//! Checks the connection events of an application: which may occur, and in which state.

use ironwarp::{AcceptParams, ConnectionRequest, DisconnectReason, Event, PrivateData, QueuePair, Terminate};
use ironwarp_types::Nanos;

use super::{AtomicsApp, CLIENT, SERVER};
use crate::app::lifecycle::session_of;
use crate::atomics::atomics_oracle::EndpointStage;
use crate::plan::{AtomicsConnEnding, BadAtomic};

impl AtomicsApp {
    pub(super) fn on_event(&mut self, now: Nanos, event: Event) {
        let (qp, what) = match event {
            Event::ConnectRequest { request, private_data, .. } => {
                self.on_request(now, &request, &private_data);
                return self.requests.begin(request);
            }
            Event::RequestEnded { request } => {
                let outcome = self.requests.end(&request);
                return outcome.unwrap_or_else(|fault| self.report_failure(usize::MAX, &fault));
            }
            Event::Established { qp, .. } => (qp, ConnEvent::Up),
            Event::CommunicationEstablished { .. } => return,
            Event::Rejected { qp, .. } | Event::ConnectFailed { qp, .. } => (qp, ConnEvent::Failed),
            Event::Terminated { qp, sent, terminate } => (qp, ConnEvent::Terminated(sent, terminate)),
            Event::Disconnected { qp, reason } => (qp, ConnEvent::Ended(reason)),
            other => return self.report_failure(usize::MAX, &format!("unexpected event: {other:?}")),
        };
        self.on_conn_event(now, qp, what);
    }

    fn on_conn_event(&mut self, now: Nanos, qp: QueuePair, event: ConnEvent) {
        if self.retired.contains(&qp.num().0) {
            return;
        }
        let Some(&conn) = self.by_qp.get(&qp.num().0) else {
            return self
                .report_failure(usize::MAX, &format!("an event for an unknown queue pair: {event:?}"));
        };
        self.oracle.borrow_mut().hash_event(now, conn, self.role, &[0xff, event.number()]);
        let outcome = match event {
            ConnEvent::Up => {
                self.atomics_oracle.borrow_mut().conns[conn].endpoints[self.role].stage = EndpointStage::Up;
                self.oracle.borrow_mut().totals.established += u64::from(self.role == CLIENT);
                Ok(())
            }
            ConnEvent::Failed => {
                self.schedule_retry(now, conn);
                Ok(())
            }
            ConnEvent::Terminated(sent, terminate) => self.on_terminated(conn, sent, terminate),
            ConnEvent::Ended(reason) => self.on_ended(now, conn, reason),
        };
        if let Err(fault) = outcome {
            self.report_failure(conn, &fault);
        }
    }

    /// RFC 7306 s8: only a bad request ends a connection by a Terminate, which names the error. The error of an
    /// invalidated tag is that of an unknown tag.
    fn on_terminated(&mut self, conn: usize, sent: bool, terminate: Terminate) -> Result<(), String> {
        let (faulty, undetected_corruption) = {
            let mut oracle = self.oracle.borrow_mut();
            oracle.totals.terminated += 1;
            (oracle.faulty, oracle.undetected_corruption)
        };
        let conn = &mut self.atomics_oracle.borrow_mut().conns[conn];
        let end = &mut conn.endpoints[self.role];
        end.terminates += 1;
        end.terminated_on_clean_link = sent && !faulty;
        if undetected_corruption {
            // A failed CRC, or whatever the damage became.
            (conn.is_ending, conn.is_damaged) = (true, true);
            return Ok(());
        }
        let found = (terminate.layer, terminate.etype, terminate.code);
        if conn.may_be_refused() && found == BadAtomic::Unknown.terminate() && sent == (self.role == SERVER) {
            conn.is_ending = true;
            return Ok(());
        }
        match conn.plan.ending {
            AtomicsConnEnding::BadAtomic { bad_atomic, .. }
                if conn.bad_atomic_posted
                    && found == bad_atomic.terminate()
                    && sent == (self.role == SERVER) =>
            {
                Ok(())
            }
            ending => {
                Err(format!("a Terminate {terminate}, sent {sent}, but the planned ending is {ending:?}"))
            }
        }
    }

    fn on_ended(&mut self, now: Nanos, conn: usize, reason: DisconnectReason) -> Result<(), String> {
        self.complete_unsignaled(conn)?;
        let undetected_corruption = self.oracle.borrow().undetected_corruption;
        let was_heard = {
            let conn = &mut self.atomics_oracle.borrow_mut().conns[conn];
            conn.endpoints[self.role].was_aborted = matches!(
                reason,
                DisconnectReason::Reset | DisconnectReason::TimedOut | DisconnectReason::Unreachable
            );
            // The peer may have received the connection request of a client whose attempt failed.
            let was_heard = self.role == SERVER && conn.endpoints[CLIENT].stage != EndpointStage::Up;
            if undetected_corruption && !was_heard {
                (conn.is_ending, conn.is_damaged) = (true, true);
            }
            if !conn.is_ending && !was_heard {
                return Err(format!("the connection ended by {reason:?}, with work left"));
            }
            was_heard && !conn.is_ending
        };
        if was_heard {
            self.schedule_retry(now, conn)
        } else {
            self.destroy_and_leave(now, conn)
        }
        Ok(())
    }

    /// A client's connection request: prepares the connection that it names, and resets it after an earlier failed
    /// attempt.
    fn on_request(&mut self, now: Nanos, request: &ConnectionRequest, private_data: &PrivateData) {
        let named = session_of(private_data).filter(|conn| *conn < self.atomics_oracle.borrow().conns.len());
        let Some(conn) = named else {
            if self.oracle.borrow().undetected_corruption {
                // The client gets the rejection, or nothing, and tries again.
                let _ = self.ctx.reject(request, b"damaged");
                return;
            }
            return self.report_failure(
                usize::MAX,
                &format!("a connection request has the private data {private_data:?}"),
            );
        };
        self.oracle.borrow_mut().hash_event(now, conn, self.role, &[0xfe]);
        let is_wanted =
            self.atomics_oracle.borrow().conns[conn].endpoints[CLIENT].stage == EndpointStage::Connecting;
        if !is_wanted {
            // The connection was given up meanwhile.
            let _ = self.ctx.reject(request, b"too late");
            return;
        }
        self.destroy_conn_qp(conn);
        self.atomics_oracle.borrow_mut().conns[conn].reset(SERVER);
        let extensions = Some(self.atomics_oracle.borrow().plan.extensions);
        let outcome = self.create_conn_qp(conn).and_then(|qp| {
            self.ctx.accept_with(request, qp, &AcceptParams { extensions, ..AcceptParams::default() })?;
            // The tags are bound before the client's first message can arrive.
            self.bind_names(conn)
        });
        match outcome {
            Ok(()) => {
                self.atomics_oracle.borrow_mut().conns[conn].endpoints[SERVER].stage =
                    EndpointStage::Connecting
            }
            Err(error) => {
                self.report_failure(conn, &format!("a connection request could not be accepted: {error}"))
            }
        }
    }
}

/// A connection event of a queue pair.
#[derive(Debug)]
enum ConnEvent {
    Up,
    Failed,
    Terminated(bool, Terminate),
    Ended(DisconnectReason),
}

impl ConnEvent {
    fn number(&self) -> u8 {
        match self {
            ConnEvent::Up => 1,
            ConnEvent::Failed => 2,
            ConnEvent::Terminated(..) => 3,
            ConnEvent::Ended(_) => 4,
        }
    }
}
