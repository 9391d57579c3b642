//! PMI between the ranks' sockets and the server.

use pmi::Event;
use rustix::event::epoll::{self, EventFlags};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};

use super::{Source, Supervisor};

/// Bytes a rank may leave unread on its PMI socket.
const REPLY_BYTES_MAX: usize = 16 << 20;

impl Supervisor<'_> {
    pub(super) fn read_pmi(&mut self, rank: u32) {
        let mut bytes = [0; 4096];
        loop {
            let Some(pmi) = self.ranks.get(rank as usize).and_then(|rank| rank.pmi.as_ref()) else { return };
            let count = match rustix::net::recv(pmi, &mut bytes, RecvFlags::DONTWAIT) {
                Ok((_, count @ 1..)) => count.min(bytes.len()),
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => return,
                Ok(_) | Err(_) => {
                    self.ranks[rank as usize].pmi = None;
                    return;
                }
            };
            let mut events = Vec::new();
            let received = self.server.receive(rank, &bytes[..count], &mut events);
            for event in events {
                match event {
                    Event::Reply { rank, line } => {
                        if let Some(rank) = self.ranks.get_mut(rank as usize) {
                            rank.replies.extend_from_slice(line.as_bytes());
                        }
                        self.send_replies(rank);
                    }
                    Event::Abort { rank, code, .. } => {
                        let text = format!("{} called MPI_Abort with code {code}", self.name(rank));
                        self.fail(abort_code(code), Some(&text));
                    }
                    _ => {}
                }
            }
            if let Err(error) = received {
                self.ranks[rank as usize].pmi = None;
                let text = format!("{}: {error}", self.name(rank));
                self.fail(1, Some(&text));
            }
            if self.server.waiting().next().is_some() {
                self.check_barrier();
            }
        }
    }

    pub(super) fn send_replies(&mut self, rank: u32) {
        let Some(entry) = self.ranks.get_mut(rank as usize) else { return };
        let Some(pmi) = &entry.pmi else { return };
        while !entry.replies.is_empty() {
            match rustix::net::send(pmi, &entry.replies, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                Ok(count) => drop(entry.replies.drain(..count)),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                // It has hung up; its end will tell why.
                Err(_) => entry.replies.clear(),
            }
        }
        let wanted = if entry.replies.is_empty() { EventFlags::IN } else { EventFlags::IN | EventFlags::OUT };
        let too_many = entry.replies.len() > REPLY_BYTES_MAX;
        if !entry.replies.is_empty() || entry.replies.capacity() > 0 {
            // It is registered as long as it is open.
            let _ = epoll::modify(&self.epoll, pmi, Source::Pmi(rank).data(), wanted);
            if entry.replies.is_empty() {
                entry.replies = Vec::new();
            }
        }
        if too_many {
            entry.pmi = None;
            let text = format!("{} asks its launcher without reading the answers", self.name(rank));
            self.fail(1, Some(&text));
        }
    }
}

/// The code given to MPI_Abort as an exit code; what would become 0 by truncation does not.
fn abort_code(code: i32) -> u8 {
    match u8::try_from(code & 0xff) {
        Ok(0) if code != 0 => 255,
        Ok(code) => code,
        Err(_) => 255,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_of_aborts() {
        for (code, expected) in [(0, 0), (7, 7), (255, 255), (256, 255), (-1, 255), (257, 1)] {
            assert_eq!(abort_code(code), expected, "{code}");
        }
    }
}
