//! Memory windows and fast regions: tags that work requests bind, to one piece of memory after
//! another.

use ironwarp::{Access, Context, FastRegion, ProtectionDomain, STag, SendWr, Sge, VerbsError, Window};
use ironwarp_types::SeededEntropy;

/// The kind of object that owns a tag.
pub enum Tag {
    Window(Window),
    Fast(FastRegion),
}

impl Tag {
    /// Creates one. Returns `None` where the stack has no free entry.
    pub fn make(ctx: &Context, pd: ProtectionDomain, window: bool) -> Result<Option<Self>, VerbsError> {
        let made = if window {
            ctx.create_window(pd).map(Tag::Window)
        } else {
            ctx.create_fast_region(pd).map(Tag::Fast)
        };
        match made {
            Err(VerbsError::Register(_)) => Ok(None),
            made => made.map(Some),
        }
    }

    /// Returns an unbound one from an earlier use, or creates one.
    pub fn find(
        spare: &mut Vec<Tag>,
        ctx: &Context,
        pd: ProtectionDomain,
        window: bool,
        rng: &mut SeededEntropy,
    ) -> Result<Option<Self>, VerbsError> {
        let used = spare.iter().position(|tag| matches!(tag, Tag::Window(_)) == window);
        match used.filter(|_| rng.chance(700_000)) {
            Some(index) => Ok(Some(spare.swap_remove(index))),
            None => Self::make(ctx, pd, window),
        }
    }

    /// The tag of the last binding.
    pub fn stag(&self) -> STag {
        match self {
            Tag::Window(window) => window.stag(),
            Tag::Fast(region) => region.stag(),
        }
    }

    /// Invalidates it. No core runs, so there is nothing to wait for.
    pub fn invalidate(&self) {
        drop(match self {
            Tag::Window(window) => window.invalidate(),
            Tag::Fast(region) => region.invalidate(),
        });
    }

    /// The request that binds it. `for_stream` limits a fast region to one stream, as every window
    /// is.
    pub fn bind<'a>(&mut self, id: u64, over: &'a [Sge; 1], access: Access, for_stream: bool) -> SendWr<'a> {
        match self {
            Tag::Window(window) => SendWr::bind(id, window, over, access),
            Tag::Fast(region) if for_stream => {
                SendWr::fast_register(id, region, over, access).stream_scoped()
            }
            Tag::Fast(region) => SendWr::fast_register(id, region, over, access),
        }
    }
}
