//! The vectors: octets and their meaning, in the format of the files under `vectors/`.
//!
//! ```text
//! [name] no-crc markers      a vector, and the framing of its stream; CRCs and no markers unless it says so
//! [name] rfc7306             and with the messages of RFC 7306, or of one of its drafts: `draft-03`, `draft-01`
//! 41   t=0 l=1 dv=1          octets in hexadecimal, `5a*24` for 24 of them, then the fields that they hold
//! f1 f2 f3   payload         a field without `=` holds the octets of its line; adjacent ones of one name are one field
//! # ...                      a comment, also at the end of a line
//! ```
//!
//! Every octet was written manually from the figures of the RFCs. A short separate program computed
//! the CRCs. The CRCs of the two examples in RFC 5044 are the printed ones.

use ironwarp::Extensions;

use crate::golden::figures;

const FILES: [&str; 8] = [
    include_str!("vectors/requests.hex"),
    include_str!("vectors/replies.hex"),
    include_str!("vectors/framing.hex"),
    include_str!("vectors/sends.hex"),
    include_str!("vectors/tagged.hex"),
    include_str!("vectors/indications.hex"),
    include_str!("vectors/terminates.hex"),
    include_str!("vectors/extended.hex"),
];

/// The value of a field.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Value {
    Number(u64),
    Octets(Vec<u8>),
}

/// Fields in the order of the wire, and the values of the markers between them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Reading {
    pub fields: Vec<(String, Value)>,
    pub markers: Vec<u64>,
}

/// One vector.
#[derive(Clone, Debug)]
pub struct Vector {
    pub name: String,
    pub crc: bool,
    pub markers: bool,
    pub extensions: Extensions,
    pub octets: Vec<u8>,
    places: Vec<Place>,
}

/// The octets of a field: those of its line.
#[derive(Clone, Debug)]
struct Place {
    field: String,
    at: usize,
    end: usize,
    /// `None`: the value is the octets.
    number: Option<u64>,
}

/// Every vector.
pub fn all() -> Vec<Vector> {
    let mut vectors: Vec<Vector> = Vec::new();
    for line in FILES.iter().flat_map(|file| file.lines()) {
        let line = line.split('#').next().unwrap_or_default().trim();
        if let Some((name, agreed)) = line.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            vectors.push(Vector::new(name, agreed));
        } else if !line.is_empty() {
            vectors.last_mut().expect("a name comes first").take(line);
        }
    }
    assert!(vectors.len() > 50, "{} vectors were found", vectors.len());
    vectors
}

/// Returns the vector with that name.
#[track_caller]
pub fn named(name: &str) -> Vector {
    let mut all = all();
    let at = all.iter().position(|vector| vector.name == name);
    all.swap_remove(at.unwrap_or_else(|| panic!("no vector {name}")))
}

/// Returns the names of all FPDU vectors, or of all start-up vectors.
pub fn names(startup: bool) -> Vec<String> {
    all().into_iter().filter(|vector| vector.is_startup() == startup).map(|vector| vector.name).collect()
}

impl Reading {
    /// Appends the next field.
    pub fn number(&mut self, name: &str, value: impl Into<u64>) {
        self.fields.push((name.to_owned(), Value::Number(value.into())));
    }

    /// Appends octets to the last field if it has the same name, or as a new field. No octets make
    /// no field.
    pub fn octets(&mut self, name: &str, octets: &[u8]) {
        match self.fields.last_mut() {
            Some((last, Value::Octets(before))) if last == name => before.extend(octets),
            _ if octets.is_empty() => {}
            _ => self.fields.push((name.to_owned(), Value::Octets(octets.to_vec()))),
        }
    }
}

impl Vector {
    fn new(name: &str, agreed: &str) -> Self {
        let (crc, markers) = (!agreed.contains("no-crc"), agreed.contains("markers"));
        let texts = [
            ("rfc7306", Extensions::Rfc7306),
            ("draft-03", Extensions::Draft03),
            ("draft-01", Extensions::Draft01),
        ];
        let text = texts.into_iter().find(|(text, _)| agreed.contains(text));
        let extensions = text.map_or(Extensions::Off, |(_, extensions)| extensions);
        Vector { name: name.to_owned(), crc, markers, extensions, octets: Vec::new(), places: Vec::new() }
    }

    fn take(&mut self, line: &str) {
        let at = self.octets.len();
        let mut tokens = line.split_whitespace().peekable();
        while let Some(octets) = tokens.peek().and_then(|token| hex(token)) {
            self.octets.extend(octets);
            tokens.next();
        }
        let end = self.octets.len();
        assert!(end > at, "no octets in {line:?}");
        for token in tokens {
            let (field, number) = match token.split_once('=') {
                Some((field, number)) => (field, Some(value(number))),
                None => (token, None),
            };
            self.places.push(Place { field: field.to_owned(), at, end, number });
        }
    }

    /// M and C of the start-up frame that negotiates the framing of the stream (RFC 5044 s7.1.1).
    pub fn flags(&self) -> u8 {
        (u8::from(self.markers) << 7) | (u8::from(self.crc) << 6)
    }

    pub fn is_startup(&self) -> bool {
        self.octets.starts_with(b"MPA ID Re")
    }

    /// Returns the meaning of the octets, as the file says.
    pub fn reading(&self) -> Reading {
        self.reading_between(0, self.octets.len())
    }

    /// Returns the same for the first FPDU equal to `octets`.
    #[track_caller]
    pub fn reading_of(&self, octets: &[u8]) -> Reading {
        let fpdus = self.fpdus();
        let index = fpdus.iter().position(|fpdu| fpdu == octets).expect("an FPDU of the vector");
        let begin = fpdus[..index].iter().map(Vec::len).sum();
        self.reading_between(begin, begin + octets.len())
    }

    fn reading_between(&self, begin: usize, end: usize) -> Reading {
        let mut reading = Reading::default();
        for place in self.places.iter().filter(|place| place.at >= begin && place.end <= end) {
            match place.number {
                Some(number) if place.field == "marker" => reading.markers.push(number),
                Some(number) => reading.number(&place.field, number),
                None => reading.octets(&place.field, &self.octets[place.at..place.end]),
            }
        }
        reading
    }

    /// Returns the first number of `field`.
    #[track_caller]
    pub fn number(&self, field: &str) -> u64 {
        self.first(field).unwrap_or_else(|| panic!("no {field} in {}", self.name))
    }

    /// Returns the same, or `None` if there is no such field.
    pub fn first(&self, field: &str) -> Option<u64> {
        self.places.iter().find(|place| place.field == field).and_then(|place| place.number)
    }

    /// Returns the octets of `field`, concatenated over all segments.
    pub fn field(&self, field: &str) -> Vec<u8> {
        let places = self.places.iter().filter(|place| place.field == field);
        places.flat_map(|place| self.octets[place.at..place.end].to_vec()).collect()
    }

    /// Returns the vector with `number` as the first value of `field`, for values that a stack
    /// chooses, like a steering tag. Later values of the field keep their difference to the first.
    /// The CRCs are recomputed.
    #[must_use]
    pub fn with(mut self, field: &str, number: u64) -> Self {
        let by = number.wrapping_sub(self.number(field));
        for place in self.places.iter_mut().filter(|place| place.field == field) {
            let Some(before) = place.number else { continue };
            let now = before.wrapping_add(by);
            place.number = Some(now);
            let octets = now.to_be_bytes();
            self.octets[place.at..place.end].copy_from_slice(&octets[8 - (place.end - place.at)..]);
        }
        self.seal();
        self
    }

    fn seal(&mut self) {
        let mut from = 0;
        for place in self.places.iter().filter(|place| self.crc && place.field == "crc") {
            let crc = figures::crc32c(&self.octets[from..place.at]).to_le_bytes();
            self.octets[place.at..place.end].copy_from_slice(&crc);
            from = place.end;
        }
    }

    /// Returns the FPDUs one by one, each with the marker in front of it.
    pub fn fpdus(&self) -> Vec<Vec<u8>> {
        let mut from = 0;
        let ends = self.places.iter().filter(|place| place.field == "crc").map(|place| place.end);
        ends.map(|end| self.octets[std::mem::replace(&mut from, end)..end].to_vec()).collect()
    }
}

fn hex(token: &str) -> Option<Vec<u8>> {
    let (octet, times) = token.split_once('*').unwrap_or((token, "1"));
    let is_octet = octet.len() == 2 && octet.bytes().all(|digit| digit.is_ascii_hexdigit());
    is_octet.then(|| vec![u8::from_str_radix(octet, 16).unwrap(); times.parse().expect("a count")])
}

fn value(text: &str) -> u64 {
    let parsed = match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16),
        None => text.parse(),
    };
    parsed.expect("a number")
}
