//! How to connect, accept and reject, beside to whom.
//!
//! Everything has a default from the configuration and the queue pair. What is asked for is checked here, so that the
//! core has nothing to refuse, and travels there in one box, which comes back to be freed.

use ironwarp_iwarp::mpa::startup::{READS_UNNEGOTIATED, ReadDepths, RtrKinds};
use ironwarp_types::Nanos;

use crate::config::{Extensions, MpaConfig};
use crate::error::VerbsError;
use crate::event::PrivateData;

/// A revision of MPA.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MpaRevision {
    /// RFC 5044: numbers of Reads are for the applications to agree on.
    One,
    /// RFC 6581: they are negotiated.
    Two,
}

impl MpaRevision {
    pub(super) fn number(self) -> u8 {
        match self {
            MpaRevision::One => 1,
            MpaRevision::Two => 2,
        }
    }
}

/// How to connect. `None` is what the configuration, or the queue pair, says.
#[derive(Clone, Copy, Debug, Default)]
pub struct ConnectParams<'a> {
    /// What the far application is told: at most 251 bytes in revision 2, 255 in revision 1; 508 and 512 with
    /// `mpa.long_private_data`.
    pub private_data: &'a [u8],
    /// The revision to begin with.
    pub revision: Option<MpaRevision>,
    /// The numbers of Reads to offer, at most those that the queue pair was made for, or [`READS_UNNEGOTIATED`] to
    /// leave one as it is and to the applications.
    pub reads: Option<ReadDepths>,
    /// Whether either side may speak first (RFC 6581 s9.2). Costs one message without data.
    pub peer_to_peer: Option<bool>,
    /// The indications that can begin the peer-to-peer model.
    pub rtr: Option<RtrKinds>,
    /// How long to wait before the first message.
    pub first_fpdu_holdoff: Option<Nanos>,
    /// What the connection carries beside the operations of RFC 5040. The peer is not asked.
    pub extensions: Option<Extensions>,
}

/// How to accept. `None` is what the configuration, or the queue pair, says.
#[derive(Clone, Copy, Debug, Default)]
pub struct AcceptParams<'a> {
    /// What the far application is told.
    pub private_data: &'a [u8],
    /// The numbers of Reads to answer with, at most those that the queue pair was made for.
    pub reads: Option<ReadDepths>,
    /// The indications that are taken in the peer-to-peer model.
    pub rtr: Option<RtrKinds>,
    /// What the connection carries beside the operations of RFC 5040. The peer is not asked.
    pub extensions: Option<Extensions>,
}

/// How to reject.
#[derive(Clone, Copy, Debug, Default)]
pub struct RejectParams<'a> {
    /// What the far application is told.
    pub private_data: &'a [u8],
    /// The numbers of Reads that would do (RFC 6581 s9.1). Revision 1 has no place for them.
    pub wanted: Option<ReadDepths>,
}

/// What a connection is begun or answered with, on its way to the core.
pub(crate) struct Parcel {
    pub(crate) private_data: PrivateData,
    pub(crate) terms: Terms,
}

/// What was asked for; what was not comes from the configuration or the queue pair.
#[derive(Clone, Copy, Default)]
pub(crate) struct Terms {
    pub(crate) revision: u8,
    pub(crate) reads: Option<ReadDepths>,
    pub(crate) peer_to_peer: Option<bool>,
    pub(crate) rtr: Option<RtrKinds>,
    pub(crate) holdoff: Option<Nanos>,
}

impl ConnectParams<'_> {
    pub(super) fn parcel(
        &self,
        mpa: &MpaConfig,
        revision: u8,
        most: ReadDepths,
    ) -> Result<Box<Parcel>, VerbsError> {
        check_reads(self.reads, most, true)?;
        let ConnectParams { reads, peer_to_peer, rtr, first_fpdu_holdoff: holdoff, .. } = *self;
        let terms = Terms { revision, reads, peer_to_peer, rtr, holdoff };
        boxed(self.private_data, mpa.private_data_bytes(revision > 1), terms)
    }
}

impl AcceptParams<'_> {
    pub(super) fn parcel(
        &self,
        mpa: &MpaConfig,
        enhanced: bool,
        most: ReadDepths,
    ) -> Result<Box<Parcel>, VerbsError> {
        check_reads(self.reads, most, false)?;
        let terms = Terms { reads: self.reads, rtr: self.rtr, ..Terms::default() };
        boxed(self.private_data, mpa.private_data_bytes(enhanced), terms)
    }
}

impl RejectParams<'_> {
    pub(super) fn parcel(&self, mpa: &MpaConfig, enhanced: bool) -> Result<Box<Parcel>, VerbsError> {
        boxed(
            self.private_data,
            mpa.private_data_bytes(enhanced),
            Terms { reads: self.wanted, ..Terms::default() },
        )
    }
}

fn boxed(said: &[u8], bytes_max: usize, terms: Terms) -> Result<Box<Parcel>, VerbsError> {
    if said.len() > bytes_max {
        return Err(VerbsError::PrivateDataTooLong(said.len()));
    }
    let private_data = PrivateData::try_from(said).map_err(|_| VerbsError::PrivateDataTooLong(said.len()))?;
    Ok(Box::new(Parcel { private_data, terms }))
}

fn check_reads(asked: Option<ReadDepths>, most: ReadDepths, may_leave: bool) -> Result<(), VerbsError> {
    let Some(asked) = asked else { return Ok(()) };
    for (what, value, most) in
        [("inbound reads", asked.ird, most.ird), ("outbound reads", asked.ord, most.ord)]
    {
        if value > most && !(may_leave && value == READS_UNNEGOTIATED) {
            let allowed = "at most what the queue pair was made for";
            return Err(VerbsError::Attribute { what, value: value.into(), allowed });
        }
    }
    Ok(())
}
