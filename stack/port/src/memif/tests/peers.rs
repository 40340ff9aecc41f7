//! Peers for tests that speak the protocol message by message, so that they can break it.

use std::cell::Cell;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::fs::{
    FallocateFlags, MemfdFlags, SealFlags, fallocate, fcntl_add_seals, ftruncate, memfd_create,
};
use zerocopy::little_endian::{U16, U32, U64};

use super::until;
use crate::Port;
use crate::memif::MemifPort;
use crate::memif::region::{Descriptor, Holes, Region, RingWords};
use crate::memif::socket::{Channel, Listener, Received};
use crate::memif::wire::{AddRegion, AddRing, Hello, Init, Message};

/// What a region is sealed against.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Seal {
    None,
    Shrink,
    /// As `Shrink`, but no page exists.
    Sparse,
}

/// A client.
pub(super) struct Client {
    channel: Channel,
    memory: Option<Memory>,
}

/// The memory of a client, and its two rings of 16 descriptors.
pub(super) struct Memory {
    file: OwnedFd,
    region: Arc<Region>,
    c2s: RingWords,
    s2c: RingWords,
    c2s_head: Cell<u16>,
}

/// Returns a memfd of 8192 bytes.
fn file(seal: Seal) -> OwnedFd {
    let file = memfd_create("peer", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).expect("a memfd");
    ftruncate(&file, 8192).expect("a length");
    if seal != Seal::Sparse {
        rustix::io::pwrite(&file, &[0; 8192], 0).expect("pages");
    }
    if seal != Seal::None {
        fcntl_add_seals(&file, SealFlags::SHRINK).expect("a seal");
    }
    file
}

impl Client {
    pub(super) const REGION_BYTES: usize = 8192;
    const S2C_OFFSET: u32 = 512;

    pub(super) fn connect(path: &Path) -> Self {
        Client { channel: Channel::connect(path).expect("a listener"), memory: None }
    }

    /// Returns a client whose link with `server` is up.
    pub(super) fn up(path: &Path, server: &MemifPort) -> Self {
        let mut client = Client::connect(path);
        assert!(matches!(client.next(server), Some(Message::Hello(_))));
        client.good_region(server);
        client.ring(1, 0, 0, 0, 4);
        client.acknowledged(server);
        client.ring(0, 0, 0, Self::S2C_OFFSET, 4);
        client.acknowledged(server);
        client.send(&Message::Connect, None);
        assert!(matches!(client.next(server), Some(Message::Connected)));
        client
    }

    /// Connects and leaves, if a server listens and its queue has room.
    pub(super) fn try_connect(path: &Path) -> Option<()> {
        Channel::connect(path).map(drop)
    }

    /// Sends a message, if there is room for it and a server.
    pub(super) fn try_send(&self, message: &Message) -> bool {
        self.channel.send(message, "peer", None)
    }

    fn memory(&self) -> &Memory {
        self.memory.as_ref().expect("the region was made")
    }

    pub(super) fn send_raw(&self, bytes: &[u8]) {
        assert!(self.channel.try_send_raw(bytes));
    }

    pub(super) fn send(&self, message: &Message, fd: Option<&OwnedFd>) {
        assert!(self.channel.send(message, "peer", fd.map(AsFd::as_fd)));
    }

    /// Returns the next message of the server, which is polled meanwhile. `None`: it has closed the
    /// socket.
    pub(super) fn next(&self, server: &MemifPort) -> Option<Message> {
        let mut got = None;
        until("a message", || {
            server.link();
            match self.channel.receive() {
                Received::Nothing => return false,
                Received::Message(message, _) => got = Some(message),
                Received::Closed | Received::Malformed => {}
            }
            true
        });
        got
    }

    fn acknowledged(&self, server: &MemifPort) {
        assert!(matches!(self.next(server), Some(Message::Ack)));
    }

    pub(super) fn init(&self, version: u16, id: u32, mode: u8) {
        let init =
            Init { version: U16::new(version), id: U32::new(id), mode, secret: [0; 24], name: [0; 32] };
        self.send(&Message::Init(init), None);
    }

    pub(super) fn good_init(&self, server: &MemifPort) {
        self.init(0x0200, 0, 0);
        self.next(server);
    }

    pub(super) fn region(&self, index: u16, size: u64, seal: Seal) {
        let region = AddRegion { index: U16::new(index), size: U64::new(size) };
        self.send(&Message::AddRegion(region), Some(&file(seal)));
    }

    pub(super) fn region_without_file(&self) {
        let region = AddRegion { index: U16::new(0), size: U64::new(4096) };
        self.send(&Message::AddRegion(region), None);
    }

    /// Passes a region with two rings.
    pub(super) fn good_region(&mut self, server: &MemifPort) {
        self.good_init(server);
        let file = file(Seal::Shrink);
        let region = Arc::new(Region::view(&file, Self::REGION_BYTES).expect("a mapping"));
        let ring = |offset: u32| RingWords::new(&region, offset as usize, 4).expect("a ring");
        let (c2s, s2c) = (ring(0), ring(Self::S2C_OFFSET));
        c2s.initialise();
        s2c.initialise();
        let message = AddRegion { index: U16::new(0), size: U64::new(Self::REGION_BYTES as u64) };
        self.send(&Message::AddRegion(message), Some(&file));
        self.acknowledged(server);
        self.memory = Some(Memory { file, region, c2s, s2c, c2s_head: Cell::new(0) });
    }

    pub(super) fn ring(&self, flags: u16, index: u16, region: u16, offset: u32, log2: u8) {
        let ring = AddRing {
            flags: U16::new(flags),
            index: U16::new(index),
            region: U16::new(region),
            offset: U32::new(offset),
            log2_ring_size: log2,
            private_hdr_size: U16::new(0),
        };
        self.send(&Message::AddRing(ring), None);
    }

    /// Sends frames with these descriptors.
    pub(super) fn offer(&mut self, descriptors: &[Descriptor]) {
        let memory = self.memory();
        let head = memory.c2s_head.get();
        for (slot, descriptor) in (0..).zip(descriptors) {
            memory.c2s.set_descriptor(head.wrapping_add(slot), *descriptor);
        }
        memory.c2s_head.set(head.wrapping_add(descriptors.len() as u16));
        self.set_c2s_head(memory.c2s_head.get());
    }

    /// Offers a whole ring of such buffers.
    pub(super) fn offer_buffers(&self, descriptor: Descriptor) {
        (0..16).for_each(|slot| self.memory().s2c.set_descriptor(slot, descriptor));
        self.set_s2c_head(16);
    }

    pub(super) fn set_c2s_head(&self, head: u16) {
        self.memory().c2s.head().store(head, Ordering::Release);
    }

    pub(super) fn set_s2c_head(&self, head: u16) {
        self.memory().s2c.head().store(head, Ordering::Release);
    }

    /// Moves both heads on from the server's indices.
    pub(super) fn advance_heads(&self, step: u16) {
        let (c2s, s2c) = (&self.memory().c2s, &self.memory().s2c);
        c2s.head().store(c2s.tail().load(Ordering::Acquire).wrapping_add(step), Ordering::Release);
        s2c.head().store(s2c.tail().load(Ordering::Acquire).wrapping_add(step), Ordering::Release);
    }

    /// Writes a word of 8 bytes of the region.
    pub(super) fn write_word(&self, word: usize, value: u64) {
        assert!(self.memory().region.write(word * 8, &value.to_le_bytes()));
    }
}

/// A server that lets tests choose every message.
pub(super) struct EvilServer {
    listener: Listener,
    channel: Cell<Option<Channel>>,
}

impl EvilServer {
    pub(super) fn bind(path: &Path) -> Self {
        EvilServer { listener: Listener::bind(path).expect("a free path"), channel: Cell::new(None) }
    }

    /// Waits for the client to connect, and sends a message.
    pub(super) fn say(&self, client: &MemifPort, message: &Message) {
        let mut channel = None;
        until("the client", || {
            client.link();
            channel = self.listener.accept().expect("a free descriptor");
            channel.is_some()
        });
        self.channel.set(channel);
        self.say_more(message);
    }

    pub(super) fn say_more(&self, message: &Message) {
        let channel = self.channel.take().expect("a client");
        assert!(channel.send(message, "evil", None));
        self.channel.set(Some(channel));
    }

    pub(super) fn hello(&self, client: &MemifPort, version: u16, last_ring: u16, log2: u8) {
        let mut hello = Hello::new("evil", last_ring + 1, 16, log2);
        (hello.min_version, hello.max_version) = (U16::new(version), U16::new(version));
        self.say(client, &Message::Hello(hello));
    }

    /// Starts a link as the protocol says, and returns the client's memory.
    pub(super) fn up(&self, client: &MemifPort) -> Memory {
        self.hello(client, 0x0200, 0, 14);
        let channel = self.channel.take().expect("a client");
        let (mut passed, mut region, mut rings) = (None, None, [const { None }; 2]);
        loop {
            client.link();
            let Received::Message(message, fd) = channel.receive() else { continue };
            match message {
                Message::AddRegion(added) => {
                    let file = fd.expect("a descriptor comes with the region");
                    region = Some(Arc::new(
                        Region::open(&file, added.size.get(), Holes::Refuse)
                            .expect("sealed, and all pages exist"),
                    ));
                    passed = Some(file);
                }
                Message::AddRing(added) => {
                    let region = region.as_ref().expect("the region comes first");
                    let ring = RingWords::new(region, added.offset.get() as usize, added.log2_ring_size);
                    rings[usize::from(added.flags.get())] = ring.filter(RingWords::has_cookie);
                }
                Message::Connect => break,
                _ => {}
            }
            assert!(channel.send(&Message::Ack, "evil", None));
        }
        assert!(channel.send(&Message::Connected, "evil", None));
        until("the link", || client.link().up);
        self.channel.set(Some(channel));
        let [s2c, c2s] = rings.map(|ring| ring.expect("both rings"));
        let (file, region) = (passed.expect("a file"), region.expect("a region"));
        Memory { file, region, c2s, s2c, c2s_head: Cell::new(0) }
    }
}

impl Memory {
    /// Punches a hole into the first page.
    pub(super) fn punch(&self) -> rustix::io::Result<()> {
        fallocate(&self.file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 0, 4096)
    }

    /// Overwrites what the descriptor of a slot to the server points at.
    pub(super) fn overwrite_c2s(&self, slot: u16, byte: u8) {
        let described = self.c2s.descriptor(slot);
        assert!(self.region.write(described.offset as usize, &vec![byte; described.len as usize]));
    }

    /// Reports frames with these descriptors to the client.
    pub(super) fn fill(&self, descriptors: &[Descriptor]) {
        (0..).zip(descriptors).for_each(|(slot, descriptor)| self.s2c.set_descriptor(slot, *descriptor));
        self.set_s2c_tail(descriptors.len() as u16);
    }

    pub(super) fn set_s2c_tail(&self, tail: u16) {
        self.s2c.tail().store(tail, Ordering::Release);
    }

    pub(super) fn set_c2s_tail(&self, tail: u16) {
        self.c2s.tail().store(tail, Ordering::Release);
    }
}
