//! What an application is told of its connections, and which of it may be told when.

use ironwarp::{AcceptParams, ConnectionRequest, DisconnectReason, Event, PrivateData, QueuePair, Terminate};
use ironwarp_types::Nanos;

use super::{CALLER, KEEPER, Operator};
use crate::app::life::session_of;
use crate::atomics::desk::Stage;
use crate::plan::{CallEnding, Wrong};

impl Operator {
    pub(super) fn on_event(&mut self, now: Nanos, event: Event) {
        let (qp, what) = match event {
            Event::ConnectRequest { request, private_data, .. } => {
                return self.on_request(now, request, &private_data);
            }
            Event::Established { qp, .. } => (qp, News::Up),
            Event::Communicating { .. } => return,
            Event::Rejected { qp, .. } | Event::ConnectFailed { qp, .. } => (qp, News::Failed),
            Event::Terminated { qp, sent, terminate } => (qp, News::Terminated(sent, terminate)),
            Event::Disconnected { qp, reason } => (qp, News::Ended(reason)),
            other => return self.blame(usize::MAX, &format!("unexpected news: {other:?}")),
        };
        self.on_news(now, qp, what);
    }

    fn on_news(&mut self, now: Nanos, qp: QueuePair, news: News) {
        if self.retired.contains(&qp.num().0) {
            return;
        }
        let Some(&call) = self.by_qp.get(&qp.num().0) else {
            return self.blame(usize::MAX, &format!("news of no queue pair: {news:?}"));
        };
        self.ledger.borrow_mut().note(now, call, self.role, &[0xff, news.number()]);
        let outcome = match news {
            News::Up => {
                self.desk.borrow_mut().calls[call].ends[self.role].stage = Stage::Up;
                self.ledger.borrow_mut().totals.established += u64::from(self.role == CALLER);
                Ok(())
            }
            News::Failed => {
                self.try_again(now, call);
                Ok(())
            }
            News::Terminated(sent, terminate) => self.on_terminated(call, sent, terminate),
            News::Ended(reason) => self.on_ended(now, call, reason),
        };
        if let Err(fault) = outcome {
            self.blame(call, &fault);
        }
    }

    /// RFC 7306 s8: only a wrong request ends a connection so, and the error has its name; that of a name which has ended is
    /// the one of a tag that nobody has.
    fn on_terminated(&mut self, call: usize, sent: bool, terminate: Terminate) -> Result<(), String> {
        let faulty = self.ledger.borrow().faulty;
        self.ledger.borrow_mut().totals.terminated += 1;
        let call = &mut self.desk.borrow_mut().calls[call];
        let end = &mut call.ends[self.role];
        end.terminates += 1;
        end.terminated_well = sent && !faulty;
        let found = (terminate.layer, terminate.etype, terminate.code);
        if call.may_be_refused() && found == Wrong::Unknown.terminate() && sent == (self.role == KEEPER) {
            call.is_ending = true;
            return Ok(());
        }
        match call.plan.ending {
            CallEnding::Wrong { wrong, .. }
                if call.is_wrong && found == wrong.terminate() && sent == (self.role == KEEPER) =>
            {
                Ok(())
            }
            ending => {
                Err(format!("a Terminate {terminate}, sent {sent}, where the end was to be {ending:?}"))
            }
        }
    }

    fn on_ended(&mut self, now: Nanos, call: usize, reason: DisconnectReason) -> Result<(), String> {
        self.settle_silent(call)?;
        let was_heard = {
            let call = &mut self.desk.borrow_mut().calls[call];
            call.ends[self.role].was_cut_off =
                matches!(reason, DisconnectReason::Reset | DisconnectReason::TimedOut);
            // A caller whose attempt failed may have been heard all the same.
            let was_heard = self.role == KEEPER && call.ends[CALLER].stage != Stage::Up;
            if !call.is_ending && !was_heard {
                return Err(format!("the connection ended by {reason:?}, with work left"));
            }
            was_heard && !call.is_ending
        };
        if was_heard {
            self.try_again(now, call)
        } else {
            self.give_up(now, call)
        }
        Ok(())
    }

    /// A caller asks: the connection that it names is prepared, anew where an attempt before this one came so far.
    fn on_request(&mut self, now: Nanos, request: ConnectionRequest, private_data: &PrivateData) {
        let named = session_of(private_data).filter(|call| *call < self.desk.borrow().calls.len());
        let Some(call) = named else {
            return self.blame(usize::MAX, &format!("a request says {private_data:?}"));
        };
        self.ledger.borrow_mut().note(now, call, self.role, &[0xfe]);
        let is_wanted = self.desk.borrow().calls[call].ends[CALLER].stage == Stage::Connecting;
        if !is_wanted {
            // It was given up meanwhile.
            let _ = self.ctx.reject(&request, b"too late");
            return;
        }
        self.drop_line(call);
        self.desk.borrow_mut().calls[call].begin_again(KEEPER);
        let extensions = Some(self.desk.borrow().plan.extensions);
        let outcome = self.make_line(call).and_then(|qp| {
            self.ctx.accept_with(&request, qp, &AcceptParams { extensions, ..AcceptParams::default() })?;
            // They are bound before the caller's first message can come.
            self.name_words(call)
        });
        match outcome {
            Ok(()) => self.desk.borrow_mut().calls[call].ends[KEEPER].stage = Stage::Connecting,
            Err(error) => self.blame(call, &format!("a request could not be answered: {error}")),
        }
    }
}

/// What a queue pair's news says.
#[derive(Debug)]
enum News {
    Up,
    Failed,
    Terminated(bool, Terminate),
    Ended(DisconnectReason),
}

impl News {
    fn number(&self) -> u8 {
        match self {
            News::Up => 1,
            News::Failed => 2,
            News::Terminated(..) => 3,
            News::Ended(_) => 4,
        }
    }
}
