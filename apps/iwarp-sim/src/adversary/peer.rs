//! The hostile end of one connection: TCP, the stream above it, and a habit that abuses TCP.

use ironwarp_testkit::mpa::{self, CRC, Damage, Framer, MARKERS};
use ironwarp_testkit::rdmap::{WRITE, read_request, send, tagged};
use ironwarp_testkit::{Conn, Frames, Route, Segment};

use super::habit::Abuse;
use super::{Adversary, Habit};

/// A connection.
pub struct Peer {
    /// Its TCP.
    pub conn: Conn,
    framer: Framer,
    /// Messages sent on queue 0 and on queue 1.
    pub sends: u32,
    pub reads: u32,
    abuse: Option<Abuse>,
}

/// The victim's memory that the packets name: steering tag, first tagged offset, bytes.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    pub stag: u32,
    /// Its first tagged offset.
    pub to: u64,
    pub bytes: u32,
}

impl Peer {
    /// A connection between these ports, and its SYN.
    pub fn open(route: Route, ports: [u16; 2], iss: u32) -> (Self, Vec<u8>) {
        let (conn, syn) = Conn::open(route, ports, iss);
        (Peer { conn, framer: Framer::new(false), sends: 0, reads: 0, abuse: None }, syn)
    }

    pub fn on_segment(&mut self, segment: &Segment, out: &mut Frames) {
        let has_data = self.conn.on_segment(segment, out);
        if let Some(abuse) = self.abuse.as_mut().filter(|_| has_data) {
            abuse.on_data(&mut self.conn, out);
        }
    }

    pub fn begin(&mut self, habit: Habit) {
        self.abuse = Some(Abuse::begin(habit, &mut self.conn));
    }

    pub fn step(&mut self, out: &mut Frames) {
        if let Some(abuse) = &mut self.abuse {
            abuse.step(&mut self.conn, out);
        }
    }

    /// Asks for a stream with CRCs and without markers (RFC 5044 s7.1.1).
    pub fn request(&mut self, private: &[u8], out: &mut Frames) {
        self.conn.send(&mpa::request(CRC, 1, private), out);
    }

    /// The flags of the reply to its request, once it has arrived. An error is another reply.
    pub fn take_reply(&mut self) -> Result<Option<u8>, String> {
        let Some((flags, bytes)) = mpa::read_reply(&self.conn.heard).transpose()? else { return Ok(None) };
        self.conn.heard.drain(..bytes);
        self.framer.markers = flags & MARKERS != 0;
        Ok(Some(flags))
    }

    pub fn has_markers(&self) -> bool {
        self.framer.markers
    }

    pub fn fpdu(&mut self, ulpdu: &[u8], damage: Damage) -> Vec<u8> {
        self.framer.fpdu(ulpdu, damage)
    }

    pub fn next_send(&mut self, payload: &[u8], invalidates: Option<u32>) -> Vec<u8> {
        self.sends += 1;
        send(self.sends, payload, invalidates)
    }

    /// The next Read Request, of `bytes` bytes.
    pub fn next_read(&mut self, source: (u32, u64), bytes: u32) -> Vec<u8> {
        self.reads += 1;
        read_request(self.reads, (0x5151, 0x1000), bytes, source)
    }

    /// Sends a valid FPDU.
    pub fn say(&mut self, ulpdu: &[u8], out: &mut Frames) {
        let fpdu = self.fpdu(ulpdu, Damage::None);
        self.conn.send(&fpdu, out);
    }

    /// The next packets of a kind inside a stream: one, except that an FPDU byte by byte is many.
    pub fn next_packets(&mut self, kind: Adversary, Place { stag, to, .. }: Place, out: &mut Frames) {
        match kind {
            Adversary::Honest => {
                let send = self.next_send(&SMALL, None);
                self.say(&send, out);
            }
            Adversary::OneByteSegments => {
                let bytes = self.fpdu(&tagged(WRITE, stag, to, &SMALL), Damage::None);
                bytes.iter().for_each(|byte| self.conn.send(&[*byte], out));
            }
            Adversary::TinyFpdus => {
                let many = (0..TINY_FPDUS).flat_map(|_| self.fpdu(&tagged(WRITE, 0, 0, &[]), Damage::None));
                let many: Vec<u8> = many.collect();
                self.conn.send(&many, out);
            }
            Adversary::Markers => self.say(&tagged(WRITE, stag, to, &[0x77; MARKED_BYTES]), out),
            Adversary::Startups => self.conn.send(&[0xa5; 64], out),
            Adversary::BadCrcs => {
                let bytes = self.fpdu(&tagged(WRITE, stag, to, &SMALL), Damage::Crc);
                self.conn.send(&bytes, out);
            }
            Adversary::BadStags => self.say(&tagged(WRITE, stag ^ 0x55, to, &SMALL), out),
            _ => {}
        }
    }

    /// Adopts a habit. For those about acknowledgements the victim has something to send: Reads.
    pub fn adopt(&mut self, habit: Habit, place: Place, out: &mut Frames) {
        self.begin(habit);
        for _ in 0..if habit.is_about_acknowledgements() { READS } else { 0 } {
            let read = self.next_read((place.stag, place.to), place.bytes);
            self.say(&read, out);
        }
    }
}

/// The payload of an honest Send.
const SMALL: [u8; 64] = [0x5a; 64];

/// FPDUs of 20 bytes in a full segment.
const TINY_FPDUS: usize = 70;

/// The payload of an FPDU with markers in one segment.
const MARKED_BYTES: usize = 1_340;

/// Outstanding Reads of a connection that has the victim send. The victim's memory is read by each.
const READS: u32 = 8;
