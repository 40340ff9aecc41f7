//! What contexts can read of the ports: constants from the start, and the links as core 0 sees
//! them.

use core::sync::atomic::{AtomicU64, Ordering};

use ironwarp_port::LinkState;

use crate::context::PortInfo;

/// One port.
pub(crate) struct PortState {
    /// Constant, except for the link.
    pub(crate) info: PortInfo,
    pub(crate) link: LinkWord,
}

impl PortState {
    pub(crate) fn new(info: PortInfo) -> Self {
        let link = LinkWord::default();
        link.store(info.link);
        PortState { info, link }
    }
}

/// The state of a link in one word: the speed in Mbit/s, 0 if it is unknown, and above it whether
/// the link is up.
#[derive(Default)]
pub(crate) struct LinkWord(AtomicU64);

const UP: u64 = 1 << 32;

impl LinkWord {
    pub(crate) fn load(&self) -> LinkState {
        let word = self.0.load(Ordering::Relaxed);
        let speed_mbps = word as u32;
        LinkState { up: word & UP != 0, speed_mbps: (speed_mbps != 0).then_some(speed_mbps) }
    }

    pub(crate) fn store(&self, link: LinkState) {
        let up = if link.up { UP } else { 0 };
        self.0.store(up | u64::from(link.speed_mbps.unwrap_or_default()), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_word_keeps_state_and_speed() {
        let word = LinkWord::default();
        assert_eq!(word.load(), LinkState::default());
        for up in [false, true] {
            for speed_mbps in [None, Some(1), Some(400_000), Some(u32::MAX)] {
                word.store(LinkState { up, speed_mbps });
                assert_eq!(word.load(), LinkState { up, speed_mbps });
            }
        }
    }
}
