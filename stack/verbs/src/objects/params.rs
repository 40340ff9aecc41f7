//! Parameters of connect, accept and reject.
//!
//! Everything has a default from the configuration and the queue pair. Parameters are checked here, so the core
//! cannot refuse them. They are sent to the core in one box, which the core returns to be freed.

use ironwarp_iwarp::mpa::startup::{READS_UNNEGOTIATED, ReadDepths, RtrKinds};
use ironwarp_types::Nanos;

use crate::config::{Extensions, MpaConfig};
use crate::error::VerbsError;
use crate::event::PrivateData;

/// An MPA revision.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MpaRevision {
    /// RFC 5044: the applications agree on read depths.
    One,
    /// RFC 6581: read depths are negotiated.
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

/// The parameters of a connect. `None`: as configured, or as in the queue pair.
#[derive(Clone, Copy, Debug, Default)]
pub struct ConnectParams<'a> {
    /// Private data for the peer's application: at most 251 bytes in revision 2, 255 in revision 1; 508 and 512 with
    /// `mpa.long_private_data`.
    pub private_data: &'a [u8],
    /// The first revision to try.
    pub revision: Option<MpaRevision>,
    /// The read depths to offer, at most those of the queue pair, or [`READS_UNNEGOTIATED`] to keep one and leave it
    /// to the applications.
    pub reads: Option<ReadDepths>,
    /// Whether either side may send first (RFC 6581 s9.2). Costs one message without data.
    pub peer_to_peer: Option<bool>,
    /// The permitted kinds of ready-to-receive indication.
    pub rtr: Option<RtrKinds>,
    /// The delay before the first message.
    pub first_fpdu_holdoff: Option<Nanos>,
    /// The operations of the connection besides those of RFC 5040. They are not negotiated.
    pub extensions: Option<Extensions>,
}

/// The parameters of an accept. `None`: as configured, or as in the queue pair.
#[derive(Clone, Copy, Debug, Default)]
pub struct AcceptParams<'a> {
    /// Private data for the peer's application.
    pub private_data: &'a [u8],
    /// The read depths of the reply, at most those of the queue pair.
    pub reads: Option<ReadDepths>,
    /// The accepted kinds of ready-to-receive indication.
    pub rtr: Option<RtrKinds>,
    /// The operations of the connection besides those of RFC 5040. They are not negotiated.
    pub extensions: Option<Extensions>,
}

/// The parameters of a reject.
#[derive(Clone, Copy, Debug, Default)]
pub struct RejectParams<'a> {
    /// Private data for the peer's application.
    pub private_data: &'a [u8],
    /// The read depths that would be accepted (RFC 6581 s9.1). Revision 1 does not carry them.
    pub reads: Option<ReadDepths>,
}

/// The parameters of a start-up, on their way to the core.
pub(crate) struct CmParams {
    pub(crate) private_data: PrivateData,
    pub(crate) mpa_params: MpaParams,
}

/// The requested parameters; the others come from the configuration or the queue pair.
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
