//! Which queue pairs may have room for work: to look at every one of them in every turn takes longer than most messages.

use std::collections::VecDeque;

/// Lanes that may have room, each once, those that have waited longest first.
pub struct Rota {
    line: VecDeque<usize>,
    waits: Vec<bool>,
}

impl Rota {
    /// All of so many lanes.
    pub fn all(lanes: usize) -> Self {
        Rota { line: (0..lanes).collect(), waits: vec![true; lanes] }
    }

    /// A lane may have room again.
    pub fn add(&mut self, lane: usize) {
        if !self.waits[lane] {
            self.waits[lane] = true;
            self.line.push_back(lane);
        }
    }

    /// The next lane, which leaves the line.
    pub fn take(&mut self) -> Option<usize> {
        let lane = self.line.pop_front()?;
        self.waits[lane] = false;
        Some(lane)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_lane_stands_in_line_once_and_at_its_end() {
        let mut rota = Rota::all(3);
        assert_eq!(rota.take(), Some(0));
        rota.add(1);
        rota.add(0);
        rota.add(0);
        assert_eq!([rota.take(), rota.take(), rota.take(), rota.take()], [Some(1), Some(2), Some(0), None]);
        rota.add(2);
        assert_eq!(rota.take(), Some(2));
    }
}
