//! Queue pairs that may have free slots. Checking all of them in every poll takes longer than most
//! messages.

use std::collections::VecDeque;

/// Queue pairs that may have free slots, each once, in the order of their arrival.
pub struct ReadyQueue {
    queue: VecDeque<usize>,
    is_queued: Vec<bool>,
}

impl ReadyQueue {
    pub fn all(qps: usize) -> Self {
        ReadyQueue { queue: (0..qps).collect(), is_queued: vec![true; qps] }
    }

    pub fn push(&mut self, qp: usize) {
        if !self.is_queued[qp] {
            self.is_queued[qp] = true;
            self.queue.push_back(qp);
        }
    }

    pub fn pop(&mut self) -> Option<usize> {
        let qp = self.queue.pop_front()?;
        self.is_queued[qp] = false;
        Some(qp)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_lane_stands_in_line_once_and_at_its_end() {
        let mut ready = ReadyQueue::all(3);
        assert_eq!(ready.pop(), Some(0));
        ready.push(1);
        ready.push(0);
        ready.push(0);
        assert_eq!([ready.pop(), ready.pop(), ready.pop(), ready.pop()], [Some(1), Some(2), Some(0), None]);
        ready.push(2);
        assert_eq!(ready.pop(), Some(2));
    }
}
