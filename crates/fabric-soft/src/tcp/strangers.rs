//! Strangers: who came and has proved nothing yet. They are kept for a limited time and limited in number, and give way
//! where this process is short of descriptors. Where even that makes no room, nobody is let in for a while: who wants to
//! come waits in the system's queue.

use std::time::Duration;

use base::log::Level;
use rustix::event::epoll;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

use super::connection::{Connection, Ending, Stage};
use super::link::{LISTENERS, TcpLink};
use super::socket;

/// Until when somebody who came must have proved itself.
const STRANGER_MAX: Duration = Duration::from_secs(30);
/// Connections that have proved nothing, at most; for one more, one is hung up on.
const STRANGERS_MAX: usize = 64;
/// The same where few descriptors may be open, of which one in so many may be a stranger's.
const STRANGERS_FEW: usize = 4;
const DESCRIPTORS_PER_STRANGER: u64 = 16;
/// For how long nobody is let in when there was no descriptor for it.
const REST: Duration = Duration::from_millis(100);

/// Connections that have proved nothing, at most, in this process.
pub(super) fn limit() -> usize {
    limit_among(getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX))
}

/// The same where so many descriptors may be open.
fn limit_among(descriptors: u64) -> usize {
    usize::try_from(descriptors / DESCRIPTORS_PER_STRANGER).unwrap_or(STRANGERS_MAX).clamp(STRANGERS_FEW, STRANGERS_MAX)
}

fn is_strange(connection: &Connection) -> bool {
    matches!(connection.stage, Stage::Accepted | Stage::Challenged(_))
}

impl TcpLink {
    /// Lets in who waits at a listener.
    pub(super) fn accept(&mut self, listener: usize, now: Duration) {
        // Half of those that are kept: who was let in at the last look is heard before it gives way.
        for _ in 0..self.strangers_max / 2 {
            match socket::accept(&self.listeners[listener]) {
                Ok(Some(socket)) => {
                    let strangers = self.connections.iter().flatten().filter(|one| is_strange(one)).count();
                    if strangers >= self.strangers_max {
                        self.hang_up_on_one(now);
                    }
                    self.add(socket, Stage::Accepted, now + STRANGER_MAX);
                }
                Ok(None) => return,
                Err(why) if socket::is_short(why) && self.hang_up_on_one(now) => {}
                Err(why) => return self.rest_from_accepting(why, now),
            }
        }
    }

    /// As [`socket::dial`]; strangers give way to a peer.
    pub(super) fn dial_past_strangers(
        &mut self,
        target: &std::net::SocketAddr,
        now: Duration,
    ) -> rustix::io::Result<OwnedFd> {
        match socket::dial(target) {
            Err(why) if socket::is_short(why) && self.hang_up_on_one(now) => socket::dial(target),
            dialled => dialled,
        }
    }

    /// Hangs up on a stranger, if there is one: rather on one that has not said whom it means, and on the oldest.
    fn hang_up_on_one(&mut self, now: Duration) -> bool {
        let places = self.connections.iter().enumerate().filter_map(|(slot, one)| Some((slot, one.as_ref()?)));
        let strangers = places.filter(|(_, one)| is_strange(one));
        let ranked = strangers.map(|(slot, one)| (!matches!(one.stage, Stage::Accepted), one.deadline, slot));
        let Some((_, _, slot)) = ranked.min() else { return false };
        self.end(slot, Ending::Late, now);
        true
    }

    /// Nobody is let in for a while.
    fn rest_from_accepting(&mut self, why: Errno, now: Duration) {
        if !std::mem::replace(&mut self.has_rested, true) {
            let told = format_args!("tcp: nobody can be let in now, which is tried again and not told of: {why}");
            self.options.log.say(Level::Warn, told);
        }
        self.accept_at = Some(now + REST);
        self.watch_listeners(epoll::EventFlags::empty());
    }

    /// Somebody may be let in again, if it is time to.
    pub(super) fn go_on_accepting(&mut self, now: Duration) {
        if self.accept_at.take_if(|at| *at <= now).is_some() {
            self.watch_listeners(epoll::EventFlags::IN);
        }
    }

    fn watch_listeners(&mut self, flags: epoll::EventFlags) {
        for (index, listener) in self.listeners.iter().enumerate() {
            let token = epoll::EventData::new_u64(LISTENERS + index as u64);
            // A socket of ours that is being watched can be watched otherwise.
            let _ = epoll::modify(&self.epoll, listener, token, flags);
        }
    }
}

#[cfg(test)]
mod tests;
