//! Listening, connecting, accepting, rejecting, disconnecting. Each call only asks; the outcome comes as an event.

use verbs::{
    AcceptParams, ConnectParams, ConnectionRequest, Context, Extensions, MpaRevision, NegotiatedParams,
    ReadDepths, RejectParams, VerbsError,
};

use super::address::iw_addr;
use super::context::iw_ctx;
use super::queues::iw_qp;
use crate::boundary::{ApiError, call, read, read_sized, read_slice, with, write_out, *};

/// A peer that waits for an answer, from IW_EVENT_CONNECT_REQUEST. One that gets none is closed after
/// `mpa.startup_timeout_ms`.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub struct iw_request {
    /// The library's.
    pub id: [u64; 2],
}

/// What start-up settled.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub struct iw_negotiated {
    /// The revision of MPA that was spoken.
    pub revision: u16,
    /// Reads that the peer may have outstanding here.
    pub ird: u16,
    /// Reads that we may have outstanding at the peer.
    pub ord: u16,
    /// Not used.
    pub reserved: u16,
}

impl From<NegotiatedParams> for iw_negotiated {
    fn from(negotiated: NegotiatedParams) -> Self {
        iw_negotiated {
            revision: negotiated.revision.into(),
            ird: negotiated.reads.ird,
            ord: negotiated.reads.ord,
            reserved: 0,
        }
    }
}

/// Atomic operations and Immediate Data as the configuration says (`rdmap.extensions`).
pub const IW_EXTENSIONS_DEFAULT: u32 = 0;
/// None.
pub const IW_EXTENSIONS_OFF: u32 = 1;
/// Those of RFC 7306.
pub const IW_EXTENSIONS_RFC7306: u32 = 2;
/// And Swap, as draft -03 has it.
pub const IW_EXTENSIONS_DRAFT03: u32 = 3;
/// As draft -01 has it.
pub const IW_EXTENSIONS_DRAFT01: u32 = 4;

/// How to connect or to accept. `iw_conn_params_init` fills it in.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct iw_conn_params {
    /// sizeof(struct iw_conn_params).
    pub size: u32,
    /// Bytes of private data; `iw_limits.private_data_bytes` always fit.
    pub private_data_bytes: u32,
    /// Private data for the peer's application.
    pub private_data: *const u8,
    /// IW_EXTENSIONS_*: what the connection carries beside Send, Write and Read. Nothing on the wire asks the peer; both
    /// programs must want the same.
    pub extensions: u32,
    /// To connect with: the revision of MPA to begin with, 1 or 2; 0 as the configuration says. Not used to accept.
    pub revision: u32,
    /// The numbers of Reads to offer, at most those of the queue pair; negative: those of the queue pair.
    pub ird: i32,
    /// As before, the other way.
    pub ord: i32,
}

/// Fills in the defaults: no private data, everything else as configuration and queue pair say.
///
/// # Safety
/// `params` is null or good for one value.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_conn_params_init(params: *mut iw_conn_params) -> i32 {
    // SAFETY: the caller's promise, handed on.
    call(|| unsafe { write_out(params, "params", iw_conn_params::DEFAULT).map(|()| IW_OK) })
}

/// Takes connections for an address: peers come as IW_EVENT_CONNECT_REQUEST, an address that is taken already as
/// IW_EVENT_LISTEN_FAILED.
///
/// # Safety
/// `ctx` is null or a handle that this library gave out; `local` is null or leads to an address.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_listen(ctx: *mut iw_ctx, local: *const iw_addr) -> i32 {
    // SAFETY: the caller's promise, handed on.
    unsafe { with_local_addr(ctx, local, |context, local| context.listen(local)) }
}

/// Takes no more connections for an address. Those already made stay.
///
/// # Safety
/// As for `iw_listen`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_unlisten(ctx: *mut iw_ctx, local: *const iw_addr) -> i32 {
    // SAFETY: the caller's promise, handed on.
    unsafe { with_local_addr(ctx, local, |context, local| context.unlisten(local)) }
}

/// Connects an idle queue pair: IW_EVENT_ESTABLISHED, IW_EVENT_REJECTED or IW_EVENT_CONNECT_FAILED follows. Null parameters
/// are the defaults.
///
/// # Safety
/// `ctx` is null or a handle that this library gave out; `remote` is null or leads to an address; `params` is null or leads
/// to as many bytes as its `size` says, and its private data to as many as it says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_connect(
    ctx: *mut iw_ctx,
    qp: iw_qp,
    remote: *const iw_addr,
    params: *const iw_conn_params,
) -> i32 {
    // SAFETY: the caller's promise, handed on.
    call(|| unsafe {
        let remote = read(remote, "remote")?.to_rust()?;
        let params = iw_conn_params::read_or_default(params)?;
        let asked = ConnectParams {
            private_data: params.read_private_data()?,
            revision: params.revision()?,
            reads: params.reads()?,
            extensions: params.extensions()?,
            ..ConnectParams::default()
        };
        with(ctx, |context| Ok(context.connect_with(qp.to_rust(), remote, &asked)?))?;
        Ok(IW_OK)
    })
}

/// Accepts a peer with an idle queue pair: IW_EVENT_ESTABLISHED or IW_EVENT_CONNECT_FAILED follows. Where the call fails the
/// peer can still be answered. Null parameters are the defaults.
///
/// # Safety
/// `ctx` is null or a handle that this library gave out; `request` is null or leads to a request; `params` as for
/// `iw_connect`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_accept(
    ctx: *mut iw_ctx,
    request: *const iw_request,
    qp: iw_qp,
    params: *const iw_conn_params,
) -> i32 {
    // SAFETY: the caller's promise, handed on.
    call(|| unsafe {
        let request = ConnectionRequest::from_bits(read(request, "request")?.id);
        let params = iw_conn_params::read_or_default(params)?;
        let answer = AcceptParams {
            private_data: params.read_private_data()?,
            reads: params.reads()?,
            extensions: params.extensions()?,
            ..AcceptParams::default()
        };
        with(ctx, |context| Ok(context.accept_with(&request, qp.to_rust(), &answer)?))?;
        Ok(IW_OK)
    })
}

/// Refuses a peer, and tells it why.
///
/// # Safety
/// `ctx` is null or a handle that this library gave out; `request` is null or leads to a request; `private_data` is null or
/// leads to `private_data_bytes` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_reject(
    ctx: *mut iw_ctx,
    request: *const iw_request,
    private_data: *const u8,
    private_data_bytes: u32,
) -> i32 {
    // SAFETY: the caller's promise, handed on.
    call(|| unsafe {
        let request = ConnectionRequest::from_bits(read(request, "request")?.id);
        let private_data = read_private_data(private_data, private_data_bytes)?;
        let why = RejectParams { private_data, ..RejectParams::default() };
        with(ctx, |context| Ok(context.reject_with(&request, &why)?))?;
        Ok(IW_OK)
    })
}

/// Closes a connection once everything posted has been sent and acknowledged: IW_EVENT_DISCONNECTED follows. Nothing more can
/// be posted from now on.
///
/// # Safety
/// `ctx` is null or a handle that this library gave out.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_disconnect(ctx: *mut iw_ctx, qp: iw_qp) -> i32 {
    // SAFETY: the caller's promise, handed on.
    call(|| unsafe { with(ctx, |context| Ok(context.disconnect(qp.to_rust()).map(|()| IW_OK)?)) })
}

/// Whether the peer at an address, whatever its port, has turned out to lack atomic operations: 1 or 0. So it is from the time
/// that a context of the stack has heard IW_EVENT_PEER_LACKS_ATOMICS until a connection to it has had an answer to one, or for as
/// long as the configuration says (`rdmap.lacks_atomics_cache_s`).
///
/// # Safety
/// `ctx` is null or a handle that this library gave out; `peer` is null or leads to an address.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_lacks_atomics(ctx: *const iw_ctx, peer: *const iw_addr) -> i32 {
    // SAFETY: the caller's promise, handed on.
    call(|| unsafe {
        let peer = read(peer, "peer")?.to_rust()?.ip();
        with(ctx, |context| Ok(context.lacks_atomics(peer).into()))
    })
}

/// # Safety
/// As for `iw_listen`.
unsafe fn with_local_addr(
    ctx: *mut iw_ctx,
    local: *const iw_addr,
    act: impl FnOnce(&mut Context, core::net::SocketAddr) -> Result<(), VerbsError>,
) -> i32 {
    // SAFETY: the caller's promise, handed on.
    call(|| unsafe {
        let local = read(local, "local")?.to_rust()?;
        with(ctx, |context| Ok(act(context, local)?))?;
        Ok(IW_OK)
    })
}

/// The longest private data that any start-up frame carries.
const PRIVATE_DATA_BYTES_MAX: u32 = 512;

/// # Safety
/// The pointer is null or leads to as many bytes.
unsafe fn read_private_data<'a>(private_data: *const u8, bytes: u32) -> Result<&'a [u8], ApiError> {
    if bytes > PRIVATE_DATA_BYTES_MAX {
        return Err(VerbsError::PrivateDataTooLong(bytes as usize).into());
    }
    // SAFETY: the caller's promise.
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
    };

    /// # Safety
    /// As for `iw_connect`.
    unsafe fn read_or_default(params: *const Self) -> Result<Self, ApiError> {
        if params.is_null() {
            return Ok(Self::DEFAULT);
        }
        // SAFETY: the caller's promise. The struct is made of numbers and a pointer.
        unsafe { read_sized(params, Self::DEFAULT, "params") }
    }

    /// # Safety
    /// As for `iw_connect`.
    unsafe fn read_private_data(&self) -> Result<&[u8], ApiError> {
        // SAFETY: the caller's promise.
        unsafe { read_private_data(self.private_data, self.private_data_bytes) }
    }

    fn revision(&self) -> Result<Option<MpaRevision>, ApiError> {
        match self.revision {
            0 => Ok(None),
            1 => Ok(Some(MpaRevision::One)),
            2 => Ok(Some(MpaRevision::Two)),
            other => {
                Err(ApiError::with_detail(IW_E_VALUE, format_args!("params.revision = {other}: 0, 1 or 2")))
            }
        }
    }

    fn reads(&self) -> Result<Option<ReadDepths>, ApiError> {
        if self.ird < 0 && self.ord < 0 {
            return Ok(None);
        }
        let number = |value: i32| {
            let wrong = || {
                ApiError::with_detail(
                    IW_E_VALUE,
                    format_args!("reads = {value}: both 0 to 16383, or both negative"),
                )
            };
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
                return Err(ApiError::with_detail(
                    IW_E_VALUE,
                    format_args!("params.extensions = {other}: IW_EXTENSIONS_*"),
                ));
            }
        }))
    }
}
