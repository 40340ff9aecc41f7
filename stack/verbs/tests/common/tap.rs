//! What a node sends and receives, captured in memory.

use std::io::Write;
use std::sync::{Arc, Mutex};

use ironwarp::instrument::{Capture, CaptureLimits};

use super::Node;

/// Everything that a capture writes: a pcapng file in this machine's byte order.
#[derive(Clone, Default)]
pub struct Tap(Arc<Mutex<Vec<u8>>>);

/// A block of a pcapng file that holds a frame, and where the frame begins in it.
const ENHANCED_PACKET: u32 = 6;
const FRAME_AT: usize = 28;

impl Write for Tap {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Tap {
    /// Captures every frame of `node` from now on.
    pub fn on(node: &Node) -> Tap {
        let tap = Tap::default();
        let capture = Capture::to(tap.clone(), CaptureLimits::default()).unwrap();
        node.worker.port_control().start_capture(capture.interface("port").unwrap());
        tap
    }

    /// Ends the capture of `node`. Whatever was captured is in the taps then.
    pub fn end(node: &Node) {
        node.worker.port_control().stop_capture().unwrap();
    }

    /// Returns whether these bytes were captured in a row.
    pub fn holds(&self, what: &[u8]) -> bool {
        self.0.lock().unwrap().windows(what.len()).any(|window| window == what)
    }

    /// Returns the captured frames in order.
    pub fn frames(&self) -> Vec<Vec<u8>> {
        let captured = self.0.lock().unwrap();
        let (mut rest, mut frames) = (&captured[..], Vec::new());
        let word = |block: &[u8], at: usize| u32::from_ne_bytes(block[at..at + 4].try_into().unwrap());
        while !rest.is_empty() {
            let (block, after) = rest.split_at(word(rest, 4) as usize);
            if word(block, 0) == ENHANCED_PACKET {
                frames.push(block[FRAME_AT..][..word(block, 20) as usize].to_vec());
            }
            rest = after;
        }
        frames
    }
}
