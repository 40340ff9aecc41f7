//! Grants: pieces of memory that one side grants to the other for a time, by memory windows and
//! fast regions.
//!
//! The owner binds a tag to a piece of `shared`. When the bind has completed, the peer may write to
//! the piece by that tag, one Write at a time, or read what the owner has written there. The owner
//! invalidates the tag when no operation uses it. Where the tag belongs to one stream, the peer may
//! invalidate it instead, by a Send after its own Writes and fenced after its own Reads. The owner
//! may reuse the piece when the tag is invalid and every use of it has ended.
//!
//! Sources: RFC 5040 s5.2 and s5.3, RFC 5042 s6.

use ironwarp::{RemoteMemory, STag};

use super::{Pattern, Piece, Tag};
use crate::app::{Posted, Side};

/// A piece that is granted.
pub struct Grant {
    /// The number of the request that binds it; names the grant.
    pub id: u64,
    /// The window or fast region of its tag.
    pub tag: Tag,
    /// What the peer uses to address it.
    pub remote: RemoteMemory,
    /// The piece of the owner's `shared`.
    pub piece: Piece,
    /// What the peer may do.
    pub usage: GrantUse,
    /// Whether the peer has only that right.
    pub only: bool,
    /// Whether the peer may invalidate it.
    pub for_stream: bool,
    pub state: GrantState,
    /// The number of the owner's request that invalidates it.
    pub ended_by: Option<u64>,
    /// Writes and Reads of it that have not ended.
    pub uses: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GrantUse {
    Write,
    Read(Pattern),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GrantState {
    /// Being bound.
    Binding,
    /// The peer may use it.
    Granted,
    /// Being ended.
    Ending,
    /// No operation may use it.
    Ended,
}

/// Number of invalidated tags that are remembered for bad requests.
const ENDED_MAX: usize = 4;

/// Number of unbound tags that are kept for later binds.
const SPARE_MAX: usize = 8;

impl Grant {
    /// Returns whether the peer may write to it now.
    pub fn is_writable(&self) -> bool {
        self.state == GrantState::Granted && self.usage == GrantUse::Write
    }

    /// Returns whether the peer may read it now.
    pub fn is_readable(&self) -> bool {
        self.state == GrantState::Granted && matches!(self.usage, GrantUse::Read(_))
    }
}

impl Side {
    /// Returns a grant that the peer may write to now, one Write at a time.
    pub fn writable_grant(&mut self) -> Option<&mut Grant> {
        self.grants.iter_mut().find(|grant| grant.is_writable() && grant.uses == 0)
    }

    /// Returns a grant that the peer may read now.
    pub fn readable_grant(&mut self) -> Option<&mut Grant> {
        self.grants.iter_mut().rev().find(|grant| grant.is_readable())
    }

    /// Returns a grant that the peer may invalidate now.
    pub fn endable_grant(&mut self) -> Option<&mut Grant> {
        self.grants.iter_mut().find(|grant| grant.state == GrantState::Granted && grant.for_stream)
    }

    pub fn grant_mut(&mut self, id: u64) -> Option<&mut Grant> {
        self.grants.iter_mut().find(|grant| grant.id == id)
    }

    /// The request that was to invalidate a grant was not posted.
    pub fn reopen_grant(&mut self, id: u64) {
        if let Some(grant) = self.grant_mut(id) {
            grant.state = GrantState::Granted;
        }
    }

    /// A bind or invalidate request has completed, with or without success.
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

    /// The peer's Send has invalidated a grant. Returns its tag for comparison.
    pub fn on_grant_invalidated(&mut self, id: u64) -> Option<STag> {
        let grant = self.grants.iter_mut().find(|grant| grant.id == id)?;
        grant.state = GrantState::Ended;
        let remote = grant.remote;
        remember(&mut self.ended, remote);
        self.free_ended_grants(true);
        Some(remote.stag)
    }

    /// Releases a piece that a Write targeted: the peer's own, or a grant's.
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

    /// A Write to a grant, or a Read of it, has ended.
    pub fn end_use(&mut self, id: u64) {
        if let Some(grant) = self.grant_mut(id) {
            grant.uses = grant.uses.saturating_sub(1);
        }
        self.free_ended_grants(false);
    }

    /// The session is over: ends all grants.
    pub fn close_grants(&mut self) -> Result<(), String> {
        if let Some(grant) = self.grants.iter().find(|grant| grant.uses > 0) {
            return Err(format!("a use of grant {} has not ended", grant.id));
        }
        self.grants.iter_mut().for_each(|grant| grant.state = GrantState::Ended);
        self.free_ended_grants(false);
        self.local_tags.clear();
        self.spare.clear();
        Ok(())
    }

    /// The request that invalidates one of our local tags has succeeded.
    pub fn on_local_tag_done(&mut self, wr_id: u64) {
        let done = self.local_tags.iter().position(|(ends_by, _)| *ends_by == wr_id);
        if let Some((_, tag)) = done.map(|index| self.local_tags.swap_remove(index)) {
            self.stale = Some(tag.stag());
            self.keep_spare_tag(tag);
        }
    }

    /// Keeps an unbound tag for a later bind.
    pub fn keep_spare_tag(&mut self, tag: Tag) {
        if self.spare.len() < SPARE_MAX {
            self.spare.push(tag);
        }
    }

    /// `quiet` is whether the invalidated tags ended normally, so that they can be bound again.
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
