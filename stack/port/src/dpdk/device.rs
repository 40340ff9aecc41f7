//! One device: found by name, configured, started; stopped and closed after the last of its queues.
//!
//! Checksum offloads and the receive hash are enabled if the device supports them. The MTU is
//! checked against the device and the buffers before anything is started, since a frame that does
//! not fit one buffer would arrive as a chain.

use core::mem::MaybeUninit;
use core::ptr;
use std::ffi::{CStr, CString};
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use dpdk_sys::{rte_eth_conf, rte_eth_dev_info};
use ironwarp_types::MacAddr;
use ironwarp_types::limits::BURST_FRAMES;

use super::pool::{HEADROOM_BYTES, Pool, PoolShape};
use super::ring::RingLink;
use super::vdev::{Buffers, require};
use super::{DeviceCounts, DpdkError, Eal, Errno, PortSettings, Wakes};
use crate::super_segment::SEGMENT_HEADERS_MAX;
use crate::{LinkState, PortCaps, SHARED_RSS_KEY, Spread, TxOffloads};

/// Link header, and a VLAN tag or the frame check sequence.
pub(super) const LINK_BYTES: u32 = 14 + 4;
/// The minimum size of a buffer: drivers refuse less.
const ROOM_BYTES_MIN: u32 = 2048;
/// Buffers begin on cache lines if their sizes are multiples of a line.
const ROOM_STEP_BYTES: u32 = 64;
/// Frames that a pool needs besides those in the device ring: one burst received, one sent.
const SPARE_FRAMES: u32 = 2 * BURST_FRAMES as u32;
/// The bytes of a page for a frame, besides the headers of pool and mbuf and the headroom.
const PAGE_ROOM_BYTES: u32 = 4096 - 64 - 128 - HEADROOM_BYTES as u32;
/// Buffers for received super-segments: 16 MiB. TCP holds one only while bytes before it are
/// missing, or the rest of its last FPDU.
const LONG_FRAMES: u32 = 256;
/// Their size, the longest that an mbuf can have. They have no headroom.
const LONG_BYTES: u16 = u16::MAX - u16::MAX % ROOM_STEP_BYTES as u16;
/// Entries of the table between hashes and queues where no card has one.
const TABLE_ENTRIES: u16 = 128;
/// More than any card's key (40 or 52 bytes).
const RSS_KEY_BYTES_MAX: usize = 64;

/// Returns the secret that cards hash with, the same for all cards of the process: a random number
/// of the standard library's hash tables.
fn card_rss_key() -> u16 {
    static KEY: OnceLock<u16> = OnceLock::new();
    *KEY.get_or_init(|| {
        let random = RandomState::new();
        let mut keys = (0u32..).map(|draw| random.hash_one(draw) as u16);
        keys.find(|key| is_good_key(*key)).unwrap_or(SHARED_RSS_KEY)
    })
}

/// Returns whether the hash under a repeated key uses all bits of its input well. With an odd
/// number of ones, the hashes of two flows are equal only if the exclusive or of their addresses
/// and ports is; with few ones or few zeros, a bit of the hash depends on few bits of the input.
fn is_good_key(key: u16) -> bool {
    matches!(key.count_ones(), 5 | 7 | 9 | 11)
}

/// A started device with the pools of its queues.
pub(super) struct Device {
    port: u16,
    caps: PortCaps,
    driver: String,
    /// Present if the device was started with receive interrupts: drivers change them one queue at
    /// a time.
    rx_interrupts: Option<Mutex<()>>,
    // Released in this order after the device is closed: frames still on a ring link return to the
    // pools.
    _link: Option<Arc<RingLink>>,
    queues: Vec<QueuePools>,
    _eal: Eal,
}

/// The pools of one queue.
#[derive(Clone)]
pub(super) struct QueuePools {
    pub rx: Arc<Pool>,
    pub tx: Arc<Pool>,
    /// Buffers for super-segments; present if the device receives them.
    pub long: Option<Arc<Pool>>,
    /// Present if segments are joined before they are sent.
    pub joins: Option<Joins>,
}

/// What super-segments are made of.
#[derive(Clone)]
pub(super) struct Joins {
    /// Buffers for their headers, and references to the frames that they consist of.
    pub pool: Arc<Pool>,
    /// The frames in one of them at most.
    pub frames_max: usize,
}

impl Device {
    /// Finds the device and starts it with a number of queues.
    pub(super) fn start(
        eal: &Eal,
        name: &str,
        settings: &PortSettings,
        queues: u16,
    ) -> Result<Self, DpdkError> {
        let port = find(name)?;
        let setup = Setup { name, port, settings, info: device_info(name, port)? };
        setup.start(eal, queues)
    }

    /// Keeps a ring link, and the pools of frames on it, while the device runs.
    pub(super) fn keep_link(&mut self, link: Arc<RingLink>) {
        self._link = Some(link);
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }

    pub(super) fn caps(&self) -> &PortCaps {
        &self.caps
    }

    pub(super) fn queues(&self) -> &[QueuePools] {
        &self.queues
    }

    pub(super) fn rx_interrupts(&self) -> Option<&Mutex<()>> {
        self.rx_interrupts.as_ref()
    }

    /// Whether the driver must not be polled while its link is down, or comes or goes.
    pub(super) fn follows_link(&self) -> bool {
        self.driver == MEMIF_DRIVER
    }

    pub(super) fn link(&self) -> LinkState {
        let mut speed_mbps = 0;
        // SAFETY: the port is valid while the device lives; the speed is a local variable.
        let up = unsafe { dpdk_sys::dsys_link(self.port, &mut speed_mbps) == 1 };
        LinkState { up, speed_mbps: (speed_mbps != 0).then_some(speed_mbps) }
    }

    pub(super) fn counts(&self) -> DeviceCounts {
        let mut stats = dpdk_sys::rte_eth_stats::default();
        // SAFETY: the port is valid while `self` lives, and the callee fills the structure or
        // leaves it.
        unsafe { dpdk_sys::rte_eth_stats_get(self.port, &mut stats) };
        DeviceCounts {
            rx_frames: stats.ipackets,
            tx_frames: stats.opackets,
            rx_missed: stats.imissed,
            rx_errors: stats.ierrors,
            rx_no_buffer: stats.rx_nombuf,
            tx_errors: stats.oerrors,
        }
    }
}

/// The time that memif's control thread needs after it reported that the link is down.
const LINK_DOWN_DELAY: Duration = Duration::from_millis(20);

impl Drop for Device {
    fn drop(&mut self) {
        // The driver must not be closed while its control thread takes the link down.
        if self.follows_link() && !self.link().up {
            std::thread::sleep(LINK_DOWN_DELAY);
        }
        // SAFETY: every queue is gone, so no thread polls; a failure leaves the device to the EAL's
        // clean-up.
        unsafe {
            dpdk_sys::rte_eth_dev_stop(self.port);
            dpdk_sys::rte_eth_dev_close(self.port);
        }
    }
}

const MEMIF_DRIVER: &str = "net_memif";
const PACKET_DRIVER: &str = "net_af_packet";
const RING_DRIVER: &str = "net_ring";
/// Of a PCI device, or of a virtual device of this process.
const VIRTIO_DRIVER: &str = "net_virtio";
const XDP_DRIVER: &str = "net_af_xdp";

fn find(name: &str) -> Result<u16, DpdkError> {
    let unknown = || DpdkError::UnknownDevice { device: name.into(), present: present() };
    let text = CString::new(name).map_err(|_| unknown())?;
    let mut port = 0;
    // SAFETY: a NUL-terminated text and memory for the answer.
    let answer = unsafe { dpdk_sys::rte_eth_dev_get_port_by_name(text.as_ptr(), &mut port) };
    if answer == 0 { Ok(port) } else { Err(unknown()) }
}

/// Returns whether there is a device of that name.
pub(super) fn exists(name: &str) -> bool {
    find(name).is_ok()
}

/// Returns the names of all devices, for the error.
fn present() -> String {
    let mut names = Vec::new();
    // SAFETY: walks the table of ports; any start value is allowed.
    let mut port = unsafe { dpdk_sys::rte_eth_find_next(0) };
    while port < dpdk_sys::DSYS_MAX_ETHPORTS {
        let mut name = [0; dpdk_sys::DSYS_ETH_NAME_MAX_LEN as usize];
        // SAFETY: the buffer has the length that the callee assumes, and is NUL-filled.
        unsafe { dpdk_sys::rte_eth_dev_get_name_by_port(port, name.as_mut_ptr()) };
        // SAFETY: names end with a NUL within that length.
        names.push(unsafe { CStr::from_ptr(name.as_ptr()) }.to_string_lossy().into_owned());
        // SAFETY: as above.
        port = unsafe { dpdk_sys::rte_eth_find_next(port + 1) };
    }
    if names.is_empty() { "none".into() } else { names.join(", ") }
}

fn device_info(name: &str, port: u16) -> Result<rte_eth_dev_info, DpdkError> {
    let mut info = rte_eth_dev_info::default();
    // SAFETY: a valid port and memory for the answer.
    let answer = unsafe { dpdk_sys::rte_eth_dev_info_get(port, &mut info) };
    Errno::check(answer).map(|_| info).map_err(|errno| failed(name, "be asked what it can do", errno))
}

#[cold]
fn failed(device: &str, step: &'static str, errno: Errno) -> DpdkError {
    DpdkError::Device { device: device.into(), step, errno }
}

/// A device that is found and not started.
struct Setup<'a> {
    name: &'a str,
    port: u16,
    settings: &'a PortSettings,
    info: rte_eth_dev_info,
}

/// Returns the descriptors in the device's rings.
struct Rings {
    rx: u16,
    tx: u16,
}

impl Setup<'_> {
    /// Everything that can be checked is checked before the device is touched. A device whose start
    /// fails is closed, and must be plugged in again.
    fn start(&self, eal: &Eal, queues: u16) -> Result<Device, DpdkError> {
        self.enough_queues(queues)?;
        let buffers = eal.buffers_of(self.name);
        let room_bytes = self.room_bytes(buffers)?;
        let has_long = self.merges_segments() || buffers.is_some_and(|buffers| buffers.super_segments);
        let (mut caps, rings) = (self.caps()?, self.ring_sizes()?);
        let pools = (0..queues).map(|_| self.queue_pools(room_bytes, has_long, &rings, caps.numa_node));
        let queues: Vec<QueuePools> = pools.collect::<Result<_, _>>()?;
        let mtu_before = self.mtu();
        let count = queues.len() as u16;
        let mut rx_interrupts = self.settings.wakes == Wakes::Interrupts
            && self.has_rx_interrupts(self.configure(count, &caps, true));
        if !rx_interrupts {
            self.configure(count, &caps, false)?;
        }
        caps.spread = self.spread(&caps);
        let (port, driver, eal) = (self.port, self.driver(), eal.clone());
        let mut device = Device { port, caps, driver, rx_interrupts: None, _link: None, queues, _eal: eal };
        if rx_interrupts && !self.has_rx_interrupts(self.run(&device.queues, &rings, mtu_before)) {
            rx_interrupts = false;
            self.configure(count, &device.caps, false)?;
        }
        if rx_interrupts {
            device.rx_interrupts = Some(Mutex::default());
        } else {
            self.run(&device.queues, &rings, mtu_before)?;
        }
        if !self.spreads_evenly(device.caps.spread, device.queues.len() as u16) {
            device.caps.spread = Spread::Unknown;
        }
        if self.settings.promiscuous {
            // SAFETY: a valid port.
            let answer = unsafe { dpdk_sys::rte_eth_promiscuous_enable(self.port) };
            self.step("receive frames for other stations", answer)?;
        }
        if self.settings.multicast && !self.settings.promiscuous {
            self.receive_groups();
        }
        Ok(device)
    }

    /// Sets the queues of a configured device up and starts it.
    fn run(&self, queues: &[QueuePools], rings: &Rings, mtu_before: u16) -> Result<(), DpdkError> {
        for (queue, pools) in (0..).zip(queues) {
            self.set_up_queue(queue, rings, pools)?;
        }
        self.set_mtu(mtu_before)?;
        // SAFETY: the port is configured and its queues are set up.
        self.step("start", unsafe { dpdk_sys::rte_eth_dev_start(self.port) })
    }

    /// Returns whether a step with receive interrupts succeeded. Otherwise the device is started
    /// without them.
    fn has_rx_interrupts(&self, step: Result<(), DpdkError>) -> bool {
        if let Err(error) = &step {
            tracing::info!("no receive interrupts: with them, {error}");
        }
        step.is_ok()
    }

    /// Receives multicast frames, or else all frames. Virtual devices without a filter refuse both.
    fn receive_groups(&self) {
        // SAFETY: a valid port.
        let groups = unsafe { dpdk_sys::rte_eth_allmulticast_enable(self.port) };
        if groups != 0 {
            // SAFETY: a valid port. A refusal means that there is no filter.
            let _ = unsafe { dpdk_sys::rte_eth_promiscuous_enable(self.port) };
        }
    }

    fn step(&self, step: &'static str, answer: i32) -> Result<(), DpdkError> {
        Errno::check(answer).map(drop).map_err(|errno| failed(self.name, step, errno))
    }

    fn enough_queues(&self, queues: u16) -> Result<(), DpdkError> {
        let queues_max = self.info.max_rx_queues.min(self.info.max_tx_queues);
        if queues <= queues_max {
            return Ok(());
        }
        Err(DpdkError::Queues { device: self.name.into(), cores: queues, queues_max })
    }

    /// Returns how the device spreads flows. If the peer sends from queue n into queue n, a peer
    /// with the same stack sends from the core of the flow. A card uses its hash, if that covers
    /// ports and its key can be set.
    fn spread(&self, caps: &PortCaps) -> Spread {
        let entries = self.info.reta_size;
        let keyed = (1..=RSS_KEY_BYTES_MAX).contains(&usize::from(self.info.hash_key_size));
        let by_ports = self.rss_flows() & dpdk_sys::DSYS_RSS_NONFRAG_IPV4_TCP != 0;
        match self.driver().as_str() {
            MEMIF_DRIVER | RING_DRIVER => Spread::Toeplitz { entries: TABLE_ENTRIES, key: SHARED_RSS_KEY },
            _ if caps.rss_hash && entries > 0 && keyed && by_ports => {
                Spread::Toeplitz { entries, key: card_rss_key() }
            }
            _ => Spread::Unknown,
        }
    }

    /// Fills a card's table between hashes and queues, if there is one. Returns whether flows
    /// follow `spread`.
    fn spreads_evenly(&self, spread: Spread, queues: u16) -> bool {
        let Spread::Toeplitz { entries, .. } = spread else { return true };
        if queues == 1 || self.info.reta_size == 0 {
            return true;
        }
        // SAFETY: a started port.
        unsafe { dpdk_sys::dsys_spread_evenly(self.port, entries, queues) == 0 }
    }

    /// Checks the MTU against the device and the buffers. Returns the size of a buffer without
    /// headroom.
    fn room_bytes(&self, buffers: Option<Buffers>) -> Result<u16, DpdkError> {
        let frame_bytes = u32::from(self.settings.mtu_bytes) + LINK_BYTES;
        let asked = buffers.map_or(ROOM_BYTES_MIN, |buffers| buffers.room_bytes_min.max(ROOM_BYTES_MIN));
        let asked = if self.page_each() { PAGE_ROOM_BYTES } else { asked };
        let fitting = frame_bytes.max(asked).next_multiple_of(ROOM_STEP_BYTES);
        let room = self.settings.room_bytes.map_or(fitting, u32::from);
        self.mtu_below("the buffer (room_bytes)", room)?;
        self.mtu_below("DPDK's largest buffer", u32::from(u16::MAX - HEADROOM_BYTES))?;
        if let Some(buffers) = buffers {
            self.mtu_below("the device's buffer", buffers.frame_bytes_max)?;
        }
        if !self.understates() {
            self.mtu_below("the device", self.device_frame_bytes())?;
        }
        Ok(room.min(u32::from(u16::MAX - HEADROOM_BYTES)) as u16)
    }

    fn mtu_below(&self, what: &'static str, limit_bytes: u32) -> Result<(), DpdkError> {
        let mtu_bytes = self.settings.mtu_bytes;
        let frame_bytes = u32::from(mtu_bytes) + LINK_BYTES;
        if frame_bytes <= limit_bytes {
            return Ok(());
        }
        Err(DpdkError::Mtu { device: self.name.into(), mtu_bytes, frame_bytes, what, limit_bytes })
    }

    /// Returns the longest frame of the device, link header included. Drivers state an MTU, a frame
    /// length, or both.
    fn device_frame_bytes(&self) -> u32 {
        let by_mtu = u32::from(self.info.max_mtu).saturating_add(LINK_BYTES);
        if self.info.max_mtu == u16::MAX { self.info.max_rx_pktlen } else { by_mtu }
    }

    fn caps(&self) -> Result<PortCaps, DpdkError> {
        let mut mac = dpdk_sys::rte_ether_addr::default();
        // SAFETY: a valid port and memory for the answer.
        self.step("be asked for its address", unsafe { dpdk_sys::rte_eth_macaddr_get(self.port, &mut mac) })?;
        // SAFETY: a valid port.
        let node = unsafe { dpdk_sys::rte_eth_dev_socket_id(self.port) };
        Ok(PortCaps {
            mac: MacAddr(mac.addr_bytes),
            mtu_bytes: self.settings.mtu_bytes,
            rx_checksum: self.has_rx(dpdk_sys::DSYS_RX_OFFLOAD_TCP_CKSUM),
            tx_offloads: self.tx_offloads(),
            rss_hash: self.has_rx(dpdk_sys::DSYS_RX_OFFLOAD_RSS_HASH) && self.rss_flows() != 0,
            spread: Spread::Unknown,
            numa_node: u16::try_from(node).ok(),
        })
    }

    fn has_rx(&self, offloads: u64) -> bool {
        self.info.rx_offload_capa & offloads == offloads
    }

    fn tx_offloads(&self) -> TxOffloads {
        let claimed = self.info.tx_offload_capa;
        let mut offloads = TxOffloads::empty();
        offloads.set(TxOffloads::IPV4_CHECKSUM, claimed & dpdk_sys::DSYS_TX_OFFLOAD_IPV4_CKSUM != 0);
        // DPDK has one flag for both families.
        let tcp = TxOffloads::TCP_CHECKSUM | TxOffloads::TCP_CHECKSUM_IPV6;
        offloads.set(tcp, claimed & dpdk_sys::DSYS_TX_OFFLOAD_TCP_CKSUM != 0);
        offloads
    }

    /// Returns whether super-segments are received. Of a virtual device alone: a card would wait
    /// for more segments.
    fn merges_segments(&self) -> bool {
        self.settings.fast_path && self.driver().starts_with(VIRTIO_DRIVER) && self.has_rx(RX_MERGING)
    }

    /// Returns whether the device cuts super-segments that lie in several buffers.
    fn joins_segments(&self) -> bool {
        self.settings.fast_path && self.info.tx_offload_capa & TX_SEGMENTATION == TX_SEGMENTATION
    }

    fn rss_flows(&self) -> u64 {
        self.info.flow_type_rss_offloads & RSS_FLOWS
    }

    fn driver(&self) -> String {
        if self.info.driver_name.is_null() {
            return String::new();
        }
        // SAFETY: a constant text of the driver.
        unsafe { CStr::from_ptr(self.info.driver_name) }.to_string_lossy().into_owned()
    }

    /// Returns whether the driver reports the limit of ordinary Ethernet but carries whatever fits
    /// its buffers.
    fn understates(&self) -> bool {
        [MEMIF_DRIVER, PACKET_DRIVER].contains(&self.driver().as_str())
    }

    /// Returns whether each received frame must fill a page. An XDP socket gives the kernel the
    /// pool as one area of equal frames. If a card reads them directly, the kernel refuses frames
    /// that cross into a page that is not contiguous in memory. In ordinary pages only frames of
    /// exactly one page avoid that.
    fn page_each(&self) -> bool {
        // SAFETY: reads what the EAL was started with.
        self.driver() == XDP_DRIVER && unsafe { dpdk_sys::rte_eal_has_hugepages() } == 0
    }

    fn configure(&self, queues: u16, caps: &PortCaps, rx_interrupts: bool) -> Result<(), DpdkError> {
        let mut key = [0; RSS_KEY_BYTES_MAX];
        key.iter_mut()
            .zip(card_rss_key().to_be_bytes().iter().cycle())
            .for_each(|(byte, &value)| *byte = value);
        let mut conf = rte_eth_conf::default();
        conf.rxmode.offloads = self.info.rx_offload_capa & RX_CHECKSUMS
            | (if caps.rss_hash { dpdk_sys::DSYS_RX_OFFLOAD_RSS_HASH } else { 0 });
        if self.merges_segments() {
            conf.rxmode.offloads |= RX_MERGING;
            conf.rxmode.max_lro_pkt_size = self.info.max_lro_pkt_size.min(LONG_BYTES.into());
        }
        conf.intr_conf.set_rxq(rx_interrupts.into());
        conf.txmode.offloads = self.info.tx_offload_capa & TX_CHECKSUMS;
        if self.joins_segments() {
            conf.txmode.offloads |= TX_SEGMENTATION;
        }
        if !self.understates() {
            conf.rxmode.mtu = self.settings.mtu_bytes.into();
        }
        if self.rss_flows() != 0 && (caps.rss_hash || queues > 1) {
            conf.rxmode.mq_mode = dpdk_sys::DSYS_MQ_RX_RSS;
            conf.rx_adv_conf.rss_conf.rss_hf = self.rss_flows();
            let key_bytes = self.info.hash_key_size;
            if (1..=RSS_KEY_BYTES_MAX).contains(&usize::from(key_bytes)) {
                conf.rx_adv_conf.rss_conf.rss_key = key.as_mut_ptr();
                conf.rx_adv_conf.rss_conf.rss_key_len = key_bytes;
            }
        }
        // SAFETY: the structure and the key it points to outlive the call, which copies what it
        // keeps.
        let answer = unsafe { dpdk_sys::rte_eth_dev_configure(self.port, queues, queues, &conf) };
        self.step("be configured", answer)
    }

    /// The ring sizes, rounded to the device's limits.
    fn ring_sizes(&self) -> Result<Rings, DpdkError> {
        let (mut rx, mut tx) = (self.settings.rx_ring_frames, self.settings.tx_ring_frames);
        // SAFETY: a valid port and memory for both answers.
        let answer = unsafe { dpdk_sys::rte_eth_dev_adjust_nb_rx_tx_desc(self.port, &mut rx, &mut tx) };
        self.step("size its rings", answer).map(|()| Rings { rx, tx })
    }

    fn queue_pools(
        &self,
        room_bytes: u16,
        has_long: bool,
        rings: &Rings,
        numa_node: Option<u16>,
    ) -> Result<QueuePools, DpdkError> {
        let PortSettings { rx_frames, tx_frames, .. } = *self.settings;
        let enough = "at least the device's ring and two bursts of 32";
        require(rx_frames >= u32::from(rings.rx) + SPARE_FRAMES, "rx_frames", rx_frames, enough)?;
        require(tx_frames >= u32::from(rings.tx) + SPARE_FRAMES, "tx_frames", tx_frames, enough)?;
        let room_bytes = room_bytes + HEADROOM_BYTES;
        let pool = |frames, room_bytes, page_each| {
            Pool::new(self.name, PoolShape { frames, room_bytes, numa_node, page_each }).map(Arc::new)
        };
        // Each descriptor of the ring refers to one buffer, and one of a chain is for the headers.
        let joined_frames = u32::from(rings.tx) + SPARE_FRAMES;
        let joined_bytes = HEADROOM_BYTES + SEGMENT_HEADERS_MAX.next_multiple_of(64) as u16;
        let frames_max = usize::from(self.info.tx_desc_lim.nb_seg_max).saturating_sub(1);
        let joins = self.joins_segments().then(|| pool(joined_frames, joined_bytes, false));
        Ok(QueuePools {
            rx: pool(rx_frames, room_bytes, self.page_each())?,
            tx: pool(tx_frames, room_bytes, false)?,
            long: has_long.then(|| pool(LONG_FRAMES, LONG_BYTES, false)).transpose()?,
            joins: joins.transpose()?.map(|pool| Joins { pool, frames_max }),
        })
    }

    fn set_up_queue(&self, queue: u16, rings: &Rings, pools: &QueuePools) -> Result<(), DpdkError> {
        let node = u32::from_ne_bytes(dpdk_sys::DSYS_SOCKET_ID_ANY.to_ne_bytes());
        let (conf, pool) = (ptr::null(), pools.rx.as_ptr());
        // SAFETY: a configured port; the pool outlives the device, which keeps it; NULL stands for
        // the defaults.
        let answer =
            unsafe { dpdk_sys::rte_eth_rx_queue_setup(self.port, queue, rings.rx, node, conf, pool) };
        self.step("set up a receive queue", answer)?;
        // SAFETY: as above.
        let answer =
            unsafe { dpdk_sys::rte_eth_tx_queue_setup(self.port, queue, rings.tx, node, ptr::null()) };
        self.step("set up a transmit queue", answer)
    }

    fn mtu(&self) -> u16 {
        let mut mtu = MaybeUninit::new(0);
        // SAFETY: a valid port and memory for the answer, which stays zero when there is none.
        unsafe {
            dpdk_sys::rte_eth_dev_get_mtu(self.port, mtu.as_mut_ptr());
            mtu.assume_init()
        }
    }

    /// Sets the MTU in the driver, which may set the kernel interface's. Drivers without the
    /// operation need none.
    fn set_mtu(&self, before: u16) -> Result<(), DpdkError> {
        if before == self.settings.mtu_bytes || self.understates() {
            return Ok(());
        }
        // SAFETY: a configured port.
        let answer = unsafe { dpdk_sys::rte_eth_dev_set_mtu(self.port, self.settings.mtu_bytes) };
        if answer == -ENOTSUP { Ok(()) } else { self.step("set its MTU", answer) }
    }
}

/// Linux's error number of an unsupported operation.
const ENOTSUP: i32 = 95;
/// What a device needs to receive super-segments.
const RX_MERGING: u64 = dpdk_sys::DSYS_RX_OFFLOAD_TCP_LRO
    | dpdk_sys::DSYS_RX_OFFLOAD_SCATTER
    | dpdk_sys::DSYS_RX_OFFLOAD_TCP_CKSUM;
/// Checksums that the device may verify.
const RX_CHECKSUMS: u64 = dpdk_sys::DSYS_RX_OFFLOAD_IPV4_CKSUM | dpdk_sys::DSYS_RX_OFFLOAD_TCP_CKSUM;
/// Checksums that the device may fill in.
const TX_CHECKSUMS: u64 = dpdk_sys::DSYS_TX_OFFLOAD_IPV4_CKSUM | dpdk_sys::DSYS_TX_OFFLOAD_TCP_CKSUM;
/// What a device needs to send a super-segment.
const TX_SEGMENTATION: u64 = dpdk_sys::DSYS_TX_OFFLOAD_TCP_TSO
    | dpdk_sys::DSYS_TX_OFFLOAD_MULTI_SEGS
    | dpdk_sys::DSYS_TX_OFFLOAD_TCP_CKSUM;
/// The hashed fields: addresses and ports of a TCP flow, else the addresses.
const RSS_FLOWS: u64 = dpdk_sys::DSYS_RSS_IPV4
    | dpdk_sys::DSYS_RSS_NONFRAG_IPV4_TCP
    | dpdk_sys::DSYS_RSS_IPV6
    | dpdk_sys::DSYS_RSS_NONFRAG_IPV6_TCP;
