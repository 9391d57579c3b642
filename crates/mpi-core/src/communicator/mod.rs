//! Communicators: a group of processes and a context that keeps its messages apart.
//!
//! **Invariants**
//! - A communicator lives, and its context id with it, until the user has freed it *and* every
//!   request on it has completed: requests hold it by reference count.
//! - Members call collective operations of one [`Sequence`] in the same order, so a number counted by each on its own
//!   names the same operation everywhere.
//!
//! - `peers` are the processes that ranks in messages name: those of `group`, or of the other group of
//!   an intercommunicator. The two groups of an intercommunicator share no process.
//!
//! MPI: §7

mod agreement;
mod boards;
mod commons;
mod context_ids;
mod create;
mod exchange;
mod inbox;
mod inter;
mod split;
mod tree;

pub(crate) use boards::Turn;
pub(crate) use commons::Commons;
pub use context_ids::CommId;
pub use split::SplitType;

use std::fmt;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};

use collectives::{Collective, Place, TAG_OFFSETS_MAX};
use datatype::Datatype;
use engine::{ContextId, PeerId};

use crate::attribute::Attributes;
use crate::collective::{Judgements, ScheduleCache};
use crate::constants::{ANY_SOURCE, PROC_NULL, TAG_UB};
use crate::environment::ErrorHandler;
use crate::error::{ErrorClass, Result};
use crate::group::Group;
use crate::info::Info;
use crate::point_to_point::AttachedBuffer;
use crate::topology::Topology;

/// How two communicators compare.
///
/// MPI: §7.4.1 `MPI_Comm_compare`
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Comparison {
    /// The same communicator.
    Identical,
    /// Same processes in the same order, different contexts.
    Congruent,
    /// Same processes in another order.
    Similar,
    /// Different processes.
    Unequal,
}

/// A communicator as one member sees it; shared as `Arc<Comm>`.
pub struct Comm {
    /// Unset while a non-blocking duplication is under way.
    id: OnceLock<CommId>,
    group: Arc<Group>,
    rank: u32,
    /// Rank *r* is process *r*: no table needs to be asked.
    is_identity: bool,
    /// Who is meant by ranks in messages.
    peers: Arc<Group>,
    /// Their number, of which each message asks.
    peer_count: u32,
    is_inter: bool,
    /// Nobody else is meant by anything here.
    is_alone: bool,
    /// How many collective operations of each [`Sequence`] there were.
    collective_counts: [AtomicU32; 4],
    schedules: OnceLock<Box<ScheduleCache>>,
    boards: boards::Boards,
    queued_boards: boards::QueuedBoards,
    judgements: Judgements,
    topology: OnceLock<Arc<Topology>>,
    details: Mutex<Details>,
    /// Values the user has attached.
    pub attributes: Attributes,
    /// A number the C face stores its handle in; 0 until then.
    pub face_handle: AtomicUsize,
    commons: Arc<Commons>,
}

/// What is seldom asked for.
struct Details {
    name: Option<Box<str>>,
    info: Option<Arc<Info>>,
    error_handler: Arc<ErrorHandler>,
    /// The program has set the error handler, be it the one there was.
    has_chosen_error_handler: bool,
    attached: AttachedBuffer,
}

/// Tags from here up, on the collective context, belong to creations by group.
const CREATION_TAGS: i32 = TAG_UB + 1;
/// Tags from here up to those of [`TagPool`](crate::partitioned::TagPool) open partitioned communication.
const GREETING_TAGS: i32 = 2 * CREATION_TAGS;
/// Number of collective operations of one sequence after which their tags repeat: a quarter of the tags for each.
const SEQUENCE_TURNS: u32 = (TAG_UB as u32 + 1) / (4 * TAG_OFFSETS_MAX);

/// Collective operations that members call in the same order. Those of different sequences never meet, so that a
/// program which orders a blocking operation and a non-blocking one differently on its ranks works as it does elsewhere,
/// and persistent ones can be started in any order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Sequence {
    /// Calls that return when the operation is done.
    Blocking,
    /// Calls that start an operation.
    Nonblocking,
    /// Calls that make an operation which is started later, any number of times.
    Persistent,
    /// Those of the non-blocking ones in which members look for boards.
    Search,
}

impl Comm {
    pub(crate) fn predefined_world(rank: PeerId, size: u32, commons: &Arc<Commons>) -> Arc<Comm> {
        let comm = Comm::new(Arc::new(Group::identity(size, rank)), commons, ErrorHandler::fatal());
        comm.settle(CommId::WORLD);
        comm.set_name("MPI_COMM_WORLD");
        Arc::new(comm)
    }

    pub(crate) fn predefined_self(rank: PeerId, commons: &Arc<Commons>) -> Arc<Comm> {
        let comm = Comm::new(Arc::new(Group::new(vec![rank], rank)), commons, ErrorHandler::fatal());
        comm.settle(CommId::SELF);
        comm.set_name("MPI_COMM_SELF");
        Arc::new(comm)
    }

    /// A communicator of `group`, of which this process is a member, without an id so far.
    pub(crate) fn new(group: Arc<Group>, commons: &Arc<Commons>, error_handler: Arc<ErrorHandler>) -> Comm {
        let peers = Arc::clone(&group);
        Comm::between(group, peers, false, commons, error_handler)
    }

    /// An intercommunicator of `group`, of which this process is a member, and `remote`, without an id
    /// so far.
    pub(crate) fn inter(
        group: Arc<Group>,
        remote: Arc<Group>,
        commons: &Arc<Commons>,
        error_handler: Arc<ErrorHandler>,
    ) -> Comm {
        Comm::between(group, remote, true, commons, error_handler)
    }

    fn between(
        group: Arc<Group>,
        peers: Arc<Group>,
        is_inter: bool,
        commons: &Arc<Commons>,
        error_handler: Arc<ErrorHandler>,
    ) -> Comm {
        Comm {
            id: OnceLock::new(),
            rank: group.rank().expect("this process is a member of its communicators"),
            is_identity: !is_inter && group.is_identity(),
            is_alone: !is_inter && group.size() == 1,
            group,
            peer_count: peers.size(),
            peers,
            is_inter,
            collective_counts: Default::default(),
            schedules: OnceLock::new(),
            boards: boards::Boards::default(),
            queued_boards: boards::QueuedBoards::default(),
            judgements: Judgements::default(),
            topology: OnceLock::new(),
            details: Mutex::new(Details {
                name: None,
                info: None,
                error_handler,
                has_chosen_error_handler: false,
                attached: AttachedBuffer::default(),
            }),
            attributes: Attributes::default(),
            face_handle: AtomicUsize::new(0),
            commons: Arc::clone(commons),
        }
    }

    /// Gives the communicator its id, once; from now on it can be used.
    pub(crate) fn settle(&self, id: CommId) {
        self.id.set(id).expect("a communicator is settled once");
    }

    /// Rank of this process.
    #[inline]
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// Number of processes; of an intercommunicator, in the local group.
    #[inline]
    pub fn size(&self) -> u32 {
        self.group.size()
    }

    /// The processes, in order of rank; of an intercommunicator, the local group.
    #[inline]
    pub fn group(&self) -> &Arc<Group> {
        &self.group
    }

    /// True if the communicator connects two groups.
    ///
    /// MPI: §7.6.1 `MPI_Comm_test_inter`
    #[inline]
    pub fn is_inter(&self) -> bool {
        self.is_inter
    }

    /// True if this process is the only member.
    #[inline]
    pub fn is_alone(&self) -> bool {
        self.is_alone
    }

    /// The other group of an intercommunicator.
    ///
    /// MPI: §7.6.1 `MPI_Comm_remote_group`
    pub fn remote_group(&self) -> Option<&Arc<Group>> {
        self.is_inter.then_some(&self.peers)
    }

    /// Number of processes that messages can be sent to.
    #[inline]
    pub fn peer_count(&self) -> u32 {
        self.peer_count
    }

    /// The process that a schedule calls `number`: a rank here, and beyond them those of the other
    /// group.
    #[inline]
    pub(crate) fn participant(&self, number: u32) -> PeerId {
        if self.is_identity {
            return number;
        }
        match number.checked_sub(self.size()) {
            None => self.group.peer(number),
            Some(remote) => self.peers.peer(remote),
        }
    }

    /// All processes that a schedule may name: the members, and those of the other group.
    pub(crate) fn participants(&self) -> impl Iterator<Item = PeerId> + '_ {
        let remote = if self.is_inter() { self.peer_count() } else { 0 };
        (0..self.size() + remote).map(|number| self.participant(number))
    }

    /// The id the members agreed on; `None` while a non-blocking duplication is under way.
    pub fn id(&self) -> Option<CommId> {
        self.id.get().copied()
    }

    /// The process that messages to `rank` go to: of an intercommunicator, in the remote group.
    #[inline]
    pub fn peer_of(&self, rank: u32) -> PeerId {
        if self.is_identity { rank } else { self.peers.peer(rank) }
    }

    /// The rank of messages from `peer`: of an intercommunicator, in the remote group.
    #[inline]
    pub fn rank_of(&self, peer: PeerId) -> Option<u32> {
        if self.is_identity { (peer < self.size()).then_some(peer) } else { self.peers.rank_of(peer) }
    }

    /// The process meant by a rank argument; `None` for `MPI_PROC_NULL`.
    ///
    /// # Errors
    /// `Rank` when there is no such rank.
    #[inline]
    pub(crate) fn peer_argument(&self, rank: i32) -> Result<Option<PeerId>> {
        if (0..self.peer_count() as i32).contains(&rank) {
            Ok(Some(self.peer_of(rank as u32)))
        } else if rank == PROC_NULL {
            Ok(None)
        } else {
            Err(self.no_such_rank(rank))
        }
    }

    #[cold]
    pub(crate) fn no_such_rank(&self, rank: i32) -> crate::Error {
        let group = if self.is_inter { "the remote group of " } else { "" };
        ErrorClass::Rank.error(format!("{group}{self} has no rank {rank}: its size is {}", self.peer_count()))
    }

    /// The context of point-to-point messages.
    #[inline]
    pub(crate) fn point_to_point(&self) -> ContextId {
        self.settled_id().point_to_point()
    }

    /// The context of collective operations.
    #[inline]
    pub(crate) fn collective(&self) -> ContextId {
        self.settled_id().collective()
    }

    #[inline]
    fn settled_id(&self) -> CommId {
        *self.id.get().expect("a communicator is used only once its creation has completed")
    }

    /// The type of plain bytes.
    pub(crate) fn byte_type(&self) -> &Arc<Datatype> {
        &self.commons.byte
    }

    /// The first tag of the next collective operation; it may use `TAG_OFFSETS_MAX` from there.
    #[inline]
    pub(crate) fn next_collective_tag(&self, sequence: Sequence) -> i32 {
        // Relaxed, and no addition that locks: calls on one communicator are ordered by the user, as the standard demands.
        let count = &self.collective_counts[sequence as usize];
        let turn = count.load(Ordering::Relaxed);
        count.store(turn.wrapping_add(1), Ordering::Relaxed);
        let turn = turn % SEQUENCE_TURNS;
        ((sequence as u32 * SEQUENCE_TURNS + turn) * TAG_OFFSETS_MAX) as i32
    }

    /// Number of collective operations this process has called for here; of each kind it repeats after 2³².
    pub fn collectives_started(&self) -> u64 {
        // Relaxed: a number to look at.
        self.collective_counts.iter().map(|count| u64::from(count.load(Ordering::Relaxed))).sum()
    }

    /// True if operands of reductions may not change places, so that results are the same to the bit.
    pub(crate) fn is_reproducible(&self) -> bool {
        self.commons.selection.reproducible
    }

    /// The tag of a creation by group in which the user chose `tag`.
    pub(crate) fn creation_tag(tag: i32) -> i32 {
        CREATION_TAGS | tag
    }

    /// The tag on the collective context by which partitioned sends with `tag` introduce themselves.
    pub(crate) fn greeting_tag(tag: i32) -> i32 {
        GREETING_TAGS | tag
    }

    /// True if the user has asked for no algorithm of this collective, by name or for the sake of equal bits.
    pub(crate) fn chooses_freely(&self, collective: Collective) -> bool {
        !self.is_reproducible()
            && self.commons.selection.overrides().iter().all(|(overridden, _)| *overridden != collective)
    }

    /// True if collectives may go through memory that all processes of a host see.
    #[inline]
    pub(crate) fn may_share(&self) -> bool {
        self.commons.selection.shared
    }

    /// Blocks of so many bytes and more are to be read straight from each other's memory, if that was said.
    pub(crate) fn read_min_bytes(&self) -> Option<u64> {
        self.commons.selection.read_min_bytes
    }

    /// What is known of the ways of long blocking collectives.
    #[inline]
    pub(crate) fn judgements(&self) -> &Judgements {
        &self.judgements
    }

    /// True if processes outnumber processors.
    pub(crate) fn is_oversubscribed(&self) -> bool {
        self.commons.selection.oversubscribed
    }

    /// Schedules of collective operations used before.
    #[inline]
    pub(crate) fn schedules(&self) -> &ScheduleCache {
        self.schedules.get_or_init(|| {
            let place = Place { rank: self.rank, size: self.size() };
            Box::new(ScheduleCache::new(place, Arc::clone(&self.commons.selection)))
        })
    }

    /// Who is whose neighbour, if that was said.
    pub fn topology(&self) -> Option<&Topology> {
        self.topology.get().map(|topology| &**topology)
    }

    /// Says who is whose neighbour, once, while the communicator is made.
    pub(crate) fn set_topology(&self, topology: Topology) {
        self.topology.set(Arc::new(topology)).expect("a communicator gets one topology");
    }

    /// The name the user gave, or an empty one.
    ///
    /// MPI: §7.8 `MPI_Comm_get_name`
    pub fn name(&self) -> String {
        self.details().name.as_deref().unwrap_or_default().to_owned()
    }

    /// Names the communicator, for messages and tools.
    ///
    /// MPI: §7.8 `MPI_Comm_set_name`
    pub fn set_name(&self, name: &str) {
        self.details().name = Some(Box::from(name));
    }

    /// The hints given to this communicator, if any.
    pub fn info(&self) -> Option<Arc<Info>> {
        self.details().info.clone()
    }

    /// Takes over hints; those that are not given anew stay.
    ///
    /// # Errors
    /// `NoMem` for too many hints.
    ///
    /// MPI: §7.4.4 `MPI_Comm_set_info`
    pub fn update_info(&self, info: &Info) -> Result<()> {
        // Others may share the hints there are.
        let updated = self.info().map_or_else(Info::new, |info| info.duplicate());
        updated.update(info)?;
        self.set_info(Some(Arc::new(updated)));
        Ok(())
    }

    /// Replaces the hints.
    pub(crate) fn set_info(&self, info: Option<Arc<Info>>) {
        self.details().info = info;
    }

    /// What happens when a call on this communicator fails.
    pub fn error_handler(&self) -> Arc<ErrorHandler> {
        Arc::clone(&self.details().error_handler)
    }

    /// Chooses what happens when a call on this communicator fails.
    pub fn set_error_handler(&self, handler: Arc<ErrorHandler>) {
        let mut details = self.details();
        details.error_handler = handler;
        details.has_chosen_error_handler = true;
    }

    /// As [`Comm::set_error_handler`], before the program has a say.
    pub(crate) fn begin_with_error_handler(&self, handler: Arc<ErrorHandler>) {
        self.details().error_handler = handler;
    }

    /// True if the program has set the error handler itself.
    pub(crate) fn has_chosen_error_handler(&self) -> bool {
        self.details().has_chosen_error_handler
    }

    /// Looks at the communicator's own buffer for buffered sends.
    pub(crate) fn with_attached_buffer<R>(&self, act: impl FnOnce(&mut AttachedBuffer) -> R) -> R {
        act(&mut self.details().attached)
    }

    /// Compares contexts and groups.
    ///
    /// MPI: §7.4.1 `MPI_Comm_compare`
    pub fn compare(self: &Arc<Self>, other: &Arc<Comm>) -> Comparison {
        if Arc::ptr_eq(self, other) {
            return Comparison::Identical;
        }
        if self.is_inter != other.is_inter {
            return Comparison::Unequal;
        }
        let groups = [self.group.compare(&other.group), self.peers.compare(&other.peers)];
        match groups.into_iter().max().expect("two of them") {
            crate::group::Comparison::Identical => Comparison::Congruent,
            crate::group::Comparison::Similar => Comparison::Similar,
            crate::group::Comparison::Unequal => Comparison::Unequal,
        }
    }

    /// This process as people know it.
    pub(crate) fn describe_self(&self) -> String {
        describe(self.rank, self.group.peer(self.rank))
    }

    /// A rank as people know it: its number here and, where that differs, among all processes.
    pub(crate) fn describe_rank(&self, rank: u32) -> String {
        describe(rank, self.peer_of(rank))
    }

    /// A process as people know it: its rank here and, where that differs, among all processes.
    pub(crate) fn describe_peer(&self, peer: PeerId) -> String {
        match (self.rank_of(peer), self.group.rank_of(peer)) {
            (Some(rank), _) => self.describe_rank(rank),
            (None, Some(rank)) => describe(rank, peer),
            (None, None) => format!("world rank {peer}, not a member"),
        }
    }

    /// The source of a message that came on this communicator.
    #[inline]
    pub(crate) fn source_of(&self, peer: PeerId) -> i32 {
        self.rank_of(peer).map_or(ANY_SOURCE, |rank| rank as i32)
    }

    fn details(&self) -> MutexGuard<'_, Details> {
        self.details.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn describe(rank: u32, peer: PeerId) -> String {
    if peer == rank { format!("rank {rank}") } else { format!("rank {rank} (world rank {peer})") }
}

impl Drop for Comm {
    fn drop(&mut self) {
        if let Some(id) = self.id() {
            self.commons.ids.release(id);
        }
    }
}

impl fmt::Display for Comm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The handler of a signal may ask, of a thread that has the lock; other threads are kept apart by the gate.
        let details = match self.details.try_lock() {
            Ok(details) => Some(details),
            Err(TryLockError::Poisoned(details)) => Some(details.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        };
        match (details.as_ref().and_then(|details| details.name.as_deref()), self.id()) {
            (Some(name), _) if !name.is_empty() => f.write_str(name),
            (_, Some(id)) => write!(f, "communicator {}", id.0),
            (_, None) => f.write_str("communicator under construction"),
        }
    }
}

impl fmt::Debug for Comm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Comm({self}, rank {} of {})", self.rank, self.size())
    }
}
