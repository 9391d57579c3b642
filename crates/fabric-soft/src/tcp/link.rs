//! The link's public face: what the adapter calls.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use fabric::{DeviceKind, FabricError};
use rustix::event::{Timespec, epoll};

use super::TcpOptions;
use super::address::{Address, Identity, SOCKETS_MAX};
use super::connection::{Connection, Ending};
use super::frame::Kind;
use super::interfaces::Interface;
use super::meeting::live_peer;
use super::peer::Peer;
use super::socket;
use crate::link::{HEADER_BYTES, Link, LinkPeer, LinkProperties, Outgoing, Placement, Responder, SendOutcome};

/// Longest payload, in bytes.
pub(super) const MESSAGE_MAX_BYTES: u64 = 1 << 30;
/// Events taken from the kernel at once.
const EVENTS_MAX: usize = 64;
/// Tokens from here on are listeners.
const LISTENERS: u64 = u64::MAX - SOCKETS_MAX as u64;

/// A process's end of its connections.
pub struct TcpLink {
    pub(super) options: TcpOptions,
    pub(super) own: Address,
    /// Where this host is, to judge which of a peer's addresses are near.
    pub(super) interfaces: Vec<Interface>,
    properties: LinkProperties,
    pub(super) epoll: OwnedFd,
    pub(super) listeners: Vec<OwnedFd>,
    pub(super) peers: Vec<Peer>,
    pub(super) by_identity: HashMap<Identity, u32>,
    pub(super) connections: Vec<Option<Connection>>,
    /// How often each place was used: an event for what was there before is none.
    pub(super) generations: Vec<u32>,
    /// Connections that are not live yet.
    pub(super) greeting_count: usize,
    /// Peers to which a connection is to be made.
    pub(super) wanted: Vec<u32>,
    /// Peers the adapter is to be told of.
    pub(super) lost: Vec<u32>,
    pub(super) refused: u64,
    start: Instant,
}

impl TcpLink {
    /// Listens.
    ///
    /// # Errors
    /// [`FabricError::InvalidRequest`] if there is no address or one that peers cannot reach;
    /// [`FabricError::BeyondLimit`] if there are too many; [`FabricError::System`] if one cannot be listened at.
    pub fn new(options: TcpOptions) -> Result<Self, FabricError> {
        if options.listen.is_empty() || options.listen.iter().any(|one| one.ip().is_unspecified()) {
            let reason = "it listens at addresses that peers can dial";
            return Err(FabricError::InvalidRequest { operation: "making a tcp link", reason });
        }
        if options.listen.len() > SOCKETS_MAX {
            let asked = options.listen.len() as u64;
            return Err(FabricError::BeyondLimit { what: "addresses of a tcp link", asked, max: SOCKETS_MAX as u64 });
        }
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(|why| refused("making an epoll", &why))?;
        let (mut listeners, mut sockets) = (Vec::new(), Vec::new());
        for (index, address) in options.listen.iter().enumerate() {
            let (listener, bound) =
                socket::listen(address).map_err(|why| refused("listening for peers", &format!("{address}: {why}")))?;
            let token = epoll::EventData::new_u64(LISTENERS + index as u64);
            epoll::add(&epoll, &listener, token, epoll::EventFlags::IN)
                .map_err(|why| refused("watching for peers", &why))?;
            listeners.push(listener);
            sockets.push(bound);
        }
        let random = Self::nonce().map_err(|why| refused("drawing an identity", &why))?;
        let identity: Identity = std::array::from_fn(|index| random[index]);
        let listed: Vec<String> = sockets.iter().map(SocketAddr::to_string).collect();
        let properties = LinkProperties {
            kind: DeviceKind::Tcp,
            description: format!("sockets at {}", listed.join(", ")),
            message_max_bytes: MESSAGE_MAX_BYTES,
            datagram_max_bytes: 4096,
            asynchronous: Err("work is done while this process polls".into()),
            single_copy: if options.check_payloads {
                Err("payload is copied to be checked".into())
            } else {
                Err("payload goes through the kernel's socket buffers".into())
            },
            multicast: false,
            mapped_memory: false,
            peer_bytes: (size_of::<Peer>() + size_of::<Connection>() + (16 << 10)) as u64,
        };
        Ok(Self {
            options,
            own: Address { identity, sockets },
            // Without them addresses are dialled in the peer's order.
            interfaces: Interface::all().unwrap_or_default(),
            properties,
            epoll,
            listeners,
            peers: Vec::new(),
            by_identity: HashMap::new(),
            connections: Vec::new(),
            generations: Vec::new(),
            greeting_count: 0,
            wanted: Vec::new(),
            lost: Vec::new(),
            refused: 0,
            start: Instant::now(),
        })
    }

    /// The addresses it listens at, with their ports.
    pub fn listening(&self) -> &[SocketAddr] {
        &self.own.sockets
    }

    /// Connections refused because the other side did not prove that it belongs to the job.
    pub fn refused_connections(&self) -> u64 {
        self.refused
    }

    /// How often connections to peers became live.
    pub fn connections_made(&self) -> u64 {
        self.peers.iter().map(|peer| peer.epoch).sum()
    }

    /// As if the network had failed: every connection is cut, and what is on its way is lost. Peers are not.
    pub fn cut_connections(&mut self) {
        let now = self.now();
        for slot in 0..self.connections.len() {
            if let Some(connection) = &self.connections[slot] {
                socket::close_hard(&connection.socket);
                self.end(slot, Ending::Broken, now);
            }
        }
    }

    pub(super) fn token(&self, slot: usize) -> u64 {
        u64::from(self.generations[slot]) << 32 | slot as u64
    }

    fn take_events(&mut self, responder: &mut dyn Responder) {
        let mut events =
            [epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) }; EVENTS_MAX];
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        // An interrupted look is made again by the next progress.
        let count = epoll::wait(&self.epoll, &mut events[..], Some(&zero)).unwrap_or(0);
        if count == 0 {
            return;
        }
        let now = self.now();
        for event in &events[..count] {
            let token = event.data.u64();
            if token >= LISTENERS {
                self.accept((token - LISTENERS) as usize, now);
                continue;
            }
            let slot = (token & 0xffff_ffff) as usize;
            if self.generations.get(slot).is_some_and(|generation| u64::from(*generation) == token >> 32) {
                self.serve(slot, responder, now);
            }
        }
    }
}

/// Peers learn at once that this process is gone, if the kernel takes the word.
impl Drop for TcpLink {
    fn drop(&mut self) {
        for connection in self.connections.iter_mut().flatten() {
            let Some(peer) = live_peer(connection).map(|index| &mut self.peers[index as usize]) else { continue };
            connection.say_head(Kind::Goodbye, peer.received);
            // Who does not hear it finds nobody listening.
            let _ = connection.flush(Some(peer));
        }
    }
}

impl Link for TcpLink {
    fn properties(&self) -> &LinkProperties {
        &self.properties
    }

    fn address(&self) -> Vec<u8> {
        self.own.to_bytes()
    }

    fn resolve(&mut self, address: &[u8]) -> Result<LinkPeer, FabricError> {
        let address = Address::parse(address)?;
        if address.identity == self.own.identity {
            return Err(FabricError::BadEndpoint("it is this process's own"));
        }
        let max = u32::MAX;
        self.acquaint(address).map(LinkPeer).ok_or(FabricError::Exhausted { object: "peers", max })
    }

    fn send(&mut self, to: LinkPeer, header: &[u8; HEADER_BYTES], payload: Outgoing<'_>) -> SendOutcome {
        let check = self.options.check_payloads;
        let Some(peer) = self.peers.get_mut(to.0 as usize).filter(|peer| !peer.is_lost) else {
            return SendOutcome::Gone;
        };
        if !peer.outbox.push(header, payload, check) {
            return SendOutcome::Full;
        }
        let Some(slot) = peer.connection else {
            let now = self.now();
            self.want(to.0, now, Duration::ZERO);
            return SendOutcome::Taken;
        };
        let Some(connection) = self.connections[slot].as_mut() else { return SendOutcome::Taken };
        if live_peer(connection).is_none() || connection.is_blocked {
            return SendOutcome::Taken;
        }
        match connection.flush(Some(peer)) {
            Ok(()) => self.watch(slot),
            Err(ending) => {
                let now = self.now();
                self.end(slot, ending, now);
            }
        }
        SendOutcome::Taken
    }

    fn progress(&mut self, responder: &mut dyn Responder) {
        self.take_events(responder);
        if self.greeting_count > 0 || !self.wanted.is_empty() {
            self.look_after(self.now());
        }
        for index in std::mem::take(&mut self.lost) {
            responder.lost(LinkPeer(index));
        }
    }

    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    fn recall(&mut self, address: u64, len_bytes: u64) {
        let touches = |start: usize, len: usize| {
            (start as u64) < address.saturating_add(len_bytes) && address < (start as u64).saturating_add(len as u64)
        };
        for peer in &mut self.peers {
            peer.outbox.recall(touches);
            if let Some(arriving) = &mut peer.arriving
                && arriving.placement.ranges.iter().any(|range| touches(range.address(), range.len_bytes()))
            {
                arriving.placement = Placement::discard();
            }
        }
    }

    fn deadline(&self) -> Option<Duration> {
        if !self.lost.is_empty() {
            return Some(Duration::ZERO);
        }
        let greetings = self.connections.iter().flatten().filter_map(|connection| connection.deadline);
        let wanted = self.wanted.iter().map(|index| &self.peers[*index as usize]);
        let dials = wanted.filter(|peer| peer.attempt.is_none() && peer.connection.is_none());
        greetings.chain(dials.map(|peer| peer.trouble.retry_at)).min()
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.epoll.as_fd())
    }
}

fn refused(operation: &'static str, why: &dyn std::fmt::Display) -> FabricError {
    FabricError::System { operation, reason: why.to_string() }
}
