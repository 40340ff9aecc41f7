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
    pub(crate) fn number(self) -> u8 {
        match self {
            MpaRevision::One => 1,
            MpaRevision::Two => 2,
        }
    }
}

/// How to connect. `None` is what the configuration, or the queue pair, says.
#[derive(Clone, Copy, Debug, Default)]
pub struct ConnectParams<'a> {
    /// Private data for the peer's application: at most 251 bytes in revision 2, 255 in revision 1; 508 and 512 with
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
    /// Private data for the peer's application.
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
    /// Private data for the peer's application.
    pub private_data: &'a [u8],
    /// The numbers of Reads that would do (RFC 6581 s9.1). Revision 1 has no place for them.
    pub reads: Option<ReadDepths>,
}

/// What a connection is begun or answered with, on its way to the core.
pub(crate) struct CmParams {
    pub(crate) private_data: PrivateData,
    pub(crate) mpa_params: MpaParams,
}

/// What was asked for; what was not comes from the configuration or the queue pair.
#[derive(Clone, Copy, Default)]
pub(crate) struct MpaParams {
    pub(crate) revision: u8,
    pub(crate) reads: Option<ReadDepths>,
    pub(crate) peer_to_peer: Option<bool>,
    pub(crate) rtr: Option<RtrKinds>,
    pub(crate) holdoff: Option<Nanos>,
}

impl ConnectParams<'_> {
    pub(crate) fn cm_params(
        &self,
        mpa: &MpaConfig,
        revision: u8,
        most: ReadDepths,
    ) -> Result<Box<CmParams>, VerbsError> {
        check_reads(self.reads, most, true)?;
        let ConnectParams { reads, peer_to_peer, rtr, first_fpdu_holdoff: holdoff, .. } = *self;
        let mpa_params = MpaParams { revision, reads, peer_to_peer, rtr, holdoff };
        build_cm_params(self.private_data, mpa.private_data_bytes(revision > 1), mpa_params)
    }
}

impl AcceptParams<'_> {
    pub(crate) fn cm_params(
        &self,
        mpa: &MpaConfig,
        enhanced: bool,
        most: ReadDepths,
    ) -> Result<Box<CmParams>, VerbsError> {
        check_reads(self.reads, most, false)?;
        let mpa_params = MpaParams { reads: self.reads, rtr: self.rtr, ..MpaParams::default() };
        build_cm_params(self.private_data, mpa.private_data_bytes(enhanced), mpa_params)
    }
}

impl RejectParams<'_> {
    pub(crate) fn cm_params(&self, mpa: &MpaConfig, enhanced: bool) -> Result<Box<CmParams>, VerbsError> {
        build_cm_params(
            self.private_data,
            mpa.private_data_bytes(enhanced),
            MpaParams { reads: self.reads, ..MpaParams::default() },
        )
    }
}

fn build_cm_params(
    private_data: &[u8],
    bytes_max: usize,
    mpa_params: MpaParams,
) -> Result<Box<CmParams>, VerbsError> {
    if private_data.len() > bytes_max {
        return Err(VerbsError::PrivateDataTooLong(private_data.len()));
    }
    let private_data = PrivateData::try_from(private_data)
        .map_err(|_| VerbsError::PrivateDataTooLong(private_data.len()))?;
    Ok(Box::new(CmParams { private_data, mpa_params }))
}

fn check_reads(
    requested: Option<ReadDepths>,
    most: ReadDepths,
    allow_unnegotiated: bool,
) -> Result<(), VerbsError> {
    let Some(requested) = requested else { return Ok(()) };
    for (what, value, most) in [("ird", requested.ird, most.ird), ("ord", requested.ord, most.ord)] {
        if value > most && !(allow_unnegotiated && value == READS_UNNEGOTIATED) {
            let allowed = "at most what the queue pair was made for";
            return Err(VerbsError::OutOfRange { what, value: value.into(), allowed });
        }
    }
    Ok(())
}
