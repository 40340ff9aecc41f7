//! Work requests, in the form in which they are stored in the slots of a queue.
//!
//! The application's thread writes a slot in place and the core reads it in place. The first cache
//! line holds the header and the first two gather elements, so a small message costs one line.
//! Inline bytes take the space of the gather list. Elements are stored in the machine's byte order,
//! because a slot never leaves its process.

use core::fmt;

use ironwarp_mem::{Access, AtomicOp, Binding, Sge};
use ironwarp_types::STag;
use ironwarp_types::limits::{INLINE_BYTES_MAX, SGE_MAX};

use crate::completion::CompletionOpcode;
use crate::rdmap::Opcode;

/// Bytes of one gather or scatter element in a slot: address, length, local key.
const SGE_BYTES: usize = 16;

/// Bytes of the list in a slot.
const SGE_LIST_BYTES: usize = SGE_MAX * SGE_BYTES;

const _: () = assert!(INLINE_BYTES_MAX == SGE_LIST_BYTES);
const _: () = assert!(size_of::<SendWqe>() == 320 && size_of::<RecvWqe>() == 320);

/// The operation of a send-queue request (RFC 5040 s4.1, figure 4).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SendOpcode {
    /// A Send.
    #[default]
    Send,
    /// A Send with Solicited Event: it wakes a peer that waits for solicited events only.
    SendSolicited,
    /// A Send that also invalidates the peer's steering tag in `remote_stag`.
    SendInvalidate,
    /// A Send with Solicited Event that also invalidates the peer's steering tag in `remote_stag`.
    SendSolicitedInvalidate,
    /// An RDMA Write to `remote_stag`, `remote_to`.
    Write,
    /// An RDMA Read from `remote_stag`, `remote_to` into the one element of the list.
    Read,
    /// A Read that also invalidates the steering tag of its element before it completes.
    ReadInvalidate,
    /// Invalidates the local steering tag in `remote_stag`. Sends nothing.
    Invalidate,
    /// Binds a memory window to the one element of the list; `remote_stag` becomes its steering
    /// tag. Sends nothing.
    Bind,
    /// Makes a fast region of the one element of the list; `remote_stag` becomes its steering tag.
    /// Sends nothing.
    FastRegister,
    /// Immediate Data: the peer receives the eight inline bytes in a completion (RFC 7306 s6).
    Immediate,
    /// Immediate Data with Solicited Event.
    ImmediateSolicited,
    /// Adds to the word at `remote_stag`, `remote_to` (RFC 7306 s5). Like the two below, it stores
    /// the word's value before the operation in the one element of the list.
    FetchAdd,
    /// Replaces that word if it equals the compare operand.
    CmpSwap,
    /// Replaces that word.
    Swap,
}

/// What an operation of the send queue is: everything that differs between operations follows from
/// it.
///
/// Its message decides the queue ([`Rfc7306Profile::queue`](crate::rdmap::Rfc7306Profile::queue))
/// and the form of the header (tagged, or with a tag that it [invalidates](Opcode::invalidates)). A
/// read fence waits for the operations that complete with a response, and those wait while the
/// peer's read depth is used up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OpSpec {
    /// The message that it sends; `None` for an operation on local memory.
    pub message: Option<Opcode>,
    /// When it completes.
    pub completes: CompletesWhen,
    /// The kind of its completion.
    pub completion: CompletionOpcode,
}

/// When an operation completes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CompletesWhen {
    /// The peer's TCP has acknowledged its message, or with `complete_on_copy` its octets are
    /// copied.
    Acked,
    /// The peer's response has arrived.
    Answered,
    /// The peer's response has arrived, and no core uses the local memory whose tag it invalidates.
    AnsweredAndInvalidated,
    /// No core uses the local memory whose tag it invalidates.
    Invalidated,
    /// It is carried out: on local memory, or by sending its message.
    CarriedOut,
}

impl SendOpcode {
    /// Returns what the operation is.
    #[inline]
    pub const fn spec(self) -> OpSpec {
        use CompletesWhen::{Acked, Answered, AnsweredAndInvalidated, CarriedOut, Invalidated};
        use CompletionOpcode as Completion;
        let (message, completes, completion) = match self {
            SendOpcode::Send => (Some(Opcode::Send), Acked, Completion::Send),
            SendOpcode::SendSolicited => (Some(Opcode::SendSolicited), Acked, Completion::Send),
            SendOpcode::SendInvalidate => (Some(Opcode::SendInvalidate), Acked, Completion::Send),
            SendOpcode::SendSolicitedInvalidate => {
                (Some(Opcode::SendSolicitedInvalidate), Acked, Completion::Send)
            }
            SendOpcode::Write => (Some(Opcode::Write), Acked, Completion::Write),
            SendOpcode::Read => (Some(Opcode::ReadRequest), Answered, Completion::Read),
            SendOpcode::ReadInvalidate => {
                (Some(Opcode::ReadRequest), AnsweredAndInvalidated, Completion::Read)
            }
            SendOpcode::Invalidate => (None, Invalidated, Completion::Invalidate),
            SendOpcode::Bind => (None, CarriedOut, Completion::Bind),
            SendOpcode::FastRegister => (None, CarriedOut, Completion::FastRegister),
            SendOpcode::Immediate => (Some(Opcode::Immediate), CarriedOut, Completion::Immediate),
            SendOpcode::ImmediateSolicited => {
                (Some(Opcode::ImmediateSolicited), CarriedOut, Completion::Immediate)
            }
            SendOpcode::FetchAdd => (Some(Opcode::AtomicRequest), Answered, Completion::FetchAdd),
            SendOpcode::CmpSwap => (Some(Opcode::AtomicRequest), Answered, Completion::CmpSwap),
            SendOpcode::Swap => (Some(Opcode::AtomicRequest), Answered, Completion::Swap),
        };
        OpSpec { message, completes, completion }
    }

    // The predicates run for every request, so they are comparisons, which a test compares with
    // `spec`.

    /// Returns whether the request completes only when the peer has sent a response.
    #[inline]
    pub const fn expects_response(self) -> bool {
        self.is_read() || self as u8 >= SendOpcode::FetchAdd as u8
    }

    /// Returns whether this is an RDMA Read.
    #[inline]
    pub const fn is_read(self) -> bool {
        matches!(self, SendOpcode::Read | SendOpcode::ReadInvalidate)
    }

    /// Returns whether this is a Send or an RDMA Write, which is cut into as many segments as
    /// needed.
    #[inline]
    pub const fn is_send_or_write(self) -> bool {
        self as u8 <= SendOpcode::Write as u8
    }

    /// Returns whether the stream must support RFC 7306 to carry out this operation.
    #[inline]
    pub const fn is_extended(self) -> bool {
        self as u8 >= SendOpcode::Immediate as u8
    }

    /// Returns whether this operation sends nothing.
    #[inline]
    pub const fn is_local(self) -> bool {
        matches!(self, SendOpcode::Invalidate | SendOpcode::Bind | SendOpcode::FastRegister)
    }
}

bitflags::bitflags! {
    /// Options of a send-queue request.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct SendFlags: u8 {
        /// Report success by a completion. Failure is always reported.
        const SIGNALED = 1;
        /// Wait until every earlier Read of this queue has completed.
        const FENCE = 2;
        /// The slot holds the payload instead of a gather list.
        const INLINE = 4;
        /// Wait until every earlier request of this queue has completed.
        const LOCAL_FENCE = 8;
        /// Limit the fast region to this stream, and let its peer invalidate it.
        const STREAM_SCOPE = 16;
        /// This request and the next one are one to the application: this one never completes, and
        /// the next one's completion reports its failure. Both are posted together.
        const REPORTED_BY_NEXT = 32;
    }
}

/// A send-queue request in its slot.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub struct SendWqe {
    /// Returned in the completion.
    pub wr_id: u64,
    /// The tagged offset at the peer, for operations on the peer's memory.
    pub remote_to: u64,
    /// The steering tag at the peer: the target of an operation on its memory, or the tag that a
    /// Send invalidates. A local steering tag for the operations that send nothing.
    pub remote_stag: STag,
    len: u32,
    /// The rights that a window or fast region grants.
    pub access: Access,
    /// The operation.
    pub opcode: SendOpcode,
    /// The options.
    pub flags: SendFlags,
    num_sge: u8,
    list: [u8; SGE_LIST_BYTES],
}

/// A receive-queue request in its slot: the buffer for one message.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub struct RecvWqe {
    /// Returned in the completion.
    pub wr_id: u64,
    len: u32,
    num_sge: u8,
    list: [u8; SGE_LIST_BYTES],
}

impl Default for SendWqe {
    fn default() -> Self {
        SendWqe {
            wr_id: 0,
            remote_to: 0,
            remote_stag: STag(0),
            len: 0,
            access: Access::empty(),
            opcode: SendOpcode::Send,
            flags: SendFlags::empty(),
            num_sge: 0,
            list: [0; SGE_LIST_BYTES],
        }
    }
}

impl Default for RecvWqe {
    fn default() -> Self {
        RecvWqe { wr_id: 0, len: 0, num_sge: 0, list: [0; SGE_LIST_BYTES] }
    }
}

impl SendWqe {
    /// Takes the payload from registered memory, in the order of `sges`. Elements after the
    /// sixteenth are ignored.
    pub fn set_gather(&mut self, sges: &[Sge]) {
        self.flags.remove(SendFlags::INLINE);
        (self.num_sge, self.len) = write_list(&mut self.list, sges);
    }

    /// Copies the payload into the slot. With more than 256 bytes the request fails with
    /// [`LocalLength`](crate::CompletionStatus::LocalLength).
    pub fn set_inline(&mut self, bytes: &[u8]) {
        self.flags.insert(SendFlags::INLINE);
        self.num_sge = 0;
        self.len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        if let Some(list) = self.list.get_mut(..bytes.len()) {
            list.copy_from_slice(bytes);
        }
    }

    /// Turns the request into an atomic operation that stores the word's previous value in `sink`.
    pub fn set_atomic(&mut self, operation: &AtomicOp, sink: Sge) {
        self.set_gather(&[sink]);
        let operands;
        (self.opcode, operands) = match *operation {
            AtomicOp::FetchAdd { add, mask } => (SendOpcode::FetchAdd, [add, mask, 0, 0]),
            AtomicOp::CmpSwap { compare, compare_mask, swap, swap_mask } => {
                (SendOpcode::CmpSwap, [compare, compare_mask, swap, swap_mask])
            }
            AtomicOp::Swap { swap } => (SendOpcode::Swap, [swap, 0, 0, 0]),
        };
        let (_, after_sink) = self.list.split_at_mut(SGE_BYTES);
        for (place, operand) in after_sink.as_chunks_mut::<8>().0.iter_mut().zip(operands) {
            *place = operand.to_ne_bytes();
        }
    }

    /// Returns the atomic operation; `None` if the request is of another kind.
    pub fn atomic(&self) -> Option<AtomicOp> {
        let operands = self.list.get(SGE_BYTES..)?.as_chunks::<8>().0.first_chunk::<4>()?;
        let [first, second, swap, swap_mask] = operands.map(u64::from_ne_bytes);
        match self.opcode {
            SendOpcode::FetchAdd => Some(AtomicOp::FetchAdd { add: first, mask: second }),
            SendOpcode::CmpSwap => {
                Some(AtomicOp::CmpSwap { compare: first, compare_mask: second, swap, swap_mask })
            }
            SendOpcode::Swap => Some(AtomicOp::Swap { swap: first }),
            _ => None,
        }
    }

    /// Returns the length of the message, or `u32::MAX` if the list has more bytes.
    pub fn message_bytes(&self) -> u32 {
        self.len
    }

    /// Returns whether the slot holds the payload itself.
    pub fn is_inline(&self) -> bool {
        self.flags.contains(SendFlags::INLINE)
    }

    /// Returns the inline payload; `None` if it is longer than a slot.
    pub fn inline_bytes(&self) -> Option<&[u8]> {
        self.list.get(..self.len as usize)
    }

    /// Returns what a window or fast region is to be bound to; `None` unless the list has exactly
    /// one element.
    pub fn binding(&self) -> Option<Binding> {
        let over = self.gather().at(0).filter(|_| self.num_sge == 1 && !self.is_inline())?;
        let stream_scope = self.flags.contains(SendFlags::STREAM_SCOPE);
        Some(Binding { stag: self.remote_stag, over, access: self.access, stream_scope })
    }

    /// Returns the gather list.
    pub fn gather(&self) -> SgeList<'_> {
        SgeList { list: &self.list, count: self.num_sge }
    }
}

impl RecvWqe {
    /// Places the message in the elements of `sges`, in order. Elements after the sixteenth are
    /// ignored.
    #[inline]
    pub fn set_scatter(&mut self, sges: &[Sge]) {
        (self.num_sge, self.len) = write_list(&mut self.list, sges);
    }

    /// Returns the length of the longest message that fits.
    pub fn capacity_bytes(&self) -> u32 {
        self.len
    }

    /// Returns the scatter list.
    pub fn scatter(&self) -> SgeList<'_> {
        SgeList { list: &self.list, count: self.num_sge }
    }
}

impl fmt::Debug for SendWqe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} #{} of {} bytes {:?}", self.opcode, self.wr_id, self.len, self.flags)
    }
}

impl fmt::Debug for RecvWqe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Receive #{} of {} bytes", self.wr_id, self.len)
    }
}

/// The element list of one slot.
#[derive(Clone, Copy)]
pub struct SgeList<'a> {
    list: &'a [u8; SGE_LIST_BYTES],
    count: u8,
}

impl SgeList<'_> {
    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        self.count.into()
    }

    /// Returns whether the list is empty.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns the element at `index`.
    pub fn at(&self, index: usize) -> Option<Sge> {
        if index >= self.len() {
            return None;
        }
        let (elements, _) = self.list.as_chunks::<SGE_BYTES>();
        let (addr, rest) = elements.get(index)?.split_first_chunk::<8>()?;
        let (len, lkey) = rest.split_first_chunk::<4>()?;
        Some(Sge {
            addr: u64::from_ne_bytes(*addr),
            len: u32::from_ne_bytes(*len),
            lkey: STag(u32::from_ne_bytes(*lkey.first_chunk()?)),
        })
    }
}

/// Writes as many elements as fit. Returns their number and the sum of their lengths, `u32::MAX` if
/// the sum overflows.
#[inline]
fn write_list(list: &mut [u8; SGE_LIST_BYTES], sges: &[Sge]) -> (u8, u32) {
    let (elements, _) = list.as_chunks_mut::<SGE_BYTES>();
    // The usual list, without a loop.
    if let ([sge], Some(element)) = (sges, elements.first_mut()) {
        write_element(element, sge);
        return (1, sge.len);
    }
    write_long_list(elements, sges)
}

#[inline(never)]
fn write_long_list(elements: &mut [[u8; SGE_BYTES]], sges: &[Sge]) -> (u8, u32) {
    let (mut count, mut bytes) = (0u8, 0u32);
    for (element, sge) in elements.iter_mut().zip(sges) {
        write_element(element, sge);
        count += 1;
        bytes = bytes.saturating_add(sge.len);
    }
    (count, bytes)
}

#[inline(always)]
fn write_element(element: &mut [u8; SGE_BYTES], sge: &Sge) {
    let (addr, rest) = element.split_at_mut(8);
    let (len, lkey) = rest.split_at_mut(4);
    addr.copy_from_slice(&sge.addr.to_ne_bytes());
    len.copy_from_slice(&sge.len.to_ne_bytes());
    lkey.copy_from_slice(&sge.lkey.0.to_ne_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rdmap::{READ_QUEUE, Rfc7306Profile};

    fn sge(addr: u64, len: u32) -> Sge {
        Sge { addr, len, lkey: STag(0xabcd_0001) }
    }

    #[test]
    fn a_slot_returns_the_elements_that_were_set() {
        let mut wqe = SendWqe::default();
        let list: Vec<Sge> = (0..16).map(|i| sge(i << 40, i as u32)).collect();
        wqe.set_gather(&list);
        assert_eq!(wqe.message_bytes(), 120);
        assert_eq!(wqe.gather().len(), 16);
        for (i, want) in list.iter().enumerate() {
            let got = wqe.gather().at(i).unwrap();
            assert_eq!((got.addr, got.len, got.lkey), (want.addr, want.len, want.lkey));
        }
        assert!(wqe.gather().at(16).is_none());
    }

    #[test]
    fn the_length_of_a_list_saturates_at_32_bits() {
        let mut wqe = RecvWqe::default();
        wqe.set_scatter(&[sge(0, u32::MAX), sge(0, 2)]);
        assert_eq!(wqe.capacity_bytes(), u32::MAX);
    }

    /// Every operation, in the order of the enum.
    const OPERATIONS: [SendOpcode; 15] = {
        use SendOpcode::*;
        [
            Send,
            SendSolicited,
            SendInvalidate,
            SendSolicitedInvalidate,
            Write,
            Read,
            ReadInvalidate,
            Invalidate,
            Bind,
            FastRegister,
            Immediate,
            ImmediateSolicited,
            FetchAdd,
            CmpSwap,
            Swap,
        ]
    };

    const _: () = assert!(OPERATIONS.len() == SendOpcode::Swap as usize + 1);

    /// RFC 5040 s4.1 and RFC 7306 s5.2: requests with a response use queue 1, other messages queue
    /// 0 or none.
    #[test]
    fn what_an_operation_is_agrees_with_its_message() {
        for (at, opcode) in OPERATIONS.into_iter().enumerate() {
            let spec = opcode.spec();
            assert_eq!((opcode as usize, opcode.is_local()), (at, spec.message.is_none()), "{opcode:?}");
            use CompletesWhen::{Answered, AnsweredAndInvalidated};
            let is_answered = matches!(spec.completes, Answered | AnsweredAndInvalidated);
            assert_eq!(opcode.expects_response(), is_answered, "{opcode:?}");
            assert_eq!(opcode.is_read(), spec.message == Some(Opcode::ReadRequest), "{opcode:?}");
            let is_cut = spec.message.is_some_and(|message| message.is_send() || message == Opcode::Write);
            assert_eq!(opcode.is_send_or_write(), is_cut, "{opcode:?}");
            let Some(message) = spec.message else {
                assert!(!opcode.is_extended(), "{opcode:?}");
                continue;
            };
            let queue = Rfc7306Profile::RFC_7306.queue(message);
            assert_eq!(opcode.expects_response(), queue == Some(READ_QUEUE), "{opcode:?}");
            assert_eq!(opcode == SendOpcode::Write, queue.is_none(), "{opcode:?}");
            assert_eq!(opcode.is_extended(), Opcode::decode(message.control()).is_err(), "{opcode:?}");
            assert_eq!(opcode.is_extended(), Opcode::may_be_extended(message.control()), "{opcode:?}");
            let is_one_segment = opcode.expects_response() || message.is_immediate();
            assert_eq!(opcode.is_send_or_write(), !is_one_segment, "{opcode:?}");
        }
    }

    #[test]
    fn an_atomic_request_returns_its_operation_and_sink() {
        let (compare, swap) = (1, u64::MAX);
        let all = [
            AtomicOp::FetchAdd { add: 2, mask: 1 << 63 },
            AtomicOp::CmpSwap { compare, compare_mask: 3, swap, swap_mask: 5 },
            AtomicOp::Swap { swap },
        ];
        let mut wqe = SendWqe::default();
        for operation in all {
            wqe.set_atomic(&operation, sge(77, 8));
            assert_eq!((wqe.atomic(), wqe.message_bytes(), wqe.gather().len()), (Some(operation), 8, 1));
            assert_eq!(wqe.gather().at(0).map(|sink| sink.addr), Some(77));
            assert_eq!(wqe.opcode.spec().message, Some(Opcode::AtomicRequest));
            assert!(wqe.opcode.expects_response() && wqe.opcode.is_extended());
        }
        wqe.opcode = SendOpcode::Read;
        assert!(wqe.atomic().is_none() && wqe.opcode.expects_response() && !wqe.opcode.is_extended());
    }

    #[test]
    fn inline_bytes_replace_the_gather_list() {
        let mut wqe = SendWqe::default();
        wqe.set_inline(&[7; 256]);
        assert!(wqe.is_inline());
        assert_eq!(wqe.inline_bytes(), Some(&[7u8; 256][..]));
        wqe.set_inline(&[7; 257]);
        assert_eq!(wqe.inline_bytes(), None);
        wqe.set_gather(&[sge(1, 2)]);
        assert!(!wqe.is_inline());
    }
}
