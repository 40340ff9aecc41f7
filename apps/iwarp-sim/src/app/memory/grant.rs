//! Pieces of memory that one side lends to the other for a time: windows and fast regions.
//!
//! The owner binds a tag to a piece of `shared`; when that has completed the peer may write to the piece by it, one Write
//! at a time, or read what the owner has written there. Either the owner ends the tag when nobody uses it, or the peer
//! does, where the tag is its stream's alone, by a Send that invalidates it: behind its own Writes, and fenced behind its
//! own Reads. The piece is the owner's again when the tag has ended and every use of it is accounted for.
//!
//! Sources: RFC 5040 s5.2 and s5.3, RFC 5042 s6.

use ironwarp::{RemoteMemory, STag};

use super::{Pattern, Piece, Tag};
use crate::app::oracle::{Posted, Side};

/// A piece that is lent.
pub struct Grant {
    /// The number of the request that binds it names it.
    pub id: u64,
    /// What its tag belongs to.
    pub tag: Tag,
    /// What the peer uses.
    pub remote: RemoteMemory,
    /// Where in the owner's `shared`.
    pub piece: Piece,
    /// What for.
    pub usage: GrantUse,
    /// Whether the peer has that right alone.
    pub only: bool,
    /// Whether the peer may end it.
    pub for_stream: bool,
    /// Where it is in its life.
    pub state: GrantState,
    /// The number of the request that ends it, where the owner does.
    pub ended_by: Option<u64>,
    /// Writes and Reads that are not accounted for.
    pub uses: u32,
}

/// What a loan is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GrantUse {
    /// The peer writes.
    Write,
    /// The peer reads what is there.
    Read(Pattern),
}

/// Where a loan is in its life.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GrantState {
    /// Being bound.
    Binding,
    /// The peer may use it.
    Granted,
    /// Being ended.
    Ending,
    /// Nobody may use it.
    Ended,
}

/// Tags that have ended and are remembered, to be tried again.
const ENDED_MAX: usize = 4;

/// Tags that are kept to be bound again.
const SPARE_MAX: usize = 8;

impl Side {
    /// A loan that the peer may write to now.
    pub fn writable_grant(&mut self) -> Option<&mut Grant> {
        let free = |grant: &&mut Grant| {
            grant.state == GrantState::Granted && grant.usage == GrantUse::Write && grant.uses == 0
        };
        self.grants.iter_mut().find(free)
    }

    /// A loan that the peer may read now.
    pub fn readable_grant(&mut self) -> Option<&mut Grant> {
        let readable = |grant: &&mut Grant| {
            grant.state == GrantState::Granted && matches!(grant.usage, GrantUse::Read(_))
        };
        self.grants.iter_mut().rev().find(readable)
    }

    /// A loan that the peer may end now.
    pub fn endable_grant(&mut self) -> Option<&mut Grant> {
        self.grants.iter_mut().find(|grant| grant.state == GrantState::Granted && grant.for_stream)
    }

    /// A loan by its number.
    pub fn grant_mut(&mut self, id: u64) -> Option<&mut Grant> {
        self.grants.iter_mut().find(|grant| grant.id == id)
    }

    /// The tag of a loan.
    pub fn grant_remote(&self, id: u64) -> Option<RemoteMemory> {
        self.grants.iter().find(|grant| grant.id == id).map(|grant| grant.remote)
    }

    /// The request that was to end a loan was not posted.
    pub fn reopen_grant(&mut self, id: u64) {
        if let Some(grant) = self.grant_mut(id) {
            grant.state = GrantState::Granted;
        }
    }

    /// A binding or an ending has completed, well or not.
    pub fn on_grant_request(&mut self, posted: &Posted, succeeded: bool) {
        for grant in &mut self.grants {
            if grant.id == posted.wr_id && grant.state == GrantState::Binding {
                grant.state = if succeeded { GrantState::Granted } else { GrantState::Ended };
            } else if grant.ended_by == Some(posted.wr_id) {
                grant.state = GrantState::Ended;
                if succeeded {
                    remember(&mut self.ended, grant.remote);
                }
            }
        }
        self.free_ended_grants(succeeded);
    }

    /// The peer's Send has ended a loan: its tag, for comparison.
    pub fn on_grant_invalidated(&mut self, id: u64) -> Option<STag> {
        let grant = self.grants.iter_mut().find(|grant| grant.id == id)?;
        grant.state = GrantState::Ended;
        let remote = grant.remote;
        remember(&mut self.ended, remote);
        self.free_ended_grants(true);
        Some(remote.stag)
    }

    /// A piece that a Write went to is free again: the peer's own, or a loan's.
    pub fn release_written(&mut self, target: Piece, grant: Option<u64>) {
        match grant {
            Some(id) => self.end_use(id),
            None => {
                if let Some(memory) = &mut self.memory {
                    memory.shared.release(target);
                }
            }
        }
    }

    /// A Write to a loan, or a Read of it, is accounted for.
    pub fn end_use(&mut self, id: u64) {
        if let Some(grant) = self.grant_mut(id) {
            grant.uses = grant.uses.saturating_sub(1);
        }
        self.free_ended_grants(false);
    }

    /// The session is over: whatever was lent is not any more.
    pub fn close_grants(&mut self) -> Result<(), String> {
        if let Some(grant) = self.grants.iter().find(|grant| grant.uses > 0) {
            return Err(format!("a use of loan {} is not accounted for", grant.id));
        }
        self.grants.iter_mut().for_each(|grant| grant.state = GrantState::Ended);
        self.free_ended_grants(false);
        self.local_tags.clear();
        self.spare.clear();
        Ok(())
    }

    /// The request that ends a tag of ours alone has succeeded.
    pub fn on_local_tag_done(&mut self, wr_id: u64) {
        let done = self.local_tags.iter().position(|(ends_by, _)| *ends_by == wr_id);
        if let Some((_, tag)) = done.map(|index| self.local_tags.swap_remove(index)) {
            self.stale = Some(tag.stag());
            self.keep_spare_tag(tag);
        }
    }

    /// Keeps a tag that is not bound, to be bound again.
    pub fn keep_spare_tag(&mut self, tag: Tag) {
        if self.spare.len() < SPARE_MAX {
            self.spare.push(tag);
        }
    }

    /// `quiet` tells whether tags that have ended did so in good order, so that they can be bound again.
    fn free_ended_grants(&mut self, quiet: bool) {
        let Some(memory) = &mut self.memory else { return };
        let over = self.grants.extract_if(.., |grant| grant.state == GrantState::Ended && grant.uses == 0);
        let over: Vec<Grant> = over.collect();
        for grant in over {
            memory.shared.release(grant.piece);
            if quiet && self.spare.len() < SPARE_MAX {
                self.spare.push(grant.tag);
            }
        }
    }
}

fn remember(ended: &mut Vec<RemoteMemory>, remote: RemoteMemory) {
    if ended.len() == ENDED_MAX {
        ended.remove(0);
    }
    ended.push(remote);
}
