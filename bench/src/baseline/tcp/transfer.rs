//! Both ends of a stream: round trips, and one-way transfer.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

use super::stream::{IoProgress, Stream};
use crate::baseline::namespaces::{SERVER_ADDR, VethPair, in_namespace};
use crate::pattern::Pattern;
use crate::{Case, RoundTrip, ServerSlice, Slice, StopCondition, StopSignal, measure_round_trips, nanos};

/// A peer that does not reply within this time has gone.
const PEER_TIMEOUT: Duration = Duration::from_secs(5);
/// Bytes of one read at the receiving end.
const READ_BYTES: usize = 256 << 10;
/// Both ends fill and check with the same pattern.
const SEED: u64 = 0x7c9;

/// One end of a connected stream.
#[derive(Debug)]
pub struct TcpConnection {
    stream: Stream,
    buffer: Vec<u8>,
}

/// A listener of the server, in the namespace that `path` names, or on loopback without one.
pub fn listen_in(path: Option<&Path>) -> io::Result<TcpListener> {
    let bind = |address: Ipv4Addr| TcpListener::bind(SocketAddr::from((address, 0)));
    match path {
        Some(path) => in_namespace(path, || bind(SERVER_ADDR)).map_err(io::Error::other)?,
        None => bind(Ipv4Addr::LOCALHOST),
    }
}

/// Accepts the one connection that a server serves.
pub fn accept(listener: &TcpListener) -> io::Result<TcpConnection> {
    let (socket, _) = listener.accept()?;
    TcpConnection::new(socket)
}

impl TcpConnection {
    /// Connects the client, from the client namespace of `veth` or over loopback without one.
    pub fn connect(remote: SocketAddr, veth: Option<&VethPair>) -> io::Result<Self> {
        let connect = || TcpStream::connect_timeout(&remote, PEER_TIMEOUT);
        let socket = match veth {
            Some(veth) => veth.in_client_namespace(connect).map_err(io::Error::other)??,
            None => connect()?,
        };
        Self::new(socket)
    }

    fn new(socket: TcpStream) -> io::Result<Self> {
        Ok(TcpConnection { stream: Stream::new(socket)?, buffer: Vec::new() })
    }

    fn prepare(&mut self, case: &Case, bytes_min: usize) -> io::Result<()> {
        self.stream.set_wait(case.wait)?;
        self.buffer.resize((case.bytes as usize).max(bytes_min).max(1), 0);
        Ok(())
    }
}

/// The client of a ping-pong.
pub fn latency(conn: &mut TcpConnection, case: &Case, until: StopCondition<'_>) -> io::Result<Slice> {
    conn.prepare(case, 1)?;
    let slice = measure_round_trips(case.bytes, until, |measured| {
        let message = measured.map_or(u64::MAX, |(_, message)| message);
        let (rtt, is_intact) = round_trip(conn, case, message)?;
        Ok::<_, io::Error>(RoundTrip::Done { rtt, is_intact })
    })?;
    Ok(Slice { verified_bytes: if case.validate { slice.bytes } else { 0 }, ..slice })
}

/// Sends one message and reads it back. Returns whether it came back unchanged.
fn round_trip(conn: &mut TcpConnection, case: &Case, message: u64) -> io::Result<(Duration, bool)> {
    let bytes = (case.bytes as usize).max(1);
    let (stream, buffer) = (&mut conn.stream, &mut conn.buffer[..bytes]);
    if case.validate {
        Pattern::new(SEED, message).fill(buffer, 0);
    }
    let start = Instant::now();
    let is_timed_out = || start.elapsed() > PEER_TIMEOUT;
    if !stream.write_all(buffer, is_timed_out)? || !stream.read_all(buffer, is_timed_out)? {
        return Err(io::ErrorKind::TimedOut.into());
    }
    let rtt = start.elapsed();
    Ok((rtt, !case.validate || Pattern::new(SEED, message).first_mismatch(buffer, 0).is_none()))
}

/// The server of a ping-pong.
pub fn echo(conn: &mut TcpConnection, case: &Case, stop: &StopSignal) -> io::Result<ServerSlice> {
    conn.prepare(case, 1)?;
    let bytes = (case.bytes as usize).max(1);
    let mut server = ServerSlice::default();
    let over = || stop.raised().is_some();
    while conn.stream.read_all(&mut conn.buffer[..bytes], over)?
        && conn.stream.write_all(&conn.buffer[..bytes], over)?
    {
        server.messages += 1;
        server.bytes += case.bytes;
    }
    Ok(server)
}

/// The client of a one-way stream. Returns the slice and the bytes that the server must wait for.
pub fn bandwidth(
    conn: &mut TcpConnection,
    case: &Case,
    until: StopCondition<'_>,
) -> io::Result<(Slice, u64)> {
    conn.prepare(case, 1)?;
    let bytes = (case.bytes as usize).max(1);
    let mut slice = Slice::default();
    let start = Instant::now();
    while !until.is_spent(slice.messages, nanos(start.elapsed())) {
        if case.validate {
            Pattern::new(SEED, 0).fill(&mut conn.buffer[..bytes], slice.bytes);
        }
        let written = Instant::now();
        if !conn.stream.write_all(&conn.buffer[..bytes], || written.elapsed() > PEER_TIMEOUT)? {
            return Err(io::ErrorKind::TimedOut.into());
        }
        slice.messages += 1;
        slice.bytes += bytes as u64;
    }
    slice.elapsed_ns = nanos(start.elapsed());
    let sent = slice.bytes;
    Ok((slice, sent))
}

/// The server of a one-way stream: reads until it has all sent bytes.
pub fn sink(conn: &mut TcpConnection, case: &Case, stop: &StopSignal) -> io::Result<ServerSlice> {
    conn.prepare(case, READ_BYTES)?;
    let mut server = ServerSlice::default();
    let mut span: Option<(Instant, Instant)> = None;
    let mut last_rx = Instant::now();
    loop {
        if let IoProgress::Bytes(bytes) = conn.stream.read(&mut conn.buffer)? {
            last_rx = Instant::now();
            span = Some((span.map_or(last_rx, |(first, _)| first), last_rx));
            check(case, &conn.buffer[..bytes], &mut server);
            server.bytes += bytes as u64;
            continue;
        }
        match stop.raised() {
            Some(sent) if server.bytes >= sent => break,
            Some(_) if last_rx.elapsed() > PEER_TIMEOUT => return Err(io::ErrorKind::TimedOut.into()),
            _ => {}
        }
    }
    server.messages = server.bytes / case.bytes.max(1);
    server.elapsed_ns = span.map_or(0, |(first, last)| nanos(last.duration_since(first)));
    Ok(server)
}

fn check(case: &Case, bytes: &[u8], server: &mut ServerSlice) {
    if case.validate {
        server.errors += u64::from(Pattern::new(SEED, 0).first_mismatch(bytes, server.bytes).is_some());
        server.verified_bytes += bytes.len() as u64;
    }
}
