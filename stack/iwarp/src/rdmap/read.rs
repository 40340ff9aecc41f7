//! The header of Read Requests, and the queue of local requests that wait for a response
//! (RFC 5040 s4.4, s5.2, s6.1).
//!
//! The queue holds at most ORD requests. Its size is fixed when the queue pair is created, and it
//! never allocates afterwards.

use std::collections::VecDeque;

use ironwarp_types::STag;
use zerocopy::byteorder::big_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::RdmapFault;
use crate::ddp::{DdpFault, Tagged};
use crate::terminate::Terminate;

/// Octets of a Read Request's header, which is its whole payload (RFC 5040 s4.4).
pub const READ_REQUEST_BYTES: usize = size_of::<Wire>();

const _: () = assert!(READ_REQUEST_BYTES == 28);

/// Reads for which there is always room, whatever depth was negotiated: the ready-to-receive
/// indication (RFC 6581 s9.1).
pub(super) const RTR_READS: u16 = 1;

/// The fields of a Read Request (RFC 5040 s4.4, figure 6).
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub struct ReadRequest {
    /// The buffer of the requester. The responder copies this field to the response and does not
    /// interpret it.
    pub sink_stag: STag,
    /// The offset in that buffer.
    pub sink_to: u64,
    /// The number of octets.
    pub bytes: u32,
    /// The buffer to read.
    pub source_stag: STag,
    /// The offset in that buffer.
    pub source_to: u64,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Wire {
    sink_stag: U32,
    sink_to: U64,
    bytes: U32,
    source_stag: U32,
    source_to: U64,
}

impl ReadRequest {
    /// Decodes a payload, which must be exactly one header.
    pub fn decode(payload: &[u8]) -> Option<ReadRequest> {
        let wire = Wire::ref_from_bytes(payload).ok()?;
        Some(ReadRequest {
            sink_stag: STag(wire.sink_stag.get()),
            sink_to: wire.sink_to.get(),
            bytes: wire.bytes.get(),
            source_stag: STag(wire.source_stag.get()),
            source_to: wire.source_to.get(),
        })
    }

    /// Encodes the header.
    pub fn encode(&self) -> [u8; READ_REQUEST_BYTES] {
        let wire = Wire {
            sink_stag: self.sink_stag.0.into(),
            sink_to: self.sink_to.into(),
            bytes: self.bytes.into(),
            source_stag: self.source_stag.0.into(),
            source_to: self.source_to.into(),
        };
        zerocopy::transmute!(wire)
    }

    /// Returns the request without its first `done` octets, which were already sent (RFC 5040 s4.8,
    /// Terminated RDMA Header).
    pub fn advanced(&self, done: u32) -> ReadRequest {
        ReadRequest {
            sink_to: self.sink_to.wrapping_add(done.into()),
            bytes: self.bytes.saturating_sub(done),
            source_to: self.source_to.wrapping_add(done.into()),
            ..*self
        }
    }
}

/// A local Read or atomic operation that the peer has not completely answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OutstandingRequest {
    /// The local buffer.
    pub sink_stag: STag,
    /// The offset in that buffer.
    pub sink_to: u64,
    /// Octets requested.
    pub bytes: u32,
    /// Octets received.
    pub placed: u32,
    /// The sequence number of the request in the send queue.
    pub seq: u32,
    /// The Read invalidates the steering tag of its buffer.
    pub invalidates: bool,
    /// An atomic operation. Its Atomic Response repeats `seq` (RFC 7306 s5.2.2).
    pub atomic: bool,
}

/// The outstanding Reads and atomic operations, oldest first: at most ORD together (RFC 7306 s5.2).
/// The first one allocates the memory of all: most queue pairs have none.
#[derive(Debug)]
pub struct OutstandingRequests {
    reads: VecDeque<OutstandingRequest>,
    ord: u16,
    /// The ORD of creation.
    depth: u16,
}

impl OutstandingRequests {
    /// Creates a queue for at most `ord` requests.
    pub fn new(ord: u16) -> Self {
        OutstandingRequests { reads: VecDeque::new(), ord, depth: ord.max(RTR_READS) }
    }

    /// Sets the negotiated ORD. The depth of creation is the upper limit.
    pub fn set_ord(&mut self, ord: u16) {
        self.ord = ord.min(self.depth);
    }

    /// Allocates the queue at its first use. Returns whether it has memory.
    #[inline]
    pub fn reserve(&mut self) -> bool {
        self.reads.capacity() > 0 || allocate(&mut self.reads, self.depth)
    }

    /// Adds the ready-to-receive indication, always the first Read of a connection. ORD does not
    /// limit it. The caller has reserved memory.
    pub fn push_rtr(&mut self, read: OutstandingRequest) {
        if self.reads.is_empty() {
            self.reads.push_back(read);
        }
    }

    /// Continues with saved requests, of which the oldest has got `placed` octets. Returns whether
    /// they are possible.
    pub fn restore(
        &mut self,
        ord: u16,
        requests: impl Iterator<Item = OutstandingRequest>,
        placed: u32,
    ) -> bool {
        self.set_ord(ord);
        for request in requests {
            // The indication needs no room.
            if !(self.reads.is_empty() || self.has_room()) || !self.reserve() {
                return false;
            }
            self.reads.push_back(request);
        }
        let oldest = self.reads.front_mut();
        let bytes = oldest.as_ref().map_or(0, |request| request.bytes);
        oldest.into_iter().for_each(|request| request.placed = placed);
        self.ord == ord && placed <= bytes
    }

    /// RFC 5040 s6.1: returns whether another request may be outstanding.
    pub fn has_room(&self) -> bool {
        self.reads.len() < self.ord.into()
    }

    /// Returns the largest number of outstanding requests.
    pub fn ord(&self) -> usize {
        self.ord.into()
    }

    /// Returns the number of outstanding requests.
    pub fn len(&self) -> usize {
        self.reads.len()
    }

    /// Returns whether no request is outstanding.
    pub fn is_empty(&self) -> bool {
        self.reads.is_empty()
    }

    /// Adds a request. The caller has checked that there is room, and reserved memory.
    pub fn push(&mut self, read: OutstandingRequest) {
        debug_assert!(self.has_room() && self.reads.capacity() > 0);
        if self.has_room() {
            self.reads.push_back(read);
        }
    }

    /// Checks that a response segment continues the oldest Read exactly: same buffer, next octet,
    /// not too long, and last if and only if it ends the Read. RFC 5040 s5.2.2 allows these checks.
    #[inline]
    pub fn check(&self, header: &Tagged, payload_bytes: usize) -> Result<(), Terminate> {
        // A response without a Read is a message that is not allowed here.
        let head = self.reads.front().filter(|head| !head.atomic).ok_or(RdmapFault::Opcode)?;
        // RFC 5041 s5.2: steering tag and offset of an empty segment are not checked.
        if payload_bytes > 0 {
            head.continues_at(header)?;
        }
        let end = u64::from(head.placed) + payload_bytes as u64;
        if end > u64::from(head.bytes) {
            return Err(DdpFault::BaseOrBounds.into());
        }
        if header.last != (end == u64::from(head.bytes)) {
            return Err(RdmapFault::StreamCatastrophic.into());
        }
        Ok(())
    }

    /// Returns whether a segment lies within the missing part of the oldest Read, without its last
    /// octet. Such a segment cannot belong to any other request, so it may be placed before its
    /// predecessors.
    pub fn accepts_out_of_order(&self, header: &Tagged, payload_bytes: usize) -> bool {
        let is_read = |head: &&OutstandingRequest| head.sink_stag == header.stag && !head.atomic;
        let Some(head) = self.reads.front().filter(is_read) else { return false };
        let next = head.sink_to.wrapping_add(head.placed.into());
        let ahead = header.tagged_offset.wrapping_sub(next);
        let missing = u64::from(head.bytes.saturating_sub(head.placed));
        ahead.checked_add(payload_bytes as u64).is_some_and(|end| end < missing)
    }

    /// Moves past a segment that was checked and placed. Returns the oldest Read if the segment
    /// ends it.
    #[inline]
    pub fn advance(&mut self, last: bool, payload_bytes: usize) -> Option<OutstandingRequest> {
        if last {
            return self.reads.pop_front();
        }
        if let Some(head) = self.reads.front_mut() {
            head.placed = head.placed.wrapping_add(payload_bytes as u32);
        }
        None
    }

    /// Returns the oldest outstanding request.
    pub fn front(&self) -> Option<&OutstandingRequest> {
        self.reads.front()
    }

    /// Returns whether an atomic operation is outstanding, so that an Atomic Response finds a
    /// buffer.
    pub fn has_atomic(&self) -> bool {
        self.reads.iter().any(|read| read.atomic)
    }

    /// Removes all requests, because the stream has ended.
    pub fn clear(&mut self) {
        self.reads.clear();
    }
}

/// Allocates the memory of a queue of `depth` entries, which it keeps. Returns whether there was
/// memory.
#[cold]
#[inline(never)]
pub(super) fn allocate<T>(queue: &mut VecDeque<T>, depth: u16) -> bool {
    queue.try_reserve_exact(depth.into()).is_ok()
}

impl OutstandingRequest {
    /// Returns a Read of which nothing has arrived, and that invalidates nothing.
    pub const fn new(sink_stag: STag, sink_to: u64, bytes: u32, seq: u32) -> Self {
        OutstandingRequest { sink_stag, sink_to, bytes, placed: 0, seq, invalidates: false, atomic: false }
    }

    fn continues_at(&self, header: &Tagged) -> Result<(), DdpFault> {
        if header.stag != self.sink_stag {
            return Err(DdpFault::InvalidStag);
        }
        let expected = self.sink_to.wrapping_add(self.placed.into());
        if header.tagged_offset == expected { Ok(()) } else { Err(DdpFault::BaseOrBounds) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn waiting(bytes: u32) -> OutstandingRequests {
        let mut reads = OutstandingRequests::new(1);
        assert!(reads.reserve());
        reads.push(OutstandingRequest::new(STag(5), 100, bytes, 0));
        reads
    }

    fn segment(stag: u32, tagged_offset: u64, last: bool) -> Tagged {
        Tagged { last, ulp: 0x42, stag: STag(stag), tagged_offset }
    }

    fn code(layer: u8, etype: u8, code: u8) -> Result<(), Terminate> {
        Err(Terminate { layer, etype, code })
    }

    /// RFC 5040 s5.2.2: steering tag, offset and length must be those of the request.
    /// RFC 5041 s4.2.
    #[test]
    fn a_response_must_continue_the_oldest_read_exactly() {
        let mut reads = waiting(30);
        assert_eq!(reads.check(&segment(5, 100, false), 20), Ok(()));
        assert!(reads.advance(false, 20).is_none());
        assert_eq!(reads.check(&segment(6, 120, true), 10), code(1, 1, 0));
        assert_eq!(reads.check(&segment(5, 121, true), 10), code(1, 1, 1));
        assert_eq!(reads.check(&segment(5, 120, true), 11), code(1, 1, 1));
        assert_eq!(reads.check(&segment(5, 120, false), 10), code(0, 2, 7));
        assert_eq!(reads.check(&segment(5, 120, true), 9), code(0, 2, 7));
        assert_eq!(reads.check(&segment(5, 120, true), 10), Ok(()));
        assert!(reads.advance(true, 10).is_some());
        assert_eq!(reads.check(&segment(5, 130, true), 0), code(0, 2, 6));
    }

    /// A segment out of order must lie in the missing part of the oldest Read and must not contain
    /// its last octet.
    #[test]
    fn an_out_of_order_response_must_lie_in_the_missing_part_of_the_oldest_read() {
        let mut reads = waiting(30);
        assert!(reads.advance(false, 10).is_none());
        let accepts = |to, bytes| reads.accepts_out_of_order(&segment(5, to, false), bytes);
        assert!(accepts(110, 19) && accepts(120, 9) && accepts(128, 1));
        assert!(!accepts(110, 20) && !accepts(129, 1) && !accepts(109, 5) && !accepts(130, 1));
        assert!(!accepts(0, 5) && !accepts(u64::MAX, 1) && !accepts(115, usize::MAX));
        assert!(!reads.accepts_out_of_order(&segment(6, 115, false), 5));
        assert!(!OutstandingRequests::new(1).accepts_out_of_order(&segment(5, 110, false), 5));
        // The offsets wrap.
        let mut reads = OutstandingRequests::new(1);
        let wide = OutstandingRequest {
            sink_stag: STag(5),
            sink_to: u64::MAX - 9,
            bytes: 30,
            placed: 0,
            seq: 0,
            invalidates: false,
            atomic: false,
        };
        assert!(reads.reserve());
        reads.push(wide);
        assert!(
            reads.accepts_out_of_order(&segment(5, 5, false), 10)
                && !reads.accepts_out_of_order(&segment(5, 15, false), 10)
        );
    }

    #[test]
    fn the_first_request_allocates_the_memory_of_all() {
        let mut reads = OutstandingRequests::new(16);
        assert_eq!((reads.reads.capacity(), reads.ord(), reads.has_room()), (0, 16, true));
        assert!(reads.reserve());
        assert_eq!(reads.reads.capacity(), 16);
        reads.set_ord(20);
        assert_eq!(reads.ord(), 16, "the depth of creation is the limit");
    }

    #[test]
    fn memory_that_cannot_be_had_is_reported() {
        assert!(!allocate(&mut VecDeque::<[u8; 1 << 50]>::new(), u16::MAX));
    }

    /// RFC 5041 s5.2: a zero-length message's steering tag and offset are not checked.
    #[test]
    fn an_empty_response_matches_the_oldest_read() {
        assert_eq!(waiting(0).check(&segment(77, 1, true), 0), Ok(()));
        assert_eq!(waiting(1).check(&segment(5, 100, true), 0), code(0, 2, 7));
    }

    /// RFC 5040 s4.8: the Terminated RDMA Header shows the part of the Read that is not answered.
    #[test]
    fn an_advanced_request_is_the_part_that_is_left() {
        let request = ReadRequest {
            sink_stag: STag(1),
            sink_to: 1000,
            bytes: 4096,
            source_stag: STag(2),
            source_to: u64::MAX - 1,
        };
        let left = request.advanced(2048);
        assert_eq!((left.sink_to, left.bytes, left.source_to), (3048, 2048, 2046));
    }

    #[test]
    fn a_read_request_payload_of_any_other_size_is_refused() {
        assert_eq!(ReadRequest::decode(&[0; 27]), None);
        assert_eq!(ReadRequest::decode(&[0; 29]), None);
    }

    proptest! {
        #[test]
        fn read_requests_round_trip(sink: u32, sink_to: u64, bytes: u32, source: u32, source_to: u64) {
            let request =
                ReadRequest { sink_stag: STag(sink), sink_to, bytes, source_stag: STag(source), source_to };
            prop_assert_eq!(ReadRequest::decode(&request.encode()), Some(request));
        }
    }
}
