//! A port whose frames are vectors. Sent frames can be inspected, and allocation can be made to fail.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use ironwarp_port::{Burst, Frame, Port, PortCaps, RxMeta, Sealed, TxMeta, TxOffloads};
use ironwarp_types::MacAddr;

/// The test's handle of a port that the engine owns.
#[derive(Clone)]
pub struct PortHandle {
    pub sent: Rc<RefCell<VecDeque<Vec<u8>>>>,
    pub may_alloc: Rc<Cell<bool>>,
    pub may_send: Rc<Cell<bool>>,
    /// The number of transmit frames in use.
    pub in_use: Rc<Cell<usize>>,
}

pub struct QueuePort {
    caps: PortCaps,
    port_handle: PortHandle,
}

impl QueuePort {
    pub fn new(mac: MacAddr, mtu_bytes: u16) -> (Self, PortHandle) {
        let caps = PortCaps {
            mac,
            mtu_bytes,
            rx_checksum: false,
            tx_offloads: TxOffloads::empty(),
            rss_hash: false,
            spread: Default::default(),
            numa_node: None,
        };
        let port_handle = PortHandle {
            sent: Rc::default(),
            may_alloc: Rc::new(Cell::new(true)),
            may_send: Rc::new(Cell::new(true)),
            in_use: Rc::default(),
        };
        (QueuePort { caps, port_handle: port_handle.clone() }, port_handle)
    }

    /// Returns an arriving frame, in a buffer of the usual size or larger if needed.
    pub fn arrived(bytes: &[u8]) -> VecFrame {
        VecFrame { bytes: bytes.to_vec(), capacity: bytes.len().max(2_048), counted: None }
    }
}

impl Port for QueuePort {
    type Frame = VecFrame;

    fn caps(&self) -> &PortCaps {
        &self.caps
    }

    fn rx_burst(&mut self, _into: &mut Burst<VecFrame>) {}

    fn tx_burst(&mut self, from: &mut Burst<VecSealed>) {
        if self.port_handle.may_send.get() {
            self.port_handle.sent.borrow_mut().extend(from.drain(..).map(|sealed| sealed.0.bytes.clone()));
        }
    }

    fn alloc(&mut self) -> Option<VecFrame> {
        let capacity = usize::from(self.caps.mtu_bytes) + 14;
        // Fill with a pattern, so that bytes that the caller does not overwrite are detected.
        let bytes = vec![0xa5; capacity];
        self.port_handle.may_alloc.get().then(|| {
            self.port_handle.in_use.set(self.port_handle.in_use.get() + 1);
            VecFrame { bytes, capacity, counted: Some(self.port_handle.in_use.clone()) }
        })
    }
}

pub struct VecFrame {
    bytes: Vec<u8>,
    capacity: usize,
    counted: Option<Rc<Cell<usize>>>,
}

impl Drop for VecFrame {
    fn drop(&mut self) {
        if let Some(in_use) = &self.counted {
            in_use.set(in_use.get() - 1);
        }
    }
}

impl Frame for VecFrame {
    type Sealed = VecSealed;

    fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }

    fn capacity(&self) -> usize {
        self.capacity
    }

    fn resize(&mut self, len: usize) {
        self.bytes.resize(len.min(self.capacity), 0x5a);
    }

    fn rx(&self) -> RxMeta {
        RxMeta::default()
    }

    fn set_rx(&mut self, _rx: RxMeta) {}

    fn seal(self, _tx: TxMeta) -> VecSealed {
        VecSealed(Rc::new(self))
    }
}

#[derive(Clone)]
pub struct VecSealed(Rc<VecFrame>);

impl Sealed for VecSealed {
    fn bytes(&self) -> &[u8] {
        &self.0.bytes
    }
}
