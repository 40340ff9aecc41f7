//! The host's side of DH-HMAC-CHAP (Base 2.0, 8.13.5).
//!
//! A thread of its own computes, since an exponentiation is too long for a core that polls.

use super::admin::succeed;
use super::{Host, Transfer};
use crate::NvmfError;
use crate::auth::{DhKey, Exchange, HostSecrets, Nonce, SecretBytes, is_same};
use crate::wire::auth::{
    AUTH_REQUIRED, Body, Explanation, Message, RECEIVE_BYTES, SECURE_CHANNEL_REQUIRED, command,
};
use crate::wire::opcode::fctype;

impl Host {
    /// Authenticates a queue if the result of its Connect asks for it, or the host wants a proof of
    /// the controller.
    pub(super) fn authenticate_if_due(
        &mut self,
        queue: usize,
        result: u64,
        between: &mut dyn FnMut(),
    ) -> Result<(), NvmfError> {
        if result & SECURE_CHANNEL_REQUIRED != 0 {
            let why = "the target asks for a secure channel, which exists over TCP alone";
            return Err(NvmfError::Authentication(why.to_owned()));
        }
        let wants_proof = self.settings.secrets.as_ref().is_some_and(|one| one.controller.is_some());
        if result & AUTH_REQUIRED != 0 || wants_proof { self.authenticate(queue, between) } else { Ok(()) }
    }

    /// Authenticates a queue, for the first time or again. The others go on.
    ///
    /// # Errors
    ///
    /// [`NvmfError::Authentication`]: the host has no secret, or one side refuses the other. The
    /// target ends the connection then, or the host does.
    pub fn authenticate(&mut self, queue: usize, between: &mut dyn FnMut()) -> Result<(), NvmfError> {
        let none = || NvmfError::Authentication("the target asks for it, and the host has no secret".into());
        let secrets = self.settings.secrets.clone().ok_or_else(none)?;
        self.t_id = self.t_id.wrapping_add(1);
        let t_id = self.t_id;
        let Err(explanation) = self.exchange(queue, secrets, between)? else { return Ok(()) };
        // Whether the controller hears of it or not, the queue is not used.
        let _ = self.send_message(queue, &Message { t_id, body: Body::Failure2(explanation) }, between);
        let _ = self.discard(queue);
        Err(NvmfError::Authentication(format!("the host refuses the controller: {explanation}")))
    }

    /// Runs one exchange. The inner error is for the controller.
    fn exchange(
        &mut self,
        queue: usize,
        secrets: HostSecrets,
        between: &mut dyn FnMut(),
    ) -> Result<Result<(), Explanation>, NvmfError> {
        let t_id = self.t_id;
        let (hashes, groups) = (self.settings.hashes.clone(), self.settings.groups.clone());
        let ids =
            (hashes.iter().map(|&one| one as u8).collect(), groups.iter().map(|&one| one as u8).collect());
        let body = Body::Negotiate { sc_c: 0, offer: Some(ids) };
        self.send_message(queue, &Message { t_id, body }, between)?;
        let (hash, group, nonce, public) = match self.receive_message(queue, between)? {
            Ok(Body::Challenge { hash, group, nonce, public }) => (hash, group, nonce, public),
            Ok(_) => return Ok(Err(Explanation::Message)),
            Err(explanation) => return Ok(Err(explanation)),
        };
        if !hashes.contains(&hash) || !groups.contains(&group) || nonce.seqnum == 0 {
            return Ok(Err(Explanation::Payload));
        }
        let (hostnqn, subnqn) = (self.settings.hostnqn.clone(), self.settings.subnqn.clone());
        let exchange = Exchange { hash, group, t_id, hostnqn, subnqn };
        let thread = std::thread::spawn(move || respond(&exchange, &secrets, &nonce, &public));
        self.wait(queue, between, |_| thread.is_finished().then_some(()))?;
        let computed = thread.join().unwrap_or(Err(Explanation::Failed));
        let (reply, expected) = match computed {
            Ok(computed) => computed,
            Err(explanation) => return Ok(Err(explanation)),
        };
        self.send_message(queue, &Message { t_id, body: reply }, between)?;
        let response = match self.receive_message(queue, between)? {
            Ok(Body::Success1 { hash_bytes, response }) if usize::from(hash_bytes) == hash.bytes() => {
                response
            }
            Ok(Body::Success1 { .. }) => return Ok(Err(Explanation::Payload)),
            Ok(_) => return Ok(Err(Explanation::Message)),
            Err(explanation) => return Ok(Err(explanation)),
        };
        let Some(expected) = expected else { return Ok(Ok(())) };
        // A controller that leaves its proof out is refused like one with a wrong proof.
        if !response.is_some_and(|response| is_same(&response, &expected)) {
            return Ok(Err(Explanation::Failed));
        }
        self.send_message(queue, &Message { t_id, body: Body::Success2 }, between)?;
        Ok(Ok(()))
    }

    /// Sends a message, for tests also one that is not due.
    ///
    /// # Errors
    ///
    /// The command fails.
    pub fn send_message(
        &mut self,
        queue: usize,
        message: &Message,
        between: &mut dyn FnMut(),
    ) -> Result<(), NvmfError> {
        let mut bytes = message.encode();
        let length = bytes.len() as u32;
        let entry = command(0, fctype::AUTH_SEND, length);
        let done = self.execute(queue, entry, Transfer::ToTarget(length), &mut bytes, between)?;
        succeed("Authentication Send", done).map(drop)
    }

    /// Fetches a message. The inner error is for the controller.
    fn receive_message(
        &mut self,
        queue: usize,
        between: &mut dyn FnMut(),
    ) -> Result<Result<Body, Explanation>, NvmfError> {
        let entry = command(0, fctype::AUTH_RECEIVE, RECEIVE_BYTES);
        let mut data = vec![0; RECEIVE_BYTES as usize];
        let transfer = Transfer::FromTarget(RECEIVE_BYTES);
        succeed("Authentication Receive", self.execute(queue, entry, transfer, &mut data, between)?)?;
        Ok(match Message::decode(&data) {
            Ok((Message { body: Body::Failure1(explanation), .. }, _)) => {
                return Err(NvmfError::Authentication(format!("the target refuses the host: {explanation}")));
            }
            Ok((Message { t_id, body }, _)) if t_id == self.t_id => Ok(body),
            Ok(_) => Err(Explanation::Payload),
            Err(explanation) => Err(explanation),
        })
    }
}

/// Returns the Reply, and R2 if the controller has to prove itself.
fn respond(
    exchange: &Exchange,
    secrets: &HostSecrets,
    nonce: &Nonce,
    public: &[u8],
) -> Result<(Body, Option<SecretBytes>), Explanation> {
    let key = DhKey::generate(exchange.group).map_err(|_| Explanation::Failed)?;
    let shared = key.agree(public).ok_or(Explanation::Payload)?;
    let response = exchange.host_response(&secrets.host, &shared, nonce).to_vec();
    let own = match &secrets.controller {
        Some(_) => Some(Nonce::random(exchange.hash).map_err(|_| Explanation::Failed)?),
        None => None,
    };
    let expected = own.as_ref().zip(secrets.controller.as_ref());
    let expected = expected.map(|(own, secret)| exchange.controller_response(secret, &shared, own));
    Ok((Body::Reply { response, nonce: own, public: key.public().to_vec() }, expected))
}
