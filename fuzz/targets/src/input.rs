//! The reader of an input.

/// The bytes of an input that are left. Past the end it reads zeros.
pub struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Input(bytes)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn array<const N: usize>(&mut self) -> [u8; N] {
        let mut array = [0; N];
        let here = self.take(N);
        array[..here.len()].copy_from_slice(here);
        array
    }

    fn take(&mut self, bytes: usize) -> &'a [u8] {
        let (here, rest) = self.0.split_at(bytes.min(self.0.len()));
        self.0 = rest;
        here
    }

    pub fn u8(&mut self) -> u8 {
        self.array::<1>()[0]
    }

    pub fn u16(&mut self) -> u16 {
        u16::from_be_bytes(self.array())
    }

    pub fn u32(&mut self) -> u32 {
        u32::from_be_bytes(self.array())
    }

    pub fn u64(&mut self) -> u64 {
        u64::from_be_bytes(self.array())
    }

    /// A number below `limit`, which is at least 1.
    pub fn below(&mut self, limit: usize) -> usize {
        if limit <= 256 { usize::from(self.u8()) % limit } else { usize::from(self.u16()) % limit }
    }

    pub fn flag(&mut self) -> bool {
        self.u8() & 1 == 1
    }

    /// Bytes with their length, up to 255, in front.
    pub fn short_bytes(&mut self) -> &'a [u8] {
        let len = self.u8();
        self.take(len.into())
    }

    /// Bytes with their length, up to `max`, in front.
    pub fn bytes(&mut self, max: usize) -> &'a [u8] {
        let len = usize::from(self.u16());
        self.take(len.min(max))
    }

    /// A number near zero or anywhere, as of an offset to an expected value.
    pub fn offset(&mut self) -> u32 {
        match self.u8() {
            255 => self.u32(),
            254 => u32::from(self.u16()),
            near => i32::from(near as i8) as u32,
        }
    }

    /// A time up to half an hour, in nanoseconds; most are short.
    pub fn nanos(&mut self) -> u64 {
        (1_000u64 << (self.u8() % 31)).min(1_800_000_000_000)
    }
}
