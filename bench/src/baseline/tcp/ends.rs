//! The two ends of a stream: there and back, and one way.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

use super::stream::{Progress, Stream};
use crate::baseline::namespaces::{FAR, VethPair, in_namespace};
use crate::pattern::Pattern;
use crate::{Case, FarSlice, Latency, Pace, Slice, StopSignal};

/// A far end that has not answered by then has gone.
const SILENT_MAX: Duration = Duration::from_secs(5);
/// Bytes of one read at the receiving end.
const READ_BYTES: usize = 256 << 10;
/// Both ends fill and check with the same pattern.
const SEED: u64 = 0x7c9;

/// One end of a connected stream.
#[derive(Debug)]
pub struct Link {
    stream: Stream,
    buffer: Vec<u8>,
}

/// A listener at the far end, in the namespace that `path` names, or on loopback without one.
pub fn listen_in(path: Option<&Path>) -> io::Result<TcpListener> {
    let bind = |address: Ipv4Addr| TcpListener::bind(SocketAddr::from((address, 0)));
    match path {
        Some(path) => in_namespace(path, || bind(FAR)).map_err(io::Error::other)?,
        None => bind(Ipv4Addr::LOCALHOST),
    }
}

/// Takes the one connection that a far end serves.
pub fn accept(listener: &TcpListener) -> io::Result<Link> {
    let (socket, _) = listener.accept()?;
    Link::new(socket)
}

impl Link {
    /// Connects the near end, from the near namespace of `veth` or over loopback without one.
    pub fn connect(remote: SocketAddr, veth: Option<&VethPair>) -> io::Result<Self> {
        let connect = || TcpStream::connect_timeout(&remote, SILENT_MAX);
        let socket = match veth {
            Some(veth) => veth.near(connect).map_err(io::Error::other)??,
            None => connect()?,
        };
        Self::new(socket)
    }

    fn new(socket: TcpStream) -> io::Result<Self> {
        Ok(Link { stream: Stream::new(socket)?, buffer: Vec::new() })
    }

    fn prepare(&mut self, case: &Case, least: usize) -> io::Result<()> {
        self.stream.wait(case.wait)?;
        self.buffer.resize((case.bytes as usize).max(least).max(1), 0);
        Ok(())
    }
}

/// The near end of a ping-pong.
pub fn latency(link: &mut Link, case: &Case, pace: Pace<'_>) -> io::Result<Slice> {
    link.prepare(case, 1)?;
    let mut slice = Slice { latency: Some(Latency::new()), ..Slice::default() };
    let (begun, mut warm) = (Instant::now(), 0);
    while !pace.budget.is_warm(warm, nanos(begun.elapsed())) && !pace.halted() {
        round_trip(link, case, u64::MAX)?;
        warm += 1;
    }
    let start = Instant::now();
    while !pace.is_spent(slice.messages, nanos(start.elapsed())) {
        let (rtt, wrong) = round_trip(link, case, slice.messages)?;
        slice.latency.get_or_insert_default().record(nanos(rtt));
        slice.messages += 1;
        slice.bytes += case.bytes;
        slice.errors += u64::from(wrong);
        slice.verified_bytes += if case.validate { case.bytes } else { 0 };
    }
    slice.elapsed_ns = nanos(start.elapsed());
    Ok(slice)
}

/// One message there and back, and whether it came back changed.
fn round_trip(link: &mut Link, case: &Case, message: u64) -> io::Result<(Duration, bool)> {
    let bytes = (case.bytes as usize).max(1);
    let (stream, buffer) = (&mut link.stream, &mut link.buffer[..bytes]);
    if case.validate {
        Pattern::new(SEED, message).fill(buffer, 0);
    }
    let start = Instant::now();
    let silent = || start.elapsed() > SILENT_MAX;
    if !stream.write_all(buffer, &silent)? || !stream.read_all(buffer, &silent)? {
        return Err(io::ErrorKind::TimedOut.into());
    }
    let rtt = start.elapsed();
    Ok((rtt, case.validate && Pattern::new(SEED, message).first_wrong(buffer, 0).is_some()))
}

/// The far end of a ping-pong.
pub fn echo(link: &mut Link, case: &Case, stop: &StopSignal) -> io::Result<FarSlice> {
    link.prepare(case, 1)?;
    let bytes = (case.bytes as usize).max(1);
    let mut far = FarSlice::default();
    let over = || stop.raised().is_some();
    while link.stream.read_all(&mut link.buffer[..bytes], &over)?
        && link.stream.write_all(&link.buffer[..bytes], &over)?
    {
        far.messages += 1;
        far.bytes += case.bytes;
    }
    Ok(far)
}

/// The near end of a one-way stream. Answers the slice and the bytes that the far end must wait for.
pub fn bandwidth(link: &mut Link, case: &Case, pace: Pace<'_>) -> io::Result<(Slice, u64)> {
    link.prepare(case, 1)?;
    let bytes = (case.bytes as usize).max(1);
    let mut slice = Slice::default();
    let start = Instant::now();
    while !pace.is_spent(slice.messages, nanos(start.elapsed())) {
        if case.validate {
            Pattern::new(SEED, 0).fill(&mut link.buffer[..bytes], slice.bytes);
        }
        let written = Instant::now();
        if !link.stream.write_all(&link.buffer[..bytes], &|| written.elapsed() > SILENT_MAX)? {
            return Err(io::ErrorKind::TimedOut.into());
        }
        slice.messages += 1;
        slice.bytes += bytes as u64;
    }
    slice.elapsed_ns = nanos(start.elapsed());
    let sent = slice.bytes;
    Ok((slice, sent))
}

/// The far end of a one-way stream: reads until it has as many bytes as were sent.
pub fn sink(link: &mut Link, case: &Case, stop: &StopSignal) -> io::Result<FarSlice> {
    link.prepare(case, READ_BYTES)?;
    let mut far = FarSlice::default();
    let mut span: Option<(Instant, Instant)> = None;
    let mut last_heard = Instant::now();
    loop {
        if let Progress::Bytes(bytes) = link.stream.read(&mut link.buffer)? {
            last_heard = Instant::now();
            span = Some((span.map_or(last_heard, |(first, _)| first), last_heard));
            check(case, &link.buffer[..bytes], &mut far);
            far.bytes += bytes as u64;
            continue;
        }
        match stop.raised() {
            Some(sent) if far.bytes >= sent => break,
            Some(_) if last_heard.elapsed() > SILENT_MAX => return Err(io::ErrorKind::TimedOut.into()),
            _ => {}
        }
    }
    far.messages = far.bytes / case.bytes.max(1);
    far.elapsed_ns = span.map_or(0, |(first, last)| nanos(last.duration_since(first)));
    Ok(far)
}

fn check(case: &Case, bytes: &[u8], far: &mut FarSlice) {
    if case.validate {
        far.errors += u64::from(Pattern::new(SEED, 0).first_wrong(bytes, far.bytes).is_some());
        far.verified_bytes += bytes.len() as u64;
    }
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}
