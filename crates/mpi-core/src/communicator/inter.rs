//! Intercommunicators: two groups that share no process, and messages between them.
//!
//! ```text
//!   members ── tree ── leader ═══ bridge ═══ leader ── tree ── members
//! ```
//!
//! Two groups without a communicator in common meet through their leaders: what a leader gathers from
//! its group crosses the bridge, and both leaders spread the same answer. Once an intercommunicator
//! exists its two groups are one set of processes with one context, and everything made from it runs
//! over that set: first the group whose rank 0 has the lower world rank.
//!
//! MPI: §7.6

use std::sync::Arc;

use super::Comm;
use super::agreement::Agreement;
use super::create::{bootstrap, ready};
use super::tree::{Bridge, Tree, TreeRound};
use crate::environment::ErrorHandler;
use crate::error::{ErrorClass, Result};
use crate::group::Group;
use crate::info::Info;
use crate::world::World;

impl World {
    /// An intercommunicator of the processes of `local` and of those that another leader brings.
    ///
    /// `local_leader` is a rank of `local`; the leader, and only it, says who leads the others: a
    /// communicator in which both leaders are (`peer`) and a rank there. Collective over both groups.
    ///
    /// # Errors
    /// `Comm` when `local` is an intercommunicator or the groups overlap, `Rank` for a leader that is
    /// no rank, `Tag` for a bad tag.
    ///
    /// MPI: §7.6.2 `MPI_Intercomm_create`
    pub fn intercomm_create(
        &self,
        local: &Arc<Comm>,
        local_leader: i32,
        peer: Option<(&Arc<Comm>, i32)>,
        tag: i32,
    ) -> Result<Arc<Comm>> {
        local.intra_only()?;
        let leader = leader_rank(local.group(), local_leader, "local_leader")?;
        let bridge = match peer.filter(|_| leader == local.rank()) {
            None => None,
            Some((peer, remote_leader)) => {
                let context = peer.collective();
                let tag = Comm::creation_tag(crate::point_to_point::send_tag(tag)?);
                let remote = match u32::try_from(remote_leader) {
                    Ok(rank) if rank < peer.peer_count() => peer.peer_of(rank),
                    _ => return Err(peer.no_such_rank(remote_leader).within("remote_leader")),
                };
                Some(Bridge::new(remote, context, tag, self.peer()))
            }
        };
        let tree = local.collective_tree().led_by(leader, bridge);
        let new = self.connect(local.group(), tree, local.error_handler())?;
        Ok(Arc::new(new))
    }

    /// An intercommunicator of two groups, without a communicator beforehand.
    ///
    /// `remote` is the other group and its leader's rank there; only the local leader needs to say it.
    /// Collective over both groups; `name` tells apart creations that run at the same time.
    ///
    /// # Errors
    /// As [`World::intercomm_create`]; `Group` when this process is not in `local`.
    ///
    /// MPI: §7.6.2 `MPI_Intercomm_create_from_groups`
    pub fn intercomm_create_from_groups(
        &self,
        local: &Arc<Group>,
        local_leader: i32,
        remote: Option<(&Group, i32)>,
        name: &str,
        info: Option<Arc<Info>>,
        error_handler: Arc<ErrorHandler>,
    ) -> Result<Arc<Comm>> {
        let Some(rank) = local.rank() else {
            return ErrorClass::Group.fail("this process is not a member of local_group");
        };
        let leader = leader_rank(local, local_leader, "local_leader")?;
        let tree = bootstrap(local, rank, name);
        let bridge = match remote.filter(|_| leader == rank) {
            None => None,
            Some((remote, remote_leader)) => {
                let peer = remote.peer(leader_rank(remote, remote_leader, "remote_leader")?);
                Some(Bridge::new(peer, tree.context, tree.tag, self.peer()))
            }
        };
        let tree = tree.led_by(leader, bridge);
        let new = self.connect(local, tree, error_handler)?;
        new.set_info(info);
        Ok(Arc::new(new))
    }

    /// One communicator of both groups. All of one group pass the same `high`: if the groups differ,
    /// those of the group with `false` come first.
    ///
    /// Collective over both groups.
    ///
    /// # Errors
    /// `Comm` when `inter` has one group, `Arg` when a group does not agree on `high`.
    ///
    /// MPI: §7.6.2 `MPI_Intercomm_merge`
    pub fn intercomm_merge(&self, inter: &Arc<Comm>, high: bool) -> Result<Arc<Comm>> {
        inter.inter_only()?;
        let tree = inter.collective_tree();
        let mut round = TreeRound::gather(tree.clone(), vec![u8::from(high)]);
        let flags = self.wait_until(|world| ready(round.advance(world, &mut |flags, _| Ok(flags.to_vec()))))?;
        let (first, second) = inter.halves();
        let at = (first.size() as usize).min(flags.len());
        let (first_flags, second_flags) = flags.split_at(at);
        let agreed = |flags: &[u8]| flags.windows(2).all(|pair| pair[0] == pair[1]);
        if !agreed(first_flags) || !agreed(second_flags) {
            return ErrorClass::Arg.fail(format!("the processes of one group of {inter} do not agree on high"));
        }
        let swapped = first_flags.first() > second_flags.first();
        let (low, high) = if swapped { (second, first) } else { (first, second) };
        let group = Arc::new(inter.group().of_peers(low.peers().chain(high.peers()).collect()));
        let new = Comm::new(Arc::clone(&group), &self.commons, inter.error_handler());
        let rank = new.rank();
        self.agree(&new, Tree { group, rank, ..tree })?;
        Ok(Arc::new(new))
    }

    /// Lets the leaders of `tree` meet: all learn the other group, and agree on an id.
    fn connect(&self, local: &Arc<Group>, tree: Tree, error_handler: Arc<ErrorHandler>) -> Result<Comm> {
        let own: Vec<u8> = local.peers().flat_map(u32::to_le_bytes).collect();
        let mut round = TreeRound::spread(tree.clone(), own);
        let other = self.wait_until(|world| ready(round.advance(world, &mut |_, other| Ok(other.to_vec()))))?;
        let remote = self.group_of(local, &other)?;
        // Both groups have the same lists, so they come to the same verdict.
        if let Some(peer) = remote.peers().find(|peer| local.rank_of(*peer).is_some()) {
            return ErrorClass::Comm.fail(format!("the two groups overlap: world rank {peer} is in both"));
        }
        let new = Comm::inter(Arc::clone(local), Arc::new(remote), &self.commons, error_handler);
        let mut agreement = Agreement::new(tree, &self.commons);
        new.settle(self.wait_until(|world| ready(agreement.advance(world)))?);
        Ok(new)
    }

    /// The group another leader has sent.
    fn group_of(&self, local: &Group, bytes: &[u8]) -> Result<Group> {
        let (numbers, rest) = bytes.as_chunks::<4>();
        let peers: Vec<u32> = numbers.iter().map(|bytes| u32::from_le_bytes(*bytes)).collect();
        let distinct: std::collections::HashSet<u32> = peers.iter().copied().collect();
        let world_size = self.comm_world().size();
        let is_group = rest.is_empty() && !peers.is_empty() && distinct.len() == peers.len();
        if !is_group || peers.iter().any(|peer| *peer >= world_size) {
            return ErrorClass::Intern.fail("creating an intercommunicator: the other leader has sent no group");
        }
        Ok(local.of_peers(peers))
    }
}

impl Comm {
    /// Both groups, in the order in which all members see them.
    pub(super) fn halves(&self) -> (&Arc<Group>, &Arc<Group>) {
        let (own, other) = (self.group(), self.remote_group().unwrap_or(self.group()));
        if own.peer(0) <= other.peer(0) { (own, other) } else { (other, own) }
    }

    /// That the communicator has two groups.
    ///
    /// # Errors
    /// `Comm` otherwise.
    pub(super) fn inter_only(&self) -> Result<()> {
        if !self.is_inter() {
            return ErrorClass::Comm.fail(format!("{self} is an intracommunicator; an intercommunicator is needed"));
        }
        Ok(())
    }
}

fn leader_rank(group: &Group, rank: i32, name: &str) -> Result<u32> {
    match u32::try_from(rank) {
        Ok(rank) if rank < group.size() => Ok(rank),
        _ => ErrorClass::Rank.fail(format!("{name} = {rank} is not a rank of a group of {}", group.size())),
    }
}
