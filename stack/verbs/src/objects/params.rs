//! Parameters of connect, accept and reject.
//!
//! Everything has a default from the configuration and the queue pair. Parameters are checked here,
//! so the core cannot refuse them. They are sent to the core in one box. The core also uses the box
//! for the frame that it sends, and for the private data that it receives, so it allocates neither.

use core::net::SocketAddr;

use arrayvec::ArrayVec;
use ironwarp_iwarp::mpa::startup::{FrameBytes, StartupFrameSource};
use ironwarp_iwarp::setup::{READS_UNNEGOTIATED, ReadDepths, RtrKinds};
use ironwarp_types::Nanos;
use ironwarp_types::limits::PRIVATE_DATA_BYTES_MAX;

use crate::config::{Extensions, MpaConfig, TransportKind};
use crate::error::VerbsError;

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
    /// The transport. `None`: the first of `stack.transport`.
    pub transport: Option<TransportKind>,
    /// The local address to connect from. `None`: an address that reaches the peer, with a free
    /// port; so does an unspecified address, and port 0 selects a free port. On a stack of several
    /// cores the flow determines the core of the queue pair, so a port needs an address with it
    /// there.
    pub source: Option<SocketAddr>,
    /// Private data for the peer's application: at most 251 bytes in revision 2, 255 in revision 1;
    /// 508 and 512 with `mpa.long_private_data`.
    pub private_data: &'a [u8],
    /// The first revision to try.
    pub revision: Option<MpaRevision>,
    /// The read depths to offer, at most those of the queue pair, or [`READS_UNNEGOTIATED`] to keep
    /// one and leave it to the applications.
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

/// The parameters of a listen.
#[derive(Clone, Copy, Debug, Default)]
pub struct ListenParams {
    /// The transport. `None`: the first of `stack.transport`. TCP and SCTP may have one address and
    /// port.
    pub transport: Option<TransportKind>,
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
    /// The application has too many requests that wait for it. The peer is not told; a counter of
    /// its own counts it.
    pub is_backlog_full: bool,
}

/// The parameters of a start-up, on their way to the core, or received private data on its way to
/// the context.
#[derive(Clone, Default)]
pub(crate) struct CmParams {
    /// The requested local address, in canonical form.
    pub(crate) source: Option<SocketAddr>,
    /// Of a reject, why.
    pub(crate) is_backlog_full: bool,
    pub(crate) mpa_params: MpaParams,
    bytes: StartupBytes,
}

/// Private data, alone or in a frame: one buffer serves both.
#[derive(Clone)]
enum StartupBytes {
    PrivateData(ArrayVec<u8, PRIVATE_DATA_BYTES_MAX>),
    /// A Request or Reply Frame that is being sent. It ends with the private data.
    Frame {
        source: StartupFrameSource,
        private_data_bytes: usize,
    },
}

impl Default for StartupBytes {
    fn default() -> Self {
        StartupBytes::PrivateData(ArrayVec::new())
    }
}

impl CmParams {
    pub(crate) fn private_data(&self) -> &[u8] {
        match &self.bytes {
            StartupBytes::PrivateData(data) => data,
            StartupBytes::Frame { source, private_data_bytes } => {
                let frame = source.frame();
                frame.get(frame.len().saturating_sub(*private_data_bytes)..).unwrap_or_default()
            }
        }
    }

    /// Replaces the private data. Bytes beyond the longest private data of a frame are left out.
    pub(crate) fn set_private_data(&mut self, bytes: &[u8]) {
        let fits = bytes.get(..bytes.len().min(PRIVATE_DATA_BYTES_MAX)).unwrap_or_default();
        self.bytes = StartupBytes::default();
        if let StartupBytes::PrivateData(data) = &mut self.bytes {
            let _ = data.try_extend_from_slice(fits);
        }
    }

    /// Stores a frame that carries this private data.
    pub(crate) fn set_frame(&mut self, frame: FrameBytes) {
        let private_data_bytes = self.private_data().len();
        self.bytes = StartupBytes::Frame { source: StartupFrameSource::new(frame), private_data_bytes };
    }

    /// Returns the frame that is being sent.
    pub(crate) fn frame(&mut self) -> Option<&mut StartupFrameSource> {
        match &mut self.bytes {
            StartupBytes::Frame { source, .. } => Some(source),
            StartupBytes::PrivateData(_) => None,
        }
    }

    /// Returns the length of the frame if TCP has pulled all of it.
    pub(crate) fn sent_frame_bytes(&self) -> Option<usize> {
        match &self.bytes {
            StartupBytes::Frame { source, .. } if source.is_done() => Some(source.frame_bytes()),
            _ => None,
        }
    }
}

/// The requested parameters; the others come from the configuration or the queue pair.
#[derive(Clone, Copy, Default)]
pub struct MpaParams {
    /// The transport of a request.
    pub transport: TransportKind,
    /// The first revision to try.
    pub revision: u8,
    /// The read depths to offer.
    pub reads: Option<ReadDepths>,
    /// Whether either side may send first.
    pub peer_to_peer: Option<bool>,
    /// The permitted kinds of ready-to-receive indication.
    pub rtr: Option<RtrKinds>,
    /// The delay before the first message.
    pub holdoff: Option<Nanos>,
}

impl ConnectParams<'_> {
    pub(crate) fn cm_params(
        &self,
        mpa: &MpaConfig,
        transport: TransportKind,
        revision: u8,
        most: ReadDepths,
    ) -> Result<Box<CmParams>, VerbsError> {
        check_reads(self.reads, most, true)?;
        let ConnectParams { reads, peer_to_peer, rtr, first_fpdu_holdoff: holdoff, .. } = *self;
        let mpa_params = MpaParams { transport, revision, reads, peer_to_peer, rtr, holdoff };
        let mut params =
            build_cm_params(self.private_data, mpa.private_data_bytes(revision > 1), mpa_params)?;
        params.source = self.canonical_source();
        Ok(params)
    }

    /// Returns the requested source. An IPv4-mapped address (RFC 4291 s2.5.5.2) means the IPv4
    /// address.
    pub(crate) fn canonical_source(&self) -> Option<SocketAddr> {
        self.source.map(|source| SocketAddr::new(source.ip().to_canonical(), source.port()))
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
        let mpa_params = MpaParams { reads: self.reads, ..MpaParams::default() };
        let mut params = build_cm_params(self.private_data, mpa.private_data_bytes(enhanced), mpa_params)?;
        params.is_backlog_full = self.is_backlog_full;
        Ok(params)
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
    let mut params = Box::<CmParams>::default();
    params.mpa_params = mpa_params;
    params.set_private_data(private_data);
    Ok(params)
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

#[cfg(test)]
mod tests {
    use ironwarp_iwarp::mpa::startup::{Initiator, Proposal};
    use ironwarp_iwarp::setup::{Enhanced, Offer};

    use super::*;

    fn request(params: &CmParams, enhanced: bool) -> FrameBytes {
        let reads = ReadDepths { ird: 1, ord: 1 };
        let enhanced = enhanced.then_some(Enhanced { peer_to_peer: false, rtr: RtrKinds::empty(), reads });
        let offer = Offer { enhanced, reads, ird_max: 1 };
        let proposal = Proposal { crc: true, markers: false, offer };
        Initiator::start(proposal, params.private_data()).expect("it fits").1
    }

    /// RFC 6581 s10: after a fallback the request is built again, in revision 1, from the one that
    /// was sent.
    #[test]
    fn the_private_data_of_a_frame_can_be_sent_again() {
        let mut params = CmParams::default();
        params.set_private_data(b"hello");
        params.set_frame(request(&params, true));
        assert_eq!((params.private_data(), params.sent_frame_bytes()), (&b"hello"[..], None));
        params.set_frame(request(&params, false));
        assert_eq!(params.private_data(), b"hello");
    }

    #[test]
    fn private_data_beyond_a_frame_is_left_out() {
        let mut params = CmParams::default();
        params.set_private_data(&[7; PRIVATE_DATA_BYTES_MAX + 1]);
        assert_eq!(params.private_data(), [7; PRIVATE_DATA_BYTES_MAX]);
    }
}
