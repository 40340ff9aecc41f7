//! Every error that a Terminate can name, as the RFCs list them, and the headers that it shows.
//!
//! Sources: RFC 5040 s4.8 figures 9 and 10, RFC 5041 s7.2, RFC 5044 s8, RFC 6581 s8; RFC 6580 s3
//! registers them all.

/// One error.
pub struct Row {
    pub layer: u8,
    pub etype: u8,
    pub code: u8,
    pub name: &'static str,
    pub shown: Shown,
}

/// The test that shows the report of an error.
pub enum Shown {
    /// The test of that name.
    By(&'static str),
    /// None, because the error is never reported, for this reason.
    Never(&'static str),
}

use Shown::{By, Never};

const fn row(layer: u8, etype: u8, code: u8, name: &'static str, shown: Shown) -> Row {
    Row { layer, etype, code, name, shown }
}

/// All errors.
pub const ROWS: [Row; 34] = [
    // RFC 5040 s4.8, figure 9. Local Catastrophic Error, Remote Protection Error, Remote Operation
    // Error.
    row(0, 0, 0x00, "RDMAP: local catastrophic", By("a_receive_with_invalid_memory_is_a_local_error")),
    row(0, 1, 0x00, "RDMAP: invalid STag", By("reads_of_stags_without_the_right")),
    row(0, 1, 0x01, "RDMAP: base or bounds", By("reads_outside_their_buffer")),
    row(0, 1, 0x02, "RDMAP: access rights", By("reads_of_stags_without_the_right")),
    row(0, 1, 0x03, "RDMAP: STag not associated", By("reads_of_stags_without_the_right")),
    row(0, 1, 0x04, "RDMAP: TO wrap", By("reads_outside_their_buffer")),
    row(0, 1, 0x09, "RDMAP: STag cannot be invalidated", By("sends_that_invalidate_without_the_right")),
    row(
        0,
        1,
        0xff,
        "RDMAP: unspecified protection error",
        Never("every check of a tag has a code of its own"),
    ),
    row(0, 2, 0x05, "RDMAP: version", By("rdmap_versions_other_than_one")),
    row(0, 2, 0x06, "RDMAP: unexpected OpCode", By("operations_in_the_wrong_phase")),
    row(0, 2, 0x07, "RDMAP: catastrophic, this stream", By("responses_of_another_length")),
    row(0, 2, 0x08, "RDMAP: catastrophic, global", Never("no error of one stream touches another")),
    row(
        0,
        2,
        0x09,
        "RDMAP: STag cannot be invalidated, as operation error",
        Never(
            "RFC 5040 s4.8 figure 10 has Sends with Invalidate among the protection errors, which have the same code",
        ),
    ),
    row(0, 2, 0xff, "RDMAP: unspecified operation error", By("read_requests_of_every_length")),
    // RFC 5041 s7.2.
    row(1, 0, 0x00, "DDP: local catastrophic", By("segments_shorter_than_their_header")),
    row(1, 1, 0x00, "DDP: invalid STag", By("writes_to_stags_without_the_right")),
    row(1, 1, 0x01, "DDP: base or bounds", By("writes_outside_their_buffer")),
    row(1, 1, 0x02, "DDP: STag not associated", By("writes_to_stags_without_the_right")),
    row(1, 1, 0x03, "DDP: TO wrap", By("writes_outside_their_buffer")),
    row(1, 1, 0x04, "DDP: version, tagged", By("ddp_versions_other_than_one")),
    row(1, 2, 0x01, "DDP: invalid QN", By("queues_that_do_not_exist")),
    row(1, 2, 0x02, "DDP: no buffer", By("more_reads_than_were_agreed_on")),
    row(1, 2, 0x03, "DDP: MSN range", By("message_numbers_that_are_not_the_next")),
    row(1, 2, 0x04, "DDP: invalid MO", By("message_offsets_that_are_not_the_next")),
    row(1, 2, 0x05, "DDP: message too long", By("sends_of_every_length")),
    row(1, 2, 0x06, "DDP: version, untagged", By("ddp_versions_other_than_one")),
    row(1, 3, 0x00, "DDP: reserved for the LLP", Never("MPA reports as layer 2")),
    // RFC 5044 s8.
    row(2, 0, 0x01, "MPA: connection lost", Never("there is no connection to report it on")),
    row(2, 0, 0x02, "MPA: CRC", By("any_flipped_bit")),
    row(2, 0, 0x03, "MPA: marker", By("markers_that_point_to_a_wrong_fpdu")),
    row(
        2,
        0,
        0x04,
        "MPA: start-up frame",
        Never("RFC 5044 s8: TCP is closed at once; private_data_of_every_length tests it"),
    ),
    // RFC 6581 s8.
    row(
        2,
        0,
        0x05,
        "MPA: local catastrophic",
        Never("every local error here is known before the request is sent"),
    ),
    row(2, 0, 0x06, "MPA: insufficient IRD", By("parameters_that_cannot_be_met")),
    row(2, 0, 0x07, "MPA: no matching RTR", By("parameters_that_cannot_be_met")),
];

/// Returns the row of that name.
#[track_caller]
pub fn named(name: &str) -> &'static Row {
    const ALL: &[Row] = &ROWS;
    ALL.iter().find(|row| row.name == name).unwrap_or_else(|| panic!("no error {name}"))
}

impl Row {
    /// Returns the ULPDU of the Terminate for this error, caused by the segment in `offender`:
    /// RFC 5040 s4.8 figures 7, 8, 10.
    pub fn terminate(&self, offender: &[u8]) -> Vec<u8> {
        let is_tagged = offender.first().is_some_and(|control| control & 0x80 != 0);
        let header = offender.get(..if is_tagged { 14 } else { 18 });
        let names_segment = self.layer == 1 || (self.layer == 0 && self.etype != 0);
        let names_request = self.layer == 0 && self.etype == 1 && !is_tagged;
        let request = offender.get(18..46).filter(|_| names_request && offender[1] & 0x0f == 1);
        let (mut bits, mut shown) = (0, Vec::new());
        if let Some(header) = header.filter(|_| names_segment) {
            bits |= 0xc0;
            shown.extend((offender.len() as u16).to_be_bytes());
            shown.extend(header);
        }
        if let Some(request) = request {
            bits |= 0x20;
            shown.extend(request);
        }
        let control = [(self.layer << 4) | self.etype, self.code, bits, 0];
        crate::common::messages::terminate(&[&control[..], &shown].concat())
    }
}
