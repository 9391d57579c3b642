//! Making and freeing communicators: duplicates, subsets, from groups.
//!
//! MPI: §7.4.2, §7.4.3

use std::sync::Arc;
use std::task::Poll;

use engine::ContextId;

use super::agreement::Agreement;
use super::context_ids::CommId;
use super::inbox::Label;
use super::tree::Tree;
use super::{Comm, Sequence};
use crate::constants::TAG_UB;
use crate::environment::ErrorHandler;
use crate::error::{ErrorClass, Result};
use crate::group::Group;
use crate::info::Info;
use crate::request::Request;
use crate::world::{Operation, World};

/// The id whose contexts carry creations without a parent. In round 0 of process 1, so never
/// proposed; in a world of one process nobody needs it.
const BOOTSTRAP: CommId = CommId(1);

impl World {
    /// A communicator with the same processes, topology and attributes, and contexts of its own. Hints are not handed on.
    ///
    /// Collective.
    ///
    /// # Errors
    /// `NoMem` when no context id is left; what an attribute's copy callback returns.
    ///
    /// MPI: §7.4.2 `MPI_Comm_dup`
    pub fn comm_dup(&self, comm: &Arc<Comm>) -> Result<Arc<Comm>> {
        self.comm_dup_with_info(comm, None)
    }

    /// As [`World::comm_dup`], with hints.
    ///
    /// # Errors
    /// As [`World::comm_dup`].
    ///
    /// MPI: §7.4.2 `MPI_Comm_dup_with_info`
    pub fn comm_dup_with_info(&self, comm: &Arc<Comm>, info: Option<Arc<Info>>) -> Result<Arc<Comm>> {
        let copy = self.unsettled_copy(comm, info);
        self.agree(&copy, comm.collective_tree())?;
        copy.attributes.copy_from(&comm.attributes, comm)?;
        Ok(Arc::new(copy))
    }

    /// Starts a duplication. The new communicator can be used once the request has completed.
    ///
    /// # Errors
    /// As [`World::comm_dup`], in part when the request completes.
    ///
    /// MPI: §7.4.2 `MPI_Comm_idup`
    pub fn comm_idup(&self, comm: &Arc<Comm>) -> Result<(Arc<Comm>, Request)> {
        self.start_dup(comm, None, "MPI_Comm_idup")
    }

    /// As [`World::comm_idup`], with hints.
    ///
    /// # Errors
    /// As [`World::comm_idup`].
    ///
    /// MPI: §7.4.2 `MPI_Comm_idup_with_info`
    pub fn comm_idup_with_info(&self, comm: &Arc<Comm>, info: Option<Arc<Info>>) -> Result<(Arc<Comm>, Request)> {
        self.start_dup(comm, info, "MPI_Comm_idup_with_info")
    }

    fn start_dup(&self, comm: &Arc<Comm>, info: Option<Arc<Info>>, call: &'static str) -> Result<(Arc<Comm>, Request)> {
        let copy = self.unsettled_copy(comm, info);
        copy.attributes.copy_from(&comm.attributes, comm)?;
        let copy = Arc::new(copy);
        let tree = comm.tree(comm.collective(), comm.next_collective_tag(Sequence::Nonblocking));
        let agreement = Agreement::new(tree, &self.commons);
        let duplication = Duplication { agreement, copy: Arc::clone(&copy) };
        let key = self.operations.start(Box::new(duplication));
        self.progress();
        Ok((copy, Request::collective(key, Arc::clone(comm), call)))
    }

    /// A communicator of those members of `comm` that are in `group`; `None` for the others.
    ///
    /// Collective over `comm`. Members of the same new communicator pass equal groups; of an
    /// intercommunicator, each side passes a part of its own group, and the result connects the two.
    ///
    /// # Errors
    /// `Group` when the group is no subset of the communicator.
    ///
    /// MPI: §7.4.2 `MPI_Comm_create`
    pub fn comm_create(&self, comm: &Arc<Comm>, group: &Arc<Group>) -> Result<Option<Arc<Comm>>> {
        if comm.is_inter() {
            return self.create_between(comm, group);
        }
        let tag = comm.next_collective_tag(Sequence::Blocking);
        self.create_in(comm, group, tag)
    }

    /// A communicator of `group`, made by its members alone.
    ///
    /// Collective over `group`. Threads that create at the same time use different tags.
    ///
    /// # Errors
    /// `Group` when the group is no subset of the communicator, `Tag` for a bad tag.
    ///
    /// MPI: §7.4.2 `MPI_Comm_create_group`
    pub fn comm_create_group(&self, comm: &Arc<Comm>, group: &Arc<Group>, tag: i32) -> Result<Option<Arc<Comm>>> {
        comm.intra_only()?;
        let tag = Comm::creation_tag(crate::point_to_point::send_tag(tag)?);
        self.create_in(comm, group, tag)
    }

    /// The two sides learn each other's parts as colours of a split.
    fn create_between(&self, inter: &Arc<Comm>, group: &Arc<Group>) -> Result<Option<Arc<Comm>>> {
        if let Some(stranger) = group.peers().find(|peer| inter.group().rank_of(*peer).is_none()) {
            return ErrorClass::Group
                .fail(format!("the group contains world rank {stranger}, which is not in the local group of {inter}"));
        }
        self.split_by(inter, group.rank().map(|_| 0), group.rank().unwrap_or(0) as i32)
    }

    fn create_in(&self, comm: &Arc<Comm>, group: &Arc<Group>, tag: i32) -> Result<Option<Arc<Comm>>> {
        let is_member = |rank| comm.rank_of(group.peer(rank)).is_some();
        if let Some(stranger) = (0..group.size()).find(|rank| !is_member(*rank)) {
            return ErrorClass::Group
                .fail(format!("rank {stranger} of the group (world rank {}) is not in {comm}", group.peer(stranger)));
        }
        let Some(rank) = group.rank() else { return Ok(None) };
        let new = Comm::new(Arc::clone(group), &self.commons, comm.error_handler());
        self.agree(
            &new,
            Tree { group: Arc::clone(group), rank, context: comm.collective(), tag, label: None, bridge: None },
        )?;
        Ok(Some(Arc::new(new)))
    }

    /// A communicator of `group`, without a parent.
    ///
    /// Collective over `group`; `name` tells apart creations that run at the same time.
    ///
    /// # Errors
    /// `NoMem` when no context id is left.
    ///
    /// MPI: §7.4.2 `MPI_Comm_create_from_group`
    pub fn comm_create_from_group(
        &self,
        group: &Arc<Group>,
        name: &str,
        info: Option<Arc<Info>>,
        error_handler: Arc<ErrorHandler>,
    ) -> Result<Option<Arc<Comm>>> {
        let Some(rank) = group.rank() else { return Ok(None) };
        let new = Comm::new(Arc::clone(group), &self.commons, error_handler);
        new.set_info(info);
        self.agree(&new, bootstrap(group, rank, name))?;
        Ok(Some(Arc::new(new)))
    }

    /// Frees a communicator: calls the delete callbacks of its attributes and lets go of it.
    ///
    /// It lives on until the operations pending on it have completed. Local.
    ///
    /// # Errors
    /// `Comm` for a predefined communicator, or what a delete callback returns; the communicator
    /// is then not freed.
    ///
    /// MPI: §7.4.3 `MPI_Comm_free`
    pub fn comm_free(&self, comm: &Arc<Comm>) -> Result<()> {
        if Arc::ptr_eq(comm, self.comm_world()) || Arc::ptr_eq(comm, self.comm_self()) {
            return ErrorClass::Comm.fail(format!("{comm} is predefined and cannot be freed"));
        }
        comm.attributes.delete_all(comm)?;
        self.orphan_buffered(comm);
        self.spare_holds.clear();
        Ok(())
    }

    /// Frees a communicator once all members have come here.
    ///
    /// # Errors
    /// As [`World::comm_free`].
    ///
    /// MPI: §11.10.4 `MPI_Comm_disconnect`
    pub fn comm_disconnect(&self, comm: &Arc<Comm>) -> Result<()> {
        self.synchronize(comm)?;
        self.comm_free(comm)
    }

    /// Waits until all members of `comm` have called this.
    pub(crate) fn synchronize(&self, comm: &Arc<Comm>) -> Result<()> {
        self.gather_records(comm, vec![1], &mut |_| ())
    }

    /// Waits until all members of `comm` have called this, and shows the first of them the records of all, one after
    /// another in any order. A record has at least one byte.
    pub(crate) fn gather_records(&self, comm: &Arc<Comm>, record: Vec<u8>, look: &mut dyn FnMut(&[u8])) -> Result<()> {
        let mut round = super::tree::TreeRound::gather(comm.collective_tree(), record);
        let mut decide = |records: &[u8], _: &[u8]| {
            look(records);
            Ok(vec![1])
        };
        self.wait_until(|world| ready(round.advance(world, &mut decide))).map(drop)
    }

    fn unsettled_copy(&self, comm: &Arc<Comm>, info: Option<Arc<Info>>) -> Comm {
        let (group, handler) = (Arc::clone(comm.group()), comm.error_handler());
        let copy = match comm.remote_group() {
            None => Comm::new(group, &self.commons, handler),
            Some(remote) => Comm::inter(group, Arc::clone(remote), &self.commons, handler),
        };
        copy.set_info(info);
        if let Some(topology) = comm.topology.get() {
            copy.topology.set(Arc::clone(topology)).expect("a copy is new");
        }
        copy
    }

    /// Has the members of `comm` agree on its id, blocking.
    pub(super) fn agree(&self, comm: &Comm, tree: Tree) -> Result<()> {
        let mut agreement = Agreement::new(tree, &self.commons);
        let id = self.wait_until(|world| ready(agreement.advance(world)))?;
        comm.settle(id);
        Ok(())
    }
}

impl Comm {
    /// The tree of all members, of both groups if there are two, for the next blocking collective operation.
    pub(super) fn collective_tree(&self) -> Tree {
        self.tree(self.collective(), self.next_collective_tag(Sequence::Blocking))
    }

    /// The tree of all members, of both groups if there are two, on a borrowed context.
    pub(super) fn tree(&self, context: ContextId, tag: i32) -> Tree {
        if !self.is_inter() {
            return Tree {
                group: Arc::clone(self.group()),
                rank: self.rank(),
                context,
                tag,
                label: None,
                bridge: None,
            };
        }
        let (first, second) = self.halves();
        let own = self.group().peer(self.rank());
        let group = Group::new(first.peers().chain(second.peers()).collect(), own);
        let rank = group.rank().expect("this process is in one of the two groups");
        Tree { group: Arc::new(group), rank, context, tag, label: None, bridge: None }
    }
}

/// A duplication under way.
struct Duplication {
    agreement: Agreement,
    copy: Arc<Comm>,
}

impl Operation for Duplication {
    fn advance(&mut self, world: &World) -> Poll<Result<()>> {
        self.agreement.advance(world).map_ok(|id| self.copy.settle(id))
    }
}

/// What a wait wants to see of a poll.
pub(super) fn ready<T>(poll: Poll<T>) -> Option<T> {
    match poll {
        Poll::Ready(value) => Some(value),
        Poll::Pending => None,
    }
}

/// The tree for a creation of this name, which has no communicator beforehand.
pub(super) fn bootstrap(group: &Arc<Group>, rank: u32, name: &str) -> Tree {
    let (context, tag) = (BOOTSTRAP.collective(), tag_of_name(name));
    Tree { group: Arc::clone(group), rank, context, tag, label: Some(Label::new(name)), bridge: None }
}

/// A tag for the creations of this name (FNV-1a, folded to the tags there are); other names may have the same.
fn tag_of_name(name: &str) -> i32 {
    let hash = name
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
    ((hash ^ (hash >> 32)) as u32 & TAG_UB as u32) as i32
}
