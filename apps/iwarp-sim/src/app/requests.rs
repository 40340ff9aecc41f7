//! The connection requests that a context has reported: each may end once, and no other may.

use ironwarp::ConnectionRequest;

/// The requests whose end was not reported. An answer does not remove one: it may have come too late.
#[derive(Default)]
pub(crate) struct Requests(Vec<ConnectionRequest>);

impl Requests {
    pub(crate) fn begin(&mut self, request: ConnectionRequest) {
        self.0.push(request);
    }

    pub(crate) fn end(&mut self, ended: &ConnectionRequest) -> Result<(), String> {
        let known = self.0.iter().position(|request| request == ended);
        let index = known.ok_or_else(|| format!("the end of a request that is not open: {ended:?}"))?;
        let _ = self.0.swap_remove(index);
        Ok(())
    }
}
