//! A packet from every process to every other, of lengths that only the sender knows.

use std::sync::Arc;

use datatype::SendBuf;
use engine::{Outcome, SendMode};

use super::Comm;
use super::create::ready;
use super::inbox::Inbox;
use crate::error::Result;
use crate::request::class_of;
use crate::world::{World, engine_error};

impl World {
    /// Sends packet *i* to rank *i* and gives what came, in order of rank.
    ///
    /// Collective over `comm`. Cost: `p - 1` messages each way, for what is seldom done.
    pub(crate) fn exchange(&self, comm: &Arc<Comm>, mut packets: Vec<Vec<u8>>) -> Result<Vec<Vec<u8>>> {
        let tree = comm.collective_tree();
        let (rank, size) = (comm.rank() as usize, comm.size() as usize);
        let mut sends = Vec::new();
        for to in (1..size).map(|distance| (rank + distance) % size) {
            let peer = comm.peer_of(to as u32);
            let buf = SendBuf::from_owned(std::mem::take(&mut packets[to]).into_boxed_slice());
            let mut engine = self.engine.borrow_mut();
            if !engine.try_send(peer, tree.context, tree.tag, &buf) {
                let id = engine.send(SendMode::Standard, peer, tree.context, tree.tag, buf);
                sends.push(id.map_err(engine_error)?);
            }
        }
        for from in (0..size).filter(|from| *from != rank) {
            let peer = comm.peer_of(from as u32);
            let mut inbox = Inbox::default();
            packets[from] = self.wait_until(|world| ready(inbox.poll(world, tree.pattern(peer), None)))?;
        }
        for id in sends {
            let completion = self.wait_for(id);
            if let Outcome::Failed(why) = completion.outcome {
                let to = comm.describe_peer(completion.envelope.peer);
                return class_of(&why)
                    .fail(format!("creating a communicator: no message could be sent to {to}: {why}"));
            }
        }
        Ok(packets)
    }
}
