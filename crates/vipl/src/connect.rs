//! Connections. Paper: via2sisci §1.4.1.
//!
//! ```text
//!   client–server (blocking)                 peer-to-peer (either side first, nobody blocks)
//!   server: wait ▶ accept or reject          both: request ▶ poll done, or wait
//!   client: request, with a time limit       the lower address dials, the higher one listens
//! ```
//! [`crate::hello`] is what is said. The socket stays open for as long as the connection lasts: its end tells of the other
//! side's, however it came.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::address::NetAddress;
use crate::channel::{self, Outbound};
use crate::hello::{self, Answer, End, Hello, LineError, Model, Refusal};
use crate::link::{Line, Link, RemoteAttributes};
use crate::nic::{Core, Nic};
use crate::segments::{LocalSegment, PeerNode, Published};
use crate::status::Error;
use crate::vi::{Vi, ViAttributes, ViCore};
use crate::waiting::{Deadline, deadline};

/// How long whoever is asked listens to one who has dialled and says nothing.
const STRANGER_TIMEOUT: Duration = Duration::from_secs(1);
/// How long whoever dials waits for a sign that the other side speaks this language.
const HEARD_TIMEOUT: Duration = Duration::from_secs(5);
/// How long whoever accepted waits until the other side has mapped what it needs.
const CONFIRM_TIMEOUT: Duration = Duration::from_secs(10);
/// From one attempt of a peer to dial to the next.
const DIAL_PAUSE: Duration = Duration::from_millis(5);

/// A client that waits to be accepted or rejected. Dropping it rejects it.
pub struct Request {
    nic: Arc<Core>,
    socket: Option<TcpStream>,
    hello: Hello,
}

impl Nic {
    /// Waits for a client that asks for `local`; `None`: for ever.
    ///
    /// # Errors
    /// [`Error::Timeout`], or [`Error::Resource`] if the address is another program's or not of this host.
    pub fn connect_wait(&self, local: &NetAddress, timeout: Option<Duration>) -> Result<Request, Error> {
        const CALL: &str = "VipConnectWait";
        let listener = listen(CALL, local)?;
        let matches =
            |hello: &Hello| hello.model == Model::ClientServer && hello.to.discriminator() == local.discriminator();
        let (socket, hello) = receive(CALL, &listener, deadline(timeout), matches, || false)?;
        Ok(Request { nic: Arc::clone(&self.core), socket: Some(socket), hello })
    }
}

impl Request {
    /// Where the client says that it is.
    pub fn remote(&self) -> &NetAddress {
        &self.hello.from
    }

    /// What the client's VI is like.
    pub fn attributes(&self) -> RemoteAttributes {
        self.hello.end.attributes
    }

    /// Connects the client to `vi`.
    ///
    /// # Errors
    /// [`Error::InvalidState`] unless the VI is idle, [`Error::InvalidReliabilityLevel`] or [`Error::InvalidMtu`] if it is
    /// not like the client's: the request is as it was and may be accepted with another VI, or rejected.
    /// [`Error::NotReachable`], [`Error::Timeout`] or [`Error::Resource`] if nothing comes of it: the request is over.
    pub fn accept(&mut self, vi: &Vi) -> Result<(), Error> {
        const CALL: &str = "VipConnectAccept";
        let over = Error::InvalidParameter { call: CALL, what: "the request, which is over" };
        if !Arc::ptr_eq(&self.nic, &vi.core.nic) {
            return Err(Error::InvalidParameter { call: CALL, what: "a VI of another NIC" });
        }
        let (attributes, attempt) = vi.core.begin(CALL)?;
        let socket = match fit(CALL, &attributes, &self.hello.end.attributes) {
            Ok(()) => self.socket.take().ok_or(over),
            Err(error) => Err(error),
        };
        let accepted = socket.and_then(|socket| answer(CALL, (&vi.core, attempt), socket, &self.hello.end));
        accepted.inspect_err(|_| vi.core.give_up(attempt))
    }

    /// Whether there is nothing left to be accepted or rejected.
    pub fn is_over(&self) -> bool {
        self.socket.is_none()
    }

    /// Sends the client away.
    pub fn reject(self) {}
}

impl Drop for Request {
    fn drop(&mut self) {
        if let Some(socket) = self.socket.take() {
            // If it is gone by now, it needs no answer.
            let _ = hello::tell(&socket, &hello::answer_frame(&Err(Refusal::Rejected)));
        }
    }
}

impl Vi {
    /// Asks the server at `remote` for a connection; `None` waits for ever. Returns what the server's VI is like.
    ///
    /// # Errors
    /// [`Error::InvalidState`] unless the VI is idle, [`Error::NoMatch`] if nobody waits there, [`Error::Reject`],
    /// [`Error::Timeout`], [`Error::NotReachable`] if there is no way to the host or its memory, or [`Error::Resource`].
    pub fn connect_request(
        &self,
        local: &NetAddress,
        remote: &NetAddress,
        timeout: Option<Duration>,
    ) -> Result<RemoteAttributes, Error> {
        const CALL: &str = "VipConnectRequest";
        let (attributes, attempt) = self.core.begin(CALL)?;
        let until = deadline(timeout);
        let asked = (|| {
            let offer = Offer::new(CALL, &self.core, &attributes)?;
            let hello = Hello { model: Model::ClientServer, from: local.clone(), to: remote.clone(), end: offer.end };
            let (socket, end, mapped) = ask(CALL, &hello, until)?;
            establish(CALL, (&self.core, attempt), offer, socket, (&end, mapped), Role::Asked(until))?;
            Ok(end.attributes)
        })();
        asked.inspect_err(|_| self.core.give_up(attempt))
    }

    /// Begins to make a connection with the peer at `remote`, which does the same the other way round; `None`: goes on for
    /// ever. Returns at once.
    ///
    /// # Errors
    /// [`Error::InvalidState`] unless the VI is idle, [`Error::InvalidParameter`] if both addresses are equal, or
    /// [`Error::Resource`].
    pub fn connect_peer(
        &self,
        local: &NetAddress,
        remote: &NetAddress,
        timeout: Option<Duration>,
    ) -> Result<PeerRequest, Error> {
        const CALL: &str = "VipConnectPeerRequest";
        if local == remote {
            return Err(Error::InvalidParameter {
                call: CALL,
                what: "the address of the peer, which is the local one",
            });
        }
        let (attributes, attempt) = self.core.begin(CALL)?;
        let (vi, local, remote, until) = (Arc::clone(&self.core), local.clone(), remote.clone(), deadline(timeout));
        let outcome = Arc::new(Mutex::new(None));
        let shared = Arc::clone(&outcome);
        let work = move || {
            let found = meet((&vi, attempt), &attributes, (&local, &remote), until);
            let found = found.inspect_err(|_| vi.give_up(attempt));
            *shared.lock() = Some(found);
            vi.nic.completed();
        };
        let started =
            base::signals::without_signals(|| std::thread::Builder::new().name("vipl-peer".into()).spawn(work));
        match started {
            Ok(thread) => Ok(PeerRequest { outcome, thread: Mutex::new(Some(thread)) }),
            Err(_) => {
                self.core.give_up(attempt);
                Err(Error::Resource { call: CALL, what: "the system has no thread for it" })
            }
        }
    }
}

/// A connection of peers that is being made.
pub struct PeerRequest {
    outcome: Arc<Mutex<Option<Result<RemoteAttributes, Error>>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl PeerRequest {
    /// What came of it, or `None` while it is being made.
    pub fn done(&self) -> Option<Result<RemoteAttributes, Error>> {
        *self.outcome.lock()
    }

    /// Waits for what comes of it.
    ///
    /// # Errors
    /// As [`Vi::connect_request`].
    pub fn wait(&self) -> Result<RemoteAttributes, Error> {
        const CALL: &str = "VipConnectPeerWait";
        if let Some(thread) = self.thread.lock().take() {
            // A panic in there has been printed; then there is no outcome.
            let _ = thread.join();
        }
        self.done().unwrap_or(Err(Error::Resource { call: CALL, what: "the thread that made the connection is gone" }))
    }
}

/// Whose turn it is to say that everything was mapped.
enum Role {
    /// And until when it waits.
    Asked(Deadline),
    Answered,
}

/// What this side brings into a connection.
struct Offer {
    segment: LocalSegment,
    end: End,
}

impl Offer {
    fn new(call: &'static str, vi: &ViCore, attributes: &ViAttributes) -> Result<Self, Error> {
        let none = |_| Error::Resource { call, what: "the system has no memory or no descriptor for the VI" };
        let segment = vi.nic.node.create_segment(channel::FOOTPRINT).map_err(none)?;
        segment.publish(&Published::default());
        let &ViAttributes { reliability, transfer_max_bytes, rdma_write, rdma_read, ptag } = attributes;
        let end = End {
            attributes: RemoteAttributes { reliability, transfer_max_bytes, rdma_write, rdma_read },
            ptag: ptag.0,
            node: vi.nic.node.reference(),
            segment: segment.id(),
            host: host_number(),
        };
        Ok(Self { segment, end })
    }
}

/// Both VIs must be alike.
fn fit(call: &'static str, local: &ViAttributes, remote: &RemoteAttributes) -> Result<(), Error> {
    if local.reliability != remote.reliability {
        return Err(Error::InvalidReliabilityLevel(call));
    }
    if local.transfer_max_bytes != remote.transfer_max_bytes {
        return Err(Error::InvalidMtu(call));
    }
    Ok(())
}

/// The answering side, once the program has decided.
fn answer(
    call: &'static str,
    (vi, attempt): (&Arc<ViCore>, u64),
    socket: TcpStream,
    theirs: &End,
) -> Result<(), Error> {
    let attributes = vi.queues.lock().attributes;
    let refuse = || {
        // If it is gone by now, it needs no answer.
        let _ = hello::tell(&socket, &hello::answer_frame(&Err(Refusal::NotReachable)));
    };
    let offer = Offer::new(call, vi, &attributes).inspect_err(|_| refuse())?;
    let mapped = map(theirs).ok_or(Error::NotReachable(call)).inspect_err(|_| refuse())?;
    hello::tell(&socket, &hello::answer_frame(&Ok(offer.end))).map_err(|_| Error::NotReachable(call))?;
    hear_word(call, &socket, hello::MAPPED, None)?;
    establish(call, (vi, attempt), offer, socket, (theirs, mapped), Role::Answered)
}

/// Waits for a word of the other side, which has no more to do than to map memory.
fn hear_word(call: &'static str, socket: &TcpStream, word: &[u8], until: Deadline) -> Result<(), Error> {
    match hello::hear(socket, no_later(until, CONFIRM_TIMEOUT)) {
        Ok(frame) if frame == word => Ok(()),
        Err(LineError::TimedOut) => Err(Error::Timeout(call)),
        _ => Err(Error::NotReachable(call)),
    }
}

/// The deadline, or so long from now if that is sooner.
fn no_later(until: Deadline, limit: Duration) -> Deadline {
    let soon = Instant::now() + limit;
    Some(until.map_or(soon, |until| until.min(soon)))
}

fn is_past(until: Deadline) -> bool {
    until.is_some_and(|until| until <= Instant::now())
}

/// Connects the VI, unless it was disconnected since the attempt was begun. When it returns, the receives of both sides are
/// posted, wherever they were before.
fn establish(
    call: &'static str,
    (vi, attempt): (&Arc<ViCore>, u64),
    offer: Offer,
    socket: TcpStream,
    (theirs, (node, outbound)): (&End, (PeerNode, Outbound)),
    role: Role,
) -> Result<(), Error> {
    let none = Error::Resource { call, what: "the system has no threads for the NIC" };
    if !vi.nic.manager.start() {
        return Err(none);
    }
    let line = Arc::new(Line::new(socket));
    let link = Link::new(Arc::clone(&line), offer.segment, node, outbound, (theirs.attributes, theirs.ptag));
    if !vi.connected(link, attempt) {
        return Err(Error::InvalidState { call, state: vi.queues.lock().state });
    }
    let told = |word| hello::tell(&line.socket, word).map_err(|_| Error::NotReachable(call));
    let agreed = match role {
        Role::Asked(until) => told(hello::MAPPED).and_then(|()| hear_word(call, &line.socket, hello::READY, until)),
        Role::Answered => told(hello::READY),
    };
    // From here on nothing comes over the socket but its end.
    let watched = agreed.and_then(|()| if vi.nic.watch.add(&line) { Ok(()) } else { Err(none) });
    match watched {
        Ok(()) => vi.nic.wake_manager(),
        Err(_) => vi.disconnect(),
    }
    watched
}

/// The other side's memory; `None` if it is not to be had, as on another host.
fn map(theirs: &End) -> Option<(PeerNode, Outbound)> {
    if theirs.host != host_number() {
        return None;
    }
    let node = PeerNode::connect(theirs.node).ok()?;
    let mapping = node.connect_segment(theirs.segment).ok()?.map().ok()?;
    let outbound = Outbound::new(mapping.shared().clone()).ok()?;
    Some((node, outbound))
}

/// Dials `hello.to` and asks; the socket, the other side's VI, and its memory.
fn ask(call: &'static str, hello: &Hello, until: Deadline) -> Result<(TcpStream, End, (PeerNode, Outbound)), Error> {
    let mut failure = Error::NoMatch(call);
    for port in hello.to.ports() {
        let address = SocketAddr::new(hello.to.host(), port);
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        let dialled = match left {
            Some(Duration::ZERO) => return Err(Error::Timeout(call)),
            Some(left) => TcpStream::connect_timeout(&address, left),
            None => TcpStream::connect(address),
        };
        let socket = match dialled {
            Ok(socket) => socket,
            Err(why) if why.kind() == std::io::ErrorKind::ConnectionRefused => continue,
            // The system has a limit of its own.
            Err(why) if why.kind() == std::io::ErrorKind::TimedOut && is_past(until) => {
                return Err(Error::Timeout(call));
            }
            Err(_) => return Err(Error::NotReachable(call)),
        };
        if socket.set_nodelay(true).and_then(|()| socket.set_write_timeout(Some(STRANGER_TIMEOUT))).is_err() {
            return Err(Error::NotReachable(call));
        }
        if hello::tell(&socket, &hello.frame()).is_err() {
            continue;
        }
        // A program of another kind is not waited for longer than this one takes to say that it has heard; only then comes
        // the wait for somebody's decision. Peers have none to make.
        let decided = if hello.model == Model::Peers { no_later(until, CONFIRM_TIMEOUT) } else { until };
        let heard = hello::hear(&socket, no_later(until, HEARD_TIMEOUT));
        let answered = match heard {
            Ok(frame) if frame == hello::HEARD => hello::hear(&socket, decided),
            Err(LineError::TimedOut) if !is_past(until) => continue,
            other => other,
        };
        let answer: Answer = match answered {
            Ok(frame) => hello::parse_answer(&frame).unwrap_or(Err(Refusal::NoMatch)),
            Err(LineError::TimedOut) if is_past(until) => return Err(Error::Timeout(call)),
            Err(_) => Err(Refusal::NoMatch),
        };
        failure = match answer {
            Ok(end) => match map(&end) {
                Some(mapped) => return Ok((socket, end, mapped)),
                None => Error::NotReachable(call),
            },
            Err(Refusal::NotReachable) => Error::NotReachable(call),
            Err(Refusal::NoMatch) => continue,
            Err(Refusal::Rejected) => Error::Reject(call),
            Err(Refusal::Reliability) => Error::InvalidReliabilityLevel(call),
            Err(Refusal::Mtu) => Error::InvalidMtu(call),
        };
        break;
    }
    Err(failure)
}

/// Listens at the first port of an address that is free.
fn listen(call: &'static str, local: &NetAddress) -> Result<TcpListener, Error> {
    let listener = local.ports().find_map(|port| TcpListener::bind((local.host(), port)).ok());
    let listener = listener.ok_or(Error::Resource { call, what: "no port of the address can be listened to" })?;
    let prepared = listener.set_nonblocking(true);
    prepared.map(|()| listener).map_err(|_| Error::Resource { call, what: "the system refuses a listening socket" })
}

/// Takes the first connection whose hello `matches`, and tells it that it was heard; the others are told that nobody waits
/// for them.
fn receive(
    call: &'static str,
    listener: &TcpListener,
    until: Deadline,
    matches: impl Fn(&Hello) -> bool,
    ends: impl Fn() -> bool,
) -> Result<(TcpStream, Hello), Error> {
    while !is_past(until) && !ends() {
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        // Now and then it is asked whether anybody still wants it.
        let pause = left.unwrap_or(Duration::MAX).min(Duration::from_millis(50));
        let limit = Timespec { tv_sec: pause.as_secs() as i64, tv_nsec: pause.subsec_nanos().into() };
        let _ = poll(&mut [PollFd::new(listener, PollFlags::IN)], Some(&limit));
        match listener.accept() {
            Ok((socket, _)) => {
                if let Some(hello) = greet(&socket, until) {
                    let is_meant = matches(&hello);
                    let refusal = hello::answer_frame(&Err(Refusal::NoMatch));
                    let told = hello::tell(&socket, if is_meant { hello::HEARD } else { &refusal });
                    if is_meant && told.is_ok() {
                        return Ok((socket, hello));
                    }
                }
            }
            // The connection stays where it is, and would be found again at once.
            Err(why) if is_short(&why) => {
                return Err(Error::Resource { call, what: "the system has no memory or no descriptor for a socket" });
            }
            Err(_) => {}
        }
    }
    Err(Error::Timeout(call))
}

/// Whether the system has no more of something.
fn is_short(why: &std::io::Error) -> bool {
    let short = [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM];
    why.raw_os_error().is_some_and(|code| short.iter().any(|errno| errno.raw_os_error() == code))
}

fn greet(socket: &TcpStream, until: Deadline) -> Option<Hello> {
    socket.set_nonblocking(false).ok()?;
    socket.set_nodelay(true).ok()?;
    socket.set_write_timeout(Some(STRANGER_TIMEOUT)).ok()?;
    Hello::parse(&hello::hear(socket, no_later(until, STRANGER_TIMEOUT)).ok()?)
}

/// Two peers meet: the lower address dials until the higher one listens.
fn meet(
    (vi, attempt): (&Arc<ViCore>, u64),
    attributes: &ViAttributes,
    (local, remote): (&NetAddress, &NetAddress),
    until: Deadline,
) -> Result<RemoteAttributes, Error> {
    const CALL: &str = "VipConnectPeerRequest";
    let is_unwanted = || !vi.is_pending(attempt);
    if local < remote {
        let offer = Offer::new(CALL, vi, attributes)?;
        let hello = Hello { model: Model::Peers, from: local.clone(), to: remote.clone(), end: offer.end };
        loop {
            match ask(CALL, &hello, until) {
                Ok((socket, end, mapped)) => {
                    establish(CALL, (vi, attempt), offer, socket, (&end, mapped), Role::Asked(until))?;
                    return Ok(end.attributes);
                }
                Err(Error::NoMatch(_)) if is_unwanted() => return Err(Error::Timeout(CALL)),
                Err(Error::NoMatch(_)) => std::thread::sleep(DIAL_PAUSE),
                Err(error) => return Err(error),
            }
        }
    }
    let listener = listen(CALL, local)?;
    let matches = |hello: &Hello| hello.model == Model::Peers && (&hello.from, &hello.to) == (remote, local);
    let (socket, hello) = receive(CALL, &listener, until, matches, is_unwanted)?;
    let refusal = match fit(CALL, attributes, &hello.end.attributes) {
        Ok(()) => None,
        Err(Error::InvalidMtu(_)) => Some(Refusal::Mtu),
        Err(_) => Some(Refusal::Reliability),
    };
    if let Some(refusal) = refusal {
        let _ = hello::tell(&socket, &hello::answer_frame(&Err(refusal)));
        fit(CALL, attributes, &hello.end.attributes)?;
    }
    answer(CALL, (vi, attempt), socket, &hello.end)?;
    Ok(hello.end.attributes)
}

/// What tells this host, since it was started, from others.
fn host_number() -> u64 {
    static NUMBER: std::sync::OnceLock<u64> = std::sync::OnceLock::new();
    *NUMBER.get_or_init(|| {
        let id = std::fs::read("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        id.iter().fold(0xCBF2_9CE4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01B3))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::ProtectionTag;
    use crate::nic::Settings;
    use crate::status::{Reliability, State};

    fn address(name: &str) -> NetAddress {
        let name = format!("connect-{name}-{}", std::process::id());
        NetAddress::new(NetAddress::local_host(), name.as_bytes()).unwrap()
    }

    fn attributes(ptag: ProtectionTag) -> ViAttributes {
        let (rdma_write, rdma_read) = (false, false);
        ViAttributes { reliability: Reliability::Delivery, transfer_max_bytes: 64, ptag, rdma_write, rdma_read }
    }

    fn side() -> (Nic, Vi) {
        let nic = Nic::open(Settings::default()).unwrap();
        let vi = nic.create_vi(&attributes(nic.create_ptag().unwrap()), None, None).unwrap();
        (nic, vi)
    }

    /// A stranger says nothing, and a client comes behind it: when the stranger was waited for the time is up.
    #[test]
    fn a_silent_stranger_is_waited_for_no_longer_than_the_caller_said() {
        let (_nic, vi) = side();
        let there = address("late");
        let listener = listen("test", &there).unwrap();
        let place = listener.local_addr().unwrap();
        let _stranger = TcpStream::connect(place).unwrap();
        let client = TcpStream::connect(place).unwrap();
        let end = Offer::new("test", &vi.core, &vi.query().attributes).unwrap().end;
        let hello = Hello { model: Model::ClientServer, from: there.clone(), to: there, end };
        hello::tell(&client, &hello.frame()).unwrap();
        let until = deadline(Some(Duration::from_millis(50)));
        let found = receive("test", &listener, until, |_| true, || false);
        assert!(matches!(found, Err(Error::Timeout(_))));
        assert!(receive("test", &listener, deadline(Some(Duration::from_secs(20))), |_| true, || false).is_ok());
    }

    /// A program of another kind holds the first port of the address and says nothing.
    #[test]
    fn a_port_of_another_program_is_passed_over() {
        let ((nic, server), (_other, client)) = (side(), side());
        let (here, there) = (address("passer"), address("passed"));
        let silent = TcpListener::bind((there.host(), there.ports().next().unwrap())).unwrap();
        let long = Some(Duration::from_secs(20));
        std::thread::scope(|scope| {
            let accepting = scope.spawn(|| nic.connect_wait(&there, None)?.accept(&server));
            let asked = std::iter::repeat_with(|| client.connect_request(&here, &there, long));
            let outcome = asked.skip_while(|outcome| matches!(outcome, Err(Error::NoMatch(_)))).take(1).last();
            assert!(matches!(outcome, Some(Ok(_))), "{outcome:?}");
            accepting.join().unwrap().unwrap();
        });
        drop(silent);
    }

    /// Whoever began before a disconnect neither ends nor finishes what was begun after it.
    #[test]
    fn an_attempt_that_was_given_up_leaves_the_next_one_alone() {
        let (_nic, vi) = side();
        let (_, first) = vi.core.begin("test").unwrap();
        vi.disconnect();
        let (_, second) = vi.core.begin("test").unwrap();
        assert!(!vi.core.is_pending(first) && vi.core.is_pending(second));
        vi.core.give_up(first);
        assert_eq!(vi.query().state, State::ConnectPending);
        vi.core.give_up(second);
        assert_eq!(vi.query().state, State::Idle);
    }
}
