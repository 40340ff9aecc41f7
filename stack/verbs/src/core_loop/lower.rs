//! What is below the queue pairs of a core loop: the ports, and a transport over them.
//!
//! The core loop is built for one [`Lower`], so that no call on the data path is dynamic. It calls the transport by
//! [`Transport`] alone. [`MpaOverTcp`] is the lower layer of every stack.

use core::marker::PhantomData;

use ironwarp_llp::{ByteStream, OutOfOrderBytes, Transport};
use ironwarp_net::{FlowHasher, IcmpError, Net, Path, TcpSegment};
use ironwarp_port::{Port, Wires};
use ironwarp_stats::{ConnectionState, CoreStats};
use ironwarp_tcp::{State, Tcp, TcpConfig};

/// The frames of a lower layer.
pub(crate) type FrameOf<L> = <<L as Lower>::Port as Port>::Frame;

/// A lower layer: the types that a core loop is built of.
pub(crate) trait Lower: 'static {
    /// The ports.
    type Port: Port;
    /// The transport over them.
    type Transport: for<'a> Transport<
            Wires = Wires<Self::Port>,
            Frame = FrameOf<Self>,
            Network = Net,
            Packet = TcpSegment<FrameOf<Self>>,
            Path = Path,
            PathError = IcmpError,
            Rx<'a>: ByteStream + OutOfOrderBytes,
        >;

    /// Creates the transport of a core. `hasher` is the network's, and `secret` keys what a peer must not guess.
    fn transport(
        config: TcpConfig,
        hasher: FlowHasher,
        secret: [u64; 2],
        stats: CoreStats,
    ) -> Self::Transport;

    /// The state of a connection as the page of counters shows it.
    fn shown_state(state: <Self::Transport as Transport>::State) -> ConnectionState;
}

/// MPA over TCP (RFC 5044) on ports of type `P`.
pub(crate) struct MpaOverTcp<P>(PhantomData<P>);

impl<P: Port> Lower for MpaOverTcp<P> {
    type Port = P;
    type Transport = Tcp<P>;

    fn transport(config: TcpConfig, hasher: FlowHasher, secret: [u64; 2], stats: CoreStats) -> Tcp<P> {
        Tcp::new(config, hasher, secret, stats)
    }

    fn shown_state(state: State) -> ConnectionState {
        match state {
            State::Closed | State::Listen => ConnectionState::Closed,
            State::SynSent => ConnectionState::SynSent,
            State::SynReceived => ConnectionState::SynReceived,
            State::Established => ConnectionState::Established,
            State::FinWait1 => ConnectionState::FinWait1,
            State::FinWait2 => ConnectionState::FinWait2,
            State::CloseWait => ConnectionState::CloseWait,
            State::Closing => ConnectionState::Closing,
            State::LastAck => ConnectionState::LastAck,
            State::TimeWait => ConnectionState::TimeWait,
        }
    }
}
