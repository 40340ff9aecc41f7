//! The port of one queue.
#![forbid(unsafe_code)]

use std::io::IoSliceMut;
use std::os::fd::AsFd;
use std::sync::Arc;

use ironwarp_stats::{CoreStats, Counter};
use ironwarp_types::MacAddr;
use ironwarp_types::limits::BURST_FRAMES;
use rustix::io::Errno;

use super::sys::{Interface, Queue};
use super::vnet::{HEADER_BYTES, Vnet, Write};
use super::{KernelConfig, KernelDevice, KernelError, LINK_BYTES_MAX, LONG_BYTES, TAP_MAC};
use crate::pool::{Pool, PoolFrame, PoolSealed};
use crate::{Burst, Frame, LinkState, Port, PortCaps, Spread, TxOffloads, WakeSource};

/// The addresses of an Ethernet header, which the VLAN tag follows.
const ADDRESSES_BYTES: usize = 12;
/// Buffers for super-segments at least.
const LONG_FRAMES_MIN: usize = 64;

/// One queue of an interface of the kernel.
pub struct KernelPort {
    queue: Queue,
    interface: Arc<Interface>,
    rx_pool: Pool,
    long_pool: Pool,
    tx_pool: Pool,
    /// The buffers of the next received frame. A frame longer than the first continues in the
    /// second.
    short: Option<PoolFrame>,
    long: Option<PoolFrame>,
    /// In place of a long buffer if none is free. The frame is dropped.
    scratch: Box<[u8]>,
    joins_segments: bool,
    stats: CoreStats,
    caps: PortCaps,
}

impl KernelPort {
    /// Opens a device: one port for each queue, which counts into its page of `stats`.
    ///
    /// # Errors
    /// [`KernelError`] names the step that the kernel refused.
    pub fn open_queues(config: &KernelConfig, stats: Vec<CoreStats>) -> Result<Vec<Self>, KernelError> {
        let failed = |step: &'static str| {
            let interface = config.interface.clone();
            move |source: Errno| KernelError { interface, step, source: source.into() }
        };
        let interface = Arc::new(Interface::new(&config.interface).map_err(failed("open a socket"))?);
        let several = stats.len() > 1;
        let (mac, queues) = match config.device {
            KernelDevice::Tap => {
                let open = || Queue::tap(&config.interface).map_err(failed("open a queue of the tap"));
                let queues = stats.iter().map(|_| open()).collect::<Result<Vec<_>, _>>()?;
                interface.set_mtu(config.mtu_bytes).map_err(failed("set the MTU"))?;
                interface.set_up().map_err(failed("be set up"))?;
                (TAP_MAC, queues)
            }
            KernelDevice::Packet => {
                let index = interface.index().map_err(failed("be found"))?;
                let mac = interface.mac().map_err(failed("be asked for its address"))?;
                let mut group = None;
                let mut open = || Queue::packet(index, &mut group, several);
                let queues = stats.iter().map(|_| open().map_err(failed("open a packet socket")));
                (mac, queues.collect::<Result<Vec<_>, _>>()?)
            }
        };
        let port = |(queue, stats)| Self::over(config, interface.clone(), mac, queue, stats);
        Ok(queues.into_iter().zip(stats).map(port).collect())
    }

    /// Returns the port of an open queue.
    pub(super) fn over(
        config: &KernelConfig,
        interface: Arc<Interface>,
        mac: MacAddr,
        queue: Queue,
        stats: CoreStats,
    ) -> Self {
        let short_bytes = (usize::from(config.mtu_bytes) + LINK_BYTES_MAX).next_multiple_of(64);
        KernelPort {
            queue,
            interface,
            rx_pool: Pool::new(config.rx_frames.max(1), short_bytes),
            long_pool: Pool::zeroed((config.rx_frames / 8).max(LONG_FRAMES_MIN), LONG_BYTES),
            tx_pool: Pool::new(config.tx_frames.max(1), short_bytes),
            short: None,
            long: None,
            scratch: vec![0; LONG_BYTES].into(),
            joins_segments: config.joins_segments,
            stats,
            caps: PortCaps {
                mac,
                mtu_bytes: config.mtu_bytes,
                rx_checksum: true,
                tx_offloads: TxOffloads::TCP_CHECKSUM | TxOffloads::TCP_CHECKSUM_IPV6,
                rss_hash: false,
                spread: Spread::Unknown,
                numa_node: None,
            },
        }
    }

    /// Opens a device with one queue.
    ///
    /// # Errors
    /// As [`KernelPort::open_queues`].
    pub fn open(config: &KernelConfig, stats: CoreStats) -> Result<Self, KernelError> {
        let no_queue = || KernelError {
            interface: config.interface.clone(),
            step: "open a queue",
            source: Errno::INVAL.into(),
        };
        Self::open_queues(config, vec![stats])?.pop().ok_or_else(no_queue)
    }

    /// Reads one frame. Returns `None` if it is dropped, and an error if nothing was read.
    #[inline]
    fn receive(&mut self) -> rustix::io::Result<Option<PoolFrame>> {
        let mut short = match self.short.take() {
            Some(short) => short,
            None => self.rx_pool.take_any().ok_or(Errno::NOBUFS)?,
        };
        short.resize(short.capacity());
        let short_bytes = short.bytes().len();
        if self.long.is_none() {
            self.long = self.long_pool.take_any();
        }
        let rest = match &mut self.long {
            Some(long) => {
                long.resize(LONG_BYTES);
                long.bytes_mut()
            }
            None => &mut self.scratch[..],
        };
        let mut header = [0; HEADER_BYTES];
        let mut into = [
            IoSliceMut::new(&mut header),
            IoSliceMut::new(short.bytes_mut()),
            IoSliceMut::new(rest.get_mut(short_bytes..).unwrap_or_default()),
        ];
        let read = self.queue.receive(&mut into);
        let (bytes, tag) = match read {
            Ok(read) => read,
            Err(error) => {
                self.short = Some(short);
                return Err(error);
            }
        };
        Ok(self.accept(&header, short, bytes.saturating_sub(HEADER_BYTES), tag))
    }

    /// Returns the received frame with what is known of it, unless it must be dropped.
    #[inline]
    fn accept(
        &mut self,
        header: &[u8; HEADER_BYTES],
        mut short: PoolFrame,
        bytes: usize,
        tag: Option<[u8; 4]>,
    ) -> Option<PoolFrame> {
        let vnet = Vnet::decode(header);
        let rx = match vnet.verdict(bytes, self.caps.mtu_bytes) {
            Ok(rx) => rx,
            Err(reason) => {
                self.short = Some(short);
                self.stats.count(reason);
                return None;
            }
        };
        if vnet.is_super_segment() {
            self.stats.count(Counter::PortRxSuperSegments);
        }
        let mut frame = if bytes <= short.bytes().len() {
            short.resize(bytes);
            short
        } else {
            let long = self.long.take().map(|mut long| {
                let front = short.bytes();
                if let Some(to) = long.bytes_mut().get_mut(..front.len()) {
                    to.copy_from_slice(front);
                }
                long.resize(bytes);
                long
            });
            self.short = Some(short);
            if long.is_none() {
                self.stats.count(Counter::PortRxNoBuffer);
            }
            long?
        };
        if let Some(tag) = tag
            && !insert_tag(&mut frame, tag)
        {
            self.stats.count(Counter::PortRxTooLong);
            return None;
        }
        frame.set_rx(rx);
        Some(frame)
    }
}

/// Puts the VLAN tag that the kernel has taken out back into a frame. Returns `false` if it does
/// not fit.
#[cold]
fn insert_tag(frame: &mut PoolFrame, tag: [u8; 4]) -> bool {
    let end = frame.bytes().len();
    if end < ADDRESSES_BYTES || frame.extend(tag.len()).is_none() {
        return false;
    }
    let bytes = frame.bytes_mut();
    bytes.copy_within(ADDRESSES_BYTES..end, ADDRESSES_BYTES + tag.len());
    if let Some(at) = bytes.get_mut(ADDRESSES_BYTES..).and_then(<[u8]>::first_chunk_mut) {
        *at = tag;
    }
    true
}

impl Port for KernelPort {
    type Frame = PoolFrame;

    fn caps(&self) -> &PortCaps {
        &self.caps
    }

    fn link(&self) -> LinkState {
        LinkState { up: self.interface.is_running(), speed_mbps: None }
    }

    #[inline]
    fn rx_burst(&mut self, into: &mut Burst<PoolFrame>) {
        let before = into.len();
        // Dropped frames count too, so that a burst ends.
        for _ in 0..BURST_FRAMES {
            if into.is_full() {
                break;
            }
            match self.receive() {
                Ok(Some(frame)) => into.push(frame),
                Ok(None) | Err(Errno::INTR) => {}
                Err(_) => break,
            }
        }
        if into.len() > before {
            self.stats.add(Counter::PortRxFrames, (into.len() - before) as u64);
        }
    }

    /// Sends frames. What the kernel refuses because it is full stays in the burst; what it refuses
    /// for another reason, as on an interface that is down, is dropped and counted.
    fn tx_burst(&mut self, from: &mut Burst<PoolSealed>) {
        let mut done = 0;
        while let Some(write) = from.get(done..).and_then(|rest| Write::next(rest, self.joins_segments)) {
            let frames = from.get(done..).unwrap_or_default();
            let counter = match self.queue.send(&write.slices(frames)) {
                Ok(()) => Counter::PortTxFrames,
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN | Errno::NOBUFS) => break,
                Err(_) => Counter::PortTxRefused,
            };
            if write.frames > 1 {
                self.stats.count(Counter::PortTxSuperSegments);
            }
            self.stats.add(counter, write.frames as u64);
            done += write.frames;
        }
        from.drain(..done);
    }

    #[inline]
    fn alloc(&mut self) -> Option<PoolFrame> {
        self.tx_pool.take()
    }

    fn take_wake_source(&mut self) -> Option<WakeSource> {
        self.queue.as_fd().try_clone_to_owned().ok().map(WakeSource::Frames)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_returns_to_its_place() {
        let mut frame = PoolFrame::detached(&[1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 8, 0, 9], 19);
        assert!(insert_tag(&mut frame, [0x81, 0, 0, 5]));
        assert_eq!(frame.bytes(), [1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 0x81, 0, 0, 5, 8, 0, 9]);
        assert!(!insert_tag(&mut frame, [0x81, 0, 0, 5]), "the buffer is full");
        assert!(!insert_tag(&mut PoolFrame::detached(&[0; 11], 64), [0; 4]), "no link header");
    }
}
