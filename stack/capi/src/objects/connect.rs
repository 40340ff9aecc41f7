//! Listen, connect, accept, reject, disconnect. Each call starts the operation; the result arrives
//! as an event.

use verbs::config::TransportKind;
use verbs::{
    AcceptParams, ConnectParams, ConnectionRequest, Extensions, ListenParams, MpaRequestInfo, MpaRevision,
    Nanos, NegotiatedParams, ReadDepths, RejectParams, RtrKinds, VerbsError,
};

use super::address::iw_addr;
use super::context::iw_ctx;
use super::queues::iw_qp;
use crate::boundary::{ApiError, call, read, read_sized, read_slice, with, write_init, write_out, *};

/// A peer that waits for an answer, from IW_EVENT_CONNECT_REQUEST. A request without an answer is
/// closed after `mpa.startup_timeout_ms`.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub struct iw_request {
    /// Internal.
    pub id: [u64; 2],
}

/// The result of start-up.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub struct iw_negotiated {
    /// The MPA revision in use.
    pub revision: u16,
    /// Reads that the peer may have outstanding here (IRD).
    pub ird: u16,
    /// Reads that this side may have outstanding at the peer (ORD).
    pub ord: u16,
    /// With IW_EVENT_CONNECT_REQUEST, IW_NEGOTIATED_*.
    pub flags: u16,
}

impl From<NegotiatedParams> for iw_negotiated {
    fn from(negotiated: NegotiatedParams) -> Self {
        iw_negotiated {
            revision: negotiated.revision.into(),
            ird: negotiated.reads.ird,
            ord: negotiated.reads.ord,
            flags: 0,
        }
    }
}

/// A read depth that start-up leaves to the programs (RFC 6581 s9.1).
pub const IW_READS_UNNEGOTIATED: u32 = 0x3fff;

const _: () = assert!(IW_READS_UNNEGOTIATED == verbs::READS_UNNEGOTIATED as u32);

impl From<MpaRequestInfo> for iw_negotiated {
    fn from(offered: MpaRequestInfo) -> Self {
        let has = |flag: bool, value: u16| if flag { value } else { 0 };
        iw_negotiated {
            revision: offered.revision.into(),
            flags: has(offered.peer_to_peer, IW_NEGOTIATED_PEER_TO_PEER)
                | has(offered.transport == TransportKind::Sctp, IW_NEGOTIATED_SCTP),
            ..Self::of_rejection(offered.peer_reads)
        }
    }
}

impl iw_negotiated {
    /// The read depths that a peer sent, if any.
    pub(crate) fn of_rejection(peer_reads: Option<ReadDepths>) -> Self {
        let unnegotiated = ReadDepths { ird: verbs::READS_UNNEGOTIATED, ord: verbs::READS_UNNEGOTIATED };
        let ReadDepths { ird, ord } = peer_reads.unwrap_or(unnegotiated);
        iw_negotiated { revision: 0, ird, ord, flags: 0 }
    }
}

/// The peer that requests a connection lets either side send first. Otherwise the peer does.
pub const IW_NEGOTIATED_PEER_TO_PEER: u16 = 1;
/// It is over SCTP, else over TCP.
pub const IW_NEGOTIATED_SCTP: u16 = 2;

/// The first transport of `stack.transport`.
pub const IW_TRANSPORT_DEFAULT: u32 = 0;
/// MPA over TCP (RFC 5044).
pub const IW_TRANSPORT_TCP: u32 = 1;
/// SCTP (RFC 5043).
pub const IW_TRANSPORT_SCTP: u32 = 2;

/// Atomic operations and Immediate Data as configured (`rdmap.extensions`).
pub const IW_EXTENSIONS_DEFAULT: u32 = 0;
/// None.
pub const IW_EXTENSIONS_OFF: u32 = 1;
/// Those of RFC 7306.
pub const IW_EXTENSIONS_RFC7306: u32 = 2;
/// Those of RFC 7306, and Swap of draft -03.
pub const IW_EXTENSIONS_DRAFT03: u32 = 3;
/// Those of draft -01.
pub const IW_EXTENSIONS_DRAFT01: u32 = 4;

/// The parameters of connect and accept. `iw_conn_params_init` sets the defaults.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct iw_conn_params {
    /// sizeof(struct iw_conn_params).
    pub size: u32,
    /// Bytes of private data. Up to `iw_limits.private_data_bytes` always fit.
    pub private_data_bytes: u32,
    /// Private data for the peer's application.
    pub private_data: *const u8,
    /// IW_EXTENSIONS_*: the operations of the connection besides Send, Write and Read. They are not
    /// negotiated on the wire; both programs must use the same value.
    pub extensions: u32,
    /// Connect only: the first MPA revision to try, 1 or 2; 0: as configured.
    pub revision: u32,
    /// The read depth to offer (IRD), at most that of the queue pair; negative: that of the queue
    /// pair.
    pub ird: i32,
    /// The same for ORD.
    pub ord: i32,
    /// Connect only: the local address to connect from. `family` 0: an address that reaches the
    /// peer, with a free port. Port 0: a free port. On a stack of several cores the flow selects
    /// the core of the queue pair, so a port needs an address with it there.
    pub source: iw_addr,
    /// Connect only: 1: either side may send first (RFC 6581 s9.2), 0: only this side, negative: as
    /// configured.
    pub peer_to_peer: i32,
    /// The permitted kinds of ready-to-receive indication, IW_RTR_*; negative: as configured.
    pub rtr: i32,
    /// Connect only: the delay before the first message in microseconds; negative: as configured.
    pub first_fpdu_holdoff_us: i64,
    /// Connect only: IW_TRANSPORT_*, one that the stack has.
    pub transport: u32,
}

/// The initiator's first message may be a Send without data.
pub const IW_RTR_SEND: i32 = 1;
/// It may be an RDMA Write without data.
pub const IW_RTR_WRITE: i32 = 2;
/// It may be an RDMA Read without data.
pub const IW_RTR_READ: i32 = 4;

/// Sets the defaults: no private data, everything else as configured and as in the queue pair.
/// `size` is sizeof(struct iw_conn_params): programs call `iw_conn_params_init`, which passes it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_conn_params_init_sized(params: *mut iw_conn_params, size: usize) -> i32 {
    // SAFETY: guaranteed by the caller.
    call(|| unsafe { write_init(params, size, "params", iw_conn_params::DEFAULT) })
}

/// Listens on an address. Peers are reported by IW_EVENT_CONNECT_REQUEST, an address in use by
/// IW_EVENT_LISTEN_FAILED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_listen(ctx: *mut iw_ctx, local: *const iw_addr) -> i32 {
    let mut bound = iw_addr::default();
    // SAFETY: guaranteed by the caller.
    unsafe { iw_listen_over(ctx, IW_TRANSPORT_DEFAULT, local, &mut bound) }
}

/// As `iw_listen`, and stores the address with its port in `bound`: port 0 selects a port from
/// 49152 on that no context of the stack listens on.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_listen_bound(
    ctx: *mut iw_ctx,
    local: *const iw_addr,
    bound: *mut iw_addr,
) -> i32 {
    // SAFETY: guaranteed by the caller.
    unsafe { iw_listen_over(ctx, IW_TRANSPORT_DEFAULT, local, bound) }
}

/// As `iw_listen_bound`, over a transport, IW_TRANSPORT_*, that the stack has. TCP and SCTP may
/// have one address and port.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_listen_over(
    ctx: *mut iw_ctx,
    transport: u32,
    local: *const iw_addr,
    bound: *mut iw_addr,
) -> i32 {
    // SAFETY: guaranteed by the caller.
    call(|| unsafe {
        let params = ListenParams { transport: read_transport(transport)? };
        let local = read(local, "local")?.to_rust()?;
        write_out(bound, "bound", iw_addr::default())?;
        let address = with(ctx, |context| Ok(context.listen_with(local, &params)?))?;
        write_out(bound, "bound", address.into())
    })
}

/// Stops listening on an address. Existing connections continue.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_unlisten(ctx: *mut iw_ctx, local: *const iw_addr) -> i32 {
    // SAFETY: guaranteed by the caller.
    unsafe { iw_unlisten_over(ctx, IW_TRANSPORT_DEFAULT, local) }
}

/// As `iw_unlisten`, over the transport of `iw_listen_over`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_unlisten_over(ctx: *mut iw_ctx, transport: u32, local: *const iw_addr) -> i32 {
    // SAFETY: guaranteed by the caller.
    call(|| unsafe {
        let params = ListenParams { transport: read_transport(transport)? };
        let local = read(local, "local")?.to_rust()?;
        with(ctx, |context| Ok(context.unlisten_with(local, &params)?))
    })
}

/// Connects an idle queue pair. IW_EVENT_ESTABLISHED, IW_EVENT_REJECTED or IW_EVENT_CONNECT_FAILED
/// follows. A null `params` means the defaults.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_connect(
    ctx: *mut iw_ctx,
    qp: iw_qp,
    remote: *const iw_addr,
    params: *const iw_conn_params,
) -> i32 {
    // SAFETY: guaranteed by the caller.
    call(|| unsafe {
        let remote = read(remote, "remote")?.to_rust()?;
        let params = iw_conn_params::read_or_default(params)?;
        let asked = ConnectParams {
            transport: read_transport(params.transport)?,
            private_data: params.read_private_data()?,
            revision: params.revision()?,
            reads: params.reads()?,
            extensions: params.extensions()?,
            peer_to_peer: params.peer_to_peer()?,
            rtr: params.rtr()?,
            first_fpdu_holdoff: params.first_fpdu_holdoff()?,
            source: if params.source.family == 0 { None } else { Some(params.source.to_rust()?) },
        };
        with(ctx, |context| Ok(context.connect_with(qp.to_rust(), remote, &asked)?))
    })
}

/// Accepts a connection request with an idle queue pair. IW_EVENT_ESTABLISHED or
/// IW_EVENT_CONNECT_FAILED follows. If the call fails, the request can still be answered. A null
/// `params` means the defaults.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_accept(
    ctx: *mut iw_ctx,
    request: *const iw_request,
    qp: iw_qp,
    params: *const iw_conn_params,
) -> i32 {
    // SAFETY: guaranteed by the caller.
    call(|| unsafe {
        let request = ConnectionRequest::from_bits(read(request, "request")?.id);
        let params = iw_conn_params::read_or_default(params)?;
        let answer = AcceptParams {
            private_data: params.read_private_data()?,
            reads: params.reads()?,
            extensions: params.extensions()?,
            rtr: params.rtr()?,
        };
        with(ctx, |context| Ok(context.accept_with(&request, qp.to_rust(), &answer)?))
    })
}

/// Rejects a connection request with private data for the peer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_reject(
    ctx: *mut iw_ctx,
    request: *const iw_request,
    private_data: *const u8,
    private_data_bytes: u32,
) -> i32 {
    // SAFETY: guaranteed by the caller.
    call(|| unsafe {
        let request = ConnectionRequest::from_bits(read(request, "request")?.id);
        let private_data = read_private_data(private_data, private_data_bytes)?;
        let why = RejectParams { private_data, ..RejectParams::default() };
        with(ctx, |context| Ok(context.reject_with(&request, &why)?))
    })
}

/// Disconnects after everything posted was sent and acknowledged. IW_EVENT_DISCONNECTED follows.
/// Later posts fail.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_disconnect(ctx: *mut iw_ctx, qp: iw_qp) -> i32 {
    // SAFETY: guaranteed by the caller.
    call(|| unsafe { with(ctx, |context| Ok(context.disconnect(qp.to_rust())?)) })
}

/// Moves a queue pair to the error state: resets its connection and completes every posted request
/// as flushed. IW_EVENT_DISCONNECTED follows, or IW_EVENT_CONNECT_FAILED if the connection was not
/// established; neither if the queue pair was idle. The queue pair stays, so that its completions
/// can be reaped before it is destroyed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_abort(ctx: *mut iw_ctx, qp: iw_qp) -> i32 {
    // SAFETY: guaranteed by the caller.
    call(|| unsafe { with(ctx, |context| Ok(context.abort(qp.to_rust())?)) })
}

/// Returns the core, from 0, at which a request arrived; the accepted queue pair stays there. A
/// program with a context for each core may answer with the context of that core's thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_request_core(request: *const iw_request) -> i32 {
    // SAFETY: guaranteed by the caller.
    call(|| unsafe { Ok(i32::from(ConnectionRequest::from_bits(read(request, "request")?.id).core())) })
}

/// Returns 1 if the peer at an address, with any port, is known to lack atomic operations, else 0.
/// The library records this at IW_EVENT_PEER_LACKS_ATOMICS. It forgets it after an atomic operation
/// succeeded with that peer, or after `rdmap.lacks_atomics_cache_s`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_lacks_atomics(ctx: *const iw_ctx, peer: *const iw_addr) -> i32 {
    // SAFETY: guaranteed by the caller.
    call(|| unsafe {
        let peer = read(peer, "peer")?.to_rust()?.ip();
        with(ctx, |context| Ok(context.lacks_atomics(peer)))
    })
}

fn read_transport(transport: u32) -> Result<Option<TransportKind>, ApiError> {
    match transport {
        IW_TRANSPORT_DEFAULT => Ok(None),
        IW_TRANSPORT_TCP => Ok(Some(TransportKind::Tcp)),
        IW_TRANSPORT_SCTP => Ok(Some(TransportKind::Sctp)),
        other => Err(fault!(IW_E_VALUE, "transport = {other}: IW_TRANSPORT_*")),
    }
}

/// The longest private data of any start-up frame.
const PRIVATE_DATA_BYTES_MAX: u32 = 512;

/// # Safety
/// The pointer is null or points to as many bytes.
unsafe fn read_private_data<'a>(private_data: *const u8, bytes: u32) -> Result<&'a [u8], ApiError> {
    if bytes > PRIVATE_DATA_BYTES_MAX {
        return Err(VerbsError::PrivateDataTooLong(bytes as usize).into());
    }
    // SAFETY: guaranteed by the caller.
    unsafe { read_slice(private_data, bytes as usize, "private_data") }
}

impl iw_conn_params {
    const DEFAULT: Self = iw_conn_params {
        size: size_of::<iw_conn_params>() as u32,
        private_data_bytes: 0,
        private_data: core::ptr::null(),
        extensions: IW_EXTENSIONS_DEFAULT,
        revision: 0,
        ird: -1,
        ord: -1,
        source: iw_addr { ip: [0; 16], scope: 0, port: 0, family: 0 },
        peer_to_peer: -1,
        rtr: -1,
        first_fpdu_holdoff_us: -1,
        transport: IW_TRANSPORT_DEFAULT,
    };

    /// # Safety
    /// As for every call of the library.
    unsafe fn read_or_default(params: *const Self) -> Result<Self, ApiError> {
        if params.is_null() {
            return Ok(Self::DEFAULT);
        }
        // SAFETY: guaranteed by the caller. The struct consists of numbers and a pointer.
        unsafe { read_sized(params, Self::DEFAULT, "params") }
    }

    /// # Safety
    /// As for every call of the library.
    unsafe fn read_private_data(&self) -> Result<&[u8], ApiError> {
        // SAFETY: guaranteed by the caller.
        unsafe { read_private_data(self.private_data, self.private_data_bytes) }
    }

    fn revision(&self) -> Result<Option<MpaRevision>, ApiError> {
        match self.revision {
            0 => Ok(None),
            1 => Ok(Some(MpaRevision::One)),
            2 => Ok(Some(MpaRevision::Two)),
            other => Err(fault!(IW_E_VALUE, "params.revision = {other}: 0, 1 or 2")),
        }
    }

    fn reads(&self) -> Result<Option<ReadDepths>, ApiError> {
        if self.ird < 0 && self.ord < 0 {
            return Ok(None);
        }
        let number = |value: i32| {
            let wrong = || fault!(IW_E_VALUE, "reads = {value}: both 0 to 16383, or both negative");
            u16::try_from(value).map_err(|_| wrong())
        };
        Ok(Some(ReadDepths { ird: number(self.ird)?, ord: number(self.ord)? }))
    }

    fn extensions(&self) -> Result<Option<Extensions>, ApiError> {
        Ok(Some(match self.extensions {
            IW_EXTENSIONS_DEFAULT => return Ok(None),
            IW_EXTENSIONS_OFF => Extensions::Off,
            IW_EXTENSIONS_RFC7306 => Extensions::Rfc7306,
            IW_EXTENSIONS_DRAFT03 => Extensions::Draft03,
            IW_EXTENSIONS_DRAFT01 => Extensions::Draft01,
            other => {
                return Err(fault!(IW_E_VALUE, "params.extensions = {other}: IW_EXTENSIONS_*"));
            }
        }))
    }

    fn peer_to_peer(&self) -> Result<Option<bool>, ApiError> {
        match self.peer_to_peer {
            ..0 => Ok(None),
            0 => Ok(Some(false)),
            1 => Ok(Some(true)),
            other => Err(fault!(IW_E_VALUE, "params.peer_to_peer = {other}: 0, 1 or negative")),
        }
    }

    fn rtr(&self) -> Result<Option<RtrKinds>, ApiError> {
        if self.rtr < 0 {
            return Ok(None);
        }
        if self.rtr & !(IW_RTR_SEND | IW_RTR_WRITE | IW_RTR_READ) != 0 {
            return Err(fault!(IW_E_VALUE, "params.rtr = {}: IW_RTR_* or negative", self.rtr));
        }
        let has = |kind: i32, flag: RtrKinds| if self.rtr & kind != 0 { flag } else { RtrKinds::empty() };
        Ok(Some(
            has(IW_RTR_SEND, RtrKinds::SEND)
                | has(IW_RTR_WRITE, RtrKinds::WRITE)
                | has(IW_RTR_READ, RtrKinds::READ),
        ))
    }

    fn first_fpdu_holdoff(&self) -> Result<Option<Nanos>, ApiError> {
        match self.first_fpdu_holdoff_us {
            ..0 => Ok(None),
            us @ 0..=1_000_000 => Ok(Some(Nanos::from_micros(us as u64))),
            other => {
                let text = "0 to 1000000 or negative";
                Err(fault!(IW_E_VALUE, "params.first_fpdu_holdoff_us = {other}: {text}"))
            }
        }
    }
}
