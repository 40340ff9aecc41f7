//! The framing of a stream that is over TCP or over SCTP.

use ironwarp_iwarp::Framing;
use ironwarp_iwarp::framing::OnePassFrame;
use ironwarp_iwarp::mpa::Mpa;
use ironwarp_iwarp::sctp::SegmentChunk;
use serde::{Deserialize, Serialize};

/// MPA, unless there are the chunks of SCTP.
#[derive(Clone, Copy, Default, Serialize, Deserialize)]
pub struct EitherFraming {
    mpa: Mpa,
    chunks: Option<SegmentChunk>,
}

impl EitherFraming {
    #[inline(always)]
    pub(super) fn is_sctp(&self) -> bool {
        self.chunks.is_some()
    }
}

impl From<Mpa> for EitherFraming {
    fn from(mpa: Mpa) -> Self {
        EitherFraming { mpa, chunks: None }
    }
}

impl From<SegmentChunk> for EitherFraming {
    fn from(chunks: SegmentChunk) -> Self {
        EitherFraming { mpa: Mpa::default(), chunks: Some(chunks) }
    }
}

impl AsRef<Mpa> for EitherFraming {
    #[inline(always)]
    fn as_ref(&self) -> &Mpa {
        &self.mpa
    }
}

impl AsMut<Mpa> for EitherFraming {
    #[inline(always)]
    fn as_mut(&mut self) -> &mut Mpa {
        &mut self.mpa
    }
}

/// Calls a method of the framing in use.
macro_rules! in_use {
    ($self:ident, $framing:ident => $call:expr) => {
        match &$self.chunks {
            Some($framing) => $call,
            None => {
                let $framing = &$self.mpa;
                $call
            }
        }
    };
    (mut $self:ident, $framing:ident => $call:expr) => {
        match &mut $self.chunks {
            Some($framing) => $call,
            None => {
                let $framing = &mut $self.mpa;
                $call
            }
        }
    };
}

impl Framing for EitherFraming {
    #[inline(always)]
    fn head_bytes(&self) -> usize {
        in_use!(self, framing => framing.head_bytes())
    }

    #[inline(always)]
    fn overhead_bytes(&self) -> usize {
        in_use!(self, framing => framing.overhead_bytes())
    }

    #[inline(always)]
    fn shares_units(&self) -> bool {
        in_use!(self, framing => framing.shares_units())
    }

    fn is_ready(&self) -> bool {
        in_use!(self, framing => framing.is_ready())
    }

    #[inline(always)]
    fn usable(&self, room: usize) -> usize {
        in_use!(self, framing => framing.usable(room))
    }

    #[inline(always)]
    fn mulpdu(&self, usable: usize) -> usize {
        in_use!(self, framing => framing.mulpdu(usable))
    }

    #[inline(always)]
    fn fits(&self, ulpdu_bytes: usize, usable: usize) -> bool {
        in_use!(self, framing => framing.fits(ulpdu_bytes, usable))
    }

    #[inline(always)]
    fn complete(&mut self, room: &mut [u8], ulpdu_bytes: usize) -> usize {
        in_use!(mut self, framing => framing.complete(room, ulpdu_bytes))
    }

    fn is_fast(&self) -> bool {
        in_use!(self, framing => framing.is_fast())
    }

    #[inline(always)]
    fn complete_fast<const SUMMED: bool>(
        &mut self,
        room: &mut [u8],
        ulpdu_bytes: usize,
    ) -> (usize, Option<u32>) {
        in_use!(mut self, framing => framing.complete_fast::<SUMMED>(room, ulpdu_bytes))
    }

    #[inline(always)]
    fn on_acked(&mut self, total_bytes: u64) {
        in_use!(mut self, framing => framing.on_acked(total_bytes));
    }

    #[inline(always)]
    fn in_one_pass<'a>(
        &self,
        room: &'a mut [u8],
        header_bytes: usize,
        payload_bytes: usize,
    ) -> Option<OnePassFrame<'a>> {
        in_use!(self, framing => framing.in_one_pass(room, header_bytes, payload_bytes))
    }

    fn finds_frames_out_of_order(&self) -> bool {
        in_use!(self, framing => framing.finds_frames_out_of_order())
    }
}
