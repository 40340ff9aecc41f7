//! Listening, connecting, accepting, rejecting, disconnecting.
//!
//! Every call only asks; the outcome comes as an [`Event`](crate::Event).

use core::borrow::Borrow;
use core::net::SocketAddr;

use super::{Context, QueuePair};
use crate::error::VerbsError;
use crate::event::{ConnectionRequest, PrivateData};
use crate::link::Control;

impl Context {
    /// Takes connections for `local`. Peers come as [`Event::ConnectRequest`](crate::Event::ConnectRequest); an
    /// address that is taken already comes as [`Event::ListenFailed`](crate::Event::ListenFailed).
    pub fn listen(&mut self, local: SocketAddr) -> Result<(), VerbsError> {
        (0..self.cores.len()).try_for_each(|core| self.control(core, Control::Listen { local }))
    }

    /// Takes no more connections for `local`. Those already made stay.
    pub fn unlisten(&mut self, local: SocketAddr) -> Result<(), VerbsError> {
        (0..self.cores.len()).try_for_each(|core| self.control(core, Control::Unlisten { local }))
    }

    /// Connects an idle queue pair to `remote`, telling the far application `private_data`, at most 512 bytes.
    pub fn connect(
        &mut self,
        qp: QueuePair,
        remote: SocketAddr,
        private_data: &[u8],
    ) -> Result<(), VerbsError> {
        let private_data = boxed(private_data)?;
        let core = 0;
        self.expect_room(core.into(), 2)?;
        let (slot, half) = self.settle(qp, core)?;
        self.control(core.into(), Control::CreateQp(half))?;
        self.control(core.into(), Control::Connect { slot, remote, private_data })
    }

    /// Accepts a request with an idle queue pair, telling the far application `private_data`. A request given by
    /// reference can still be answered when this fails; a second answer to one that was answered fails as an event.
    pub fn accept(
        &mut self,
        request: impl Borrow<ConnectionRequest>,
        qp: QueuePair,
        private_data: &[u8],
    ) -> Result<(), VerbsError> {
        let request = request.borrow();
        let private_data = boxed(private_data)?;
        let core = usize::from(request.core);
        self.expect_room(core, 2)?;
        let (slot, half) = self.settle(qp, request.core)?;
        self.control(core, Control::CreateQp(half))?;
        self.control(
            core,
            Control::Accept { request: (request.slot, request.generation), slot, private_data },
        )
    }

    /// Refuses a request, telling the far application why.
    pub fn reject(
        &mut self,
        request: impl Borrow<ConnectionRequest>,
        private_data: &[u8],
    ) -> Result<(), VerbsError> {
        let request = request.borrow();
        let private_data = boxed(private_data)?;
        let core = usize::from(request.core);
        self.control(core, Control::Reject { request: (request.slot, request.generation), private_data })
    }

    /// Closes the connection once everything posted has been sent and acknowledged. Nothing more may be posted.
    pub fn disconnect(&mut self, qp: QueuePair) -> Result<(), VerbsError> {
        let (core, slot) = self.home(qp)?;
        self.control(core, Control::Disconnect { slot })
    }

    /// Fails unless `messages` can be sent to a core now, so that a call of several is carried out whole or not at all.
    pub(super) fn expect_room(&mut self, core: usize, messages: usize) -> Result<(), VerbsError> {
        if self.shared.cores.get(core).is_none_or(|core| core.has_left()) {
            return Err(VerbsError::WorkerGone);
        }
        let link = self.cores.get_mut(core).ok_or(VerbsError::WorkerGone)?;
        if link.control.free() < messages { Err(VerbsError::Busy) } else { Ok(()) }
    }

    /// Sends a message to a core.
    pub(super) fn control(&mut self, core: usize, message: Control) -> Result<(), VerbsError> {
        self.expect_room(core, 1)?;
        let link = self.cores.get_mut(core).ok_or(VerbsError::WorkerGone)?;
        link.control.push(message).map_err(|_| VerbsError::Busy)
    }
}

fn boxed(bytes: &[u8]) -> Result<Box<PrivateData>, VerbsError> {
    let data = PrivateData::try_from(bytes).map_err(|_| VerbsError::PrivateDataTooLong(bytes.len()))?;
    Ok(Box::new(data))
}
