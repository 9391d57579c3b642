//! A world in memory: all ranks stepped in a seeded random order, messages delivered when chance
//! will have it. Deadlocks, leaked messages, wrong sizes and races on buffers are failures.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use collectives::{
    BufferId, Call, Execution, Host, Place, Progress, Region, Schedule, Selection, TAG_OFFSETS_MAX, Temp, TypeSlot,
    build,
};

use crate::memory::{Chance, Memory, SimType};
use crate::operations::Operation;

/// One rank: its call, buffers and types.
#[derive(Clone, Debug)]
pub struct Member {
    pub call: Call,
    pub send: Memory,
    pub recv: Memory,
    pub send_type: SimType,
    pub recv_type: SimType,
    pub send_types: Vec<SimType>,
    pub recv_types: Vec<SimType>,
    pub operation: Operation,
}

impl Member {
    /// A member without buffers; for tests to fill in.
    pub fn new(call: Call) -> Member {
        let bytes = SimType::contiguous(1);
        Member {
            call,
            send: Memory::spanning(0, 0),
            recv: Memory::spanning(0, 0),
            send_type: bytes.clone(),
            recv_type: bytes,
            send_types: Vec::new(),
            recv_types: Vec::new(),
            operation: Operation::Matrix,
        }
    }
}

/// When a send completes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sends {
    /// At once: the message is buffered.
    #[default]
    Buffered,
    /// When its receive has taken it: nothing is buffered anywhere.
    Synchronous,
}

/// What a run did.
#[derive(Debug)]
pub struct Outcome {
    pub members: Vec<Member>,
    pub schedules: Vec<Arc<Schedule>>,
}

/// Runs one collective to its end.
pub fn run(members: Vec<Member>, selection: &Selection, sends: Sends, seed: u64) -> Outcome {
    let size = members.len() as u32;
    run_groups(members, size, selection, sends, seed)
}

/// The same in two groups: the first `left_size` members and the others, each numbering its own
/// ranks first. With nobody in the second group there is one.
pub fn run_groups(members: Vec<Member>, left_size: u32, selection: &Selection, sends: Sends, seed: u64) -> Outcome {
    let size = members.len() as u32;
    let schedules: Vec<Arc<Schedule>> = (0..size)
        .map(|rank| {
            let call = &members[rank as usize].call;
            let place = match rank < left_size {
                true => Place { rank, size: left_size },
                false => Place { rank: rank - left_size, size: size - left_size },
            };
            let schedule = build(place, call, selection);
            Arc::new(schedule.unwrap_or_else(|error| panic!("rank {rank}: {error}")))
        })
        .collect();
    // The member that a rank calls `peer`: those of the second group number themselves first.
    let member_of = move |rank: u32, peer: u32| if rank < left_size { peer } else { (peer + left_size) % size };
    let about = || {
        let mut text = format!("seed {seed}, {sends:?}, {size} ranks\n");
        for (rank, schedule) in schedules.iter().enumerate().take(8) {
            text += &format!("rank {rank}: {:?}\n{schedule}", members[rank].call);
        }
        text
    };
    let agreed = schedules.iter().all(|schedule| schedule.algorithm() == schedules[0].algorithm());
    assert!(agreed, "ranks chose different algorithms\n{}", about());

    let net = RefCell::new(Net { sends, ..Net::default() });
    let mut chance = Chance::new(seed);
    let mut ranks: Vec<Rank> = (members.iter().zip(&schedules).zip(0..))
        .map(|((member, schedule), rank)| Rank::new(member.clone(), schedule, rank, chance.next() as u8))
        .collect();
    let mut executions: Vec<_> = schedules.iter().map(|schedule| Execution::new(Arc::clone(schedule))).collect();
    let mut runnable: Vec<usize> = (0..ranks.len()).collect();
    let mut unfinished = ranks.len();
    while unfinished > 0 {
        let deliverable = net.borrow().deliverable();
        let choices = runnable.len() + deliverable.len();
        assert!(choices > 0, "deadlock: {}\n{}", net.borrow().describe(), about());
        let choice = chance.below(choices);
        if let Some(at) = choice.checked_sub(runnable.len()) {
            for rank in deliver(&net, &mut ranks, deliverable[at]) {
                if !runnable.contains(&rank) {
                    runnable.push(rank);
                }
            }
            continue;
        }
        let rank = runnable.swap_remove(choice);
        let mut host = SimHost { rank: &mut ranks[rank], net: &net, member_of: &member_of };
        match executions[rank].advance(&mut host) {
            Ok(Progress::Pending) => assert!(!executions[rank].outstanding().is_empty(), "{}", about()),
            Ok(Progress::Done) => {
                assert!(executions[rank].outstanding().is_empty(), "done with messages under way\n{}", about());
                assert!(host.rank.active.is_empty(), "done with regions in use\n{}", about());
                if !std::mem::replace(&mut host.rank.done, true) {
                    unfinished -= 1;
                }
            }
            Err(problem) => panic!("rank {rank}: {problem}\n{}", about()),
        }
    }
    assert!(net.borrow().is_quiet(), "leaked messages: {}\n{}", net.borrow().describe(), about());
    Outcome { members: ranks.into_iter().map(|rank| rank.member).collect(), schedules }
}

/// A message's place among those with the same source, destination and tag.
type Channel = (u32, u32, u32);

/// Messages and receives that have not met, in order, and what has completed.
#[derive(Default)]
struct Net {
    sends: Sends,
    sent: BTreeMap<Channel, VecDeque<Posted>>,
    wanted: BTreeMap<Channel, VecDeque<Posted>>,
    /// Per handle: whether it has completed; taken out when polled so.
    completed: BTreeMap<usize, bool>,
    handles: usize,
}

#[derive(Debug)]
struct Posted {
    handle: usize,
    region: Region,
    /// The message, if it is buffered.
    payload: Option<Vec<u8>>,
}

impl Net {
    fn deliverable(&self) -> Vec<Channel> {
        let wanted = |channel: &&Channel| self.wanted.get(channel).is_some_and(|queue| !queue.is_empty());
        self.sent.iter().filter(|(_, queue)| !queue.is_empty()).map(|(c, _)| c).filter(wanted).copied().collect()
    }

    fn new_handle(&mut self, completed: bool) -> usize {
        self.handles += 1;
        self.completed.insert(self.handles, completed);
        self.handles
    }

    fn is_quiet(&self) -> bool {
        self.sent.values().chain(self.wanted.values()).all(VecDeque::is_empty) && self.completed.is_empty()
    }

    fn describe(&self) -> String {
        let open = |queues: &BTreeMap<Channel, VecDeque<Posted>>| {
            queues.iter().filter(|(_, q)| !q.is_empty()).map(|(c, q)| (*c, q.len())).collect::<Vec<_>>()
        };
        format!("(source, destination, tag): sent {:?}, wanted {:?}", open(&self.sent), open(&self.wanted))
    }
}

/// Moves the first message of a channel; says which ranks may have something to do now.
fn deliver(net: &RefCell<Net>, ranks: &mut [Rank], channel: Channel) -> [usize; 2] {
    let mut net = net.borrow_mut();
    let (from, to) = (channel.0 as usize, channel.1 as usize);
    let sent = net.sent.get_mut(&channel).and_then(VecDeque::pop_front).expect("deliverable");
    let wanted = net.wanted.get_mut(&channel).and_then(VecDeque::pop_front).expect("deliverable");
    let payload = sent.payload.unwrap_or_else(|| ranks[from].read(sent.region));
    let capacity = wanted.region.count as usize * ranks[to].type_of(wanted.region.datatype).size();
    assert_eq!(payload.len(), capacity, "message {channel:?} of another size than its receive");
    ranks[to].write(wanted.region, &payload);
    for (rank, handle) in [(from, sent.handle), (to, wanted.handle)] {
        ranks[rank].active.retain(|use_| use_.handle != handle);
        if let Some(completed) = net.completed.get_mut(&handle) {
            *completed = true;
        }
    }
    [from, to]
}

/// Memory a message is using.
struct Use {
    handle: usize,
    buffer: BufferId,
    span: (i64, i64),
    written: bool,
}

struct Rank {
    rank: u32,
    member: Member,
    temps: Vec<Memory>,
    active: Vec<Use>,
    done: bool,
}

impl Rank {
    fn new(member: Member, schedule: &Schedule, rank: u32, salt: u8) -> Rank {
        let temp = |temp: &Temp| match *temp {
            Temp::Bytes { len_bytes } => Memory::spanning(0, len_bytes as i64).scrambled(salt),
            Temp::Elements { count } => Memory::new(&member.recv_type, 0, count).scrambled(salt),
        };
        let temps = schedule.temps().iter().map(temp).collect();
        Rank { rank, member, temps, active: Vec::new(), done: false }
    }

    fn type_of(&self, slot: TypeSlot) -> SimType {
        match slot {
            TypeSlot::Send => self.member.send_type.clone(),
            TypeSlot::Recv => self.member.recv_type.clone(),
            TypeSlot::PerPeerSend(peer) => self.member.send_types[peer as usize].clone(),
            TypeSlot::PerPeerRecv(peer) => self.member.recv_types[peer as usize].clone(),
            TypeSlot::Bytes => SimType::contiguous(1),
        }
    }

    fn read(&self, region: Region) -> Vec<u8> {
        let ty = self.type_of(region.datatype);
        let memory = match region.buffer {
            BufferId::Send => &self.member.send,
            BufferId::Recv => &self.member.recv,
            BufferId::Temp(n) => &self.temps[n as usize],
        };
        memory.read(&ty, region.offset_bytes, region.count)
    }

    fn write(&mut self, region: Region, packed: &[u8]) {
        let ty = self.type_of(region.datatype);
        let memory = match region.buffer {
            BufferId::Send => panic!("the send buffer is written"),
            BufferId::Recv => &mut self.member.recv,
            BufferId::Temp(n) => &mut self.temps[n as usize],
        };
        memory.write(&ty, region.offset_bytes, packed);
    }

    /// Fails where a message under way uses the same memory and one of the two writes it.
    fn check_free(&self, region: Region, written: bool) -> Result<(), String> {
        let Some(span) = self.type_of(region.datatype).span(region.offset_bytes, region.count) else {
            return Ok(());
        };
        let meets = |other: &&Use| {
            other.buffer == region.buffer
                && (written || other.written)
                && span.0 < other.span.1
                && other.span.0 < span.1
        };
        match self.active.iter().find(meets) {
            None => Ok(()),
            Some(_) => Err(format!("{region} is used while a message uses it (written: {written})")),
        }
    }

    /// Fails where local work would read what it writes.
    fn check_apart(&self, from: Region, to: Region) -> Result<(), String> {
        let span = |region: Region| self.type_of(region.datatype).span(region.offset_bytes, region.count);
        match (span(from), span(to)) {
            (Some(a), Some(b)) if from.buffer == to.buffer && a.0 < b.1 && b.0 < a.1 => {
                Err(format!("{from} and {to} overlap"))
            }
            _ => Ok(()),
        }
    }

    fn occupy(&mut self, handle: usize, region: Region, written: bool) -> Result<(), String> {
        self.check_free(region, written)?;
        if let Some(span) = self.type_of(region.datatype).span(region.offset_bytes, region.count) {
            self.active.push(Use { handle, buffer: region.buffer, span, written });
        }
        Ok(())
    }
}

struct SimHost<'a> {
    rank: &'a mut Rank,
    net: &'a RefCell<Net>,
    member_of: &'a dyn Fn(u32, u32) -> u32,
}

impl Host for SimHost<'_> {
    type Handle = usize;
    type Error = String;

    fn start_send(&mut self, peer: u32, tag_offset: u32, region: Region) -> Result<usize, String> {
        assert!(tag_offset < TAG_OFFSETS_MAX);
        let mut net = self.net.borrow_mut();
        let buffered = net.sends == Sends::Buffered;
        let handle = net.new_handle(buffered);
        self.rank.check_free(region, false)?;
        let payload = if buffered {
            Some(self.rank.read(region))
        } else {
            self.rank.occupy(handle, region, false)?;
            None
        };
        let channel = (self.rank.rank, (self.member_of)(self.rank.rank, peer), tag_offset);
        net.sent.entry(channel).or_default().push_back(Posted { handle, region, payload });
        Ok(handle)
    }

    fn start_recv(&mut self, peer: u32, tag_offset: u32, region: Region) -> Result<usize, String> {
        let mut net = self.net.borrow_mut();
        let handle = net.new_handle(false);
        self.rank.occupy(handle, region, true)?;
        let channel = ((self.member_of)(self.rank.rank, peer), self.rank.rank, tag_offset);
        net.wanted.entry(channel).or_default().push_back(Posted { handle, region, payload: None });
        Ok(handle)
    }

    fn poll(&mut self, handle: usize) -> Result<bool, String> {
        let mut net = self.net.borrow_mut();
        let completed = *net.completed.get(&handle).ok_or("a spent handle is polled")?;
        if completed {
            net.completed.remove(&handle);
        }
        Ok(completed)
    }

    fn copy(&mut self, from: Region, to: Region) -> Result<(), String> {
        self.rank.check_free(from, false)?;
        self.rank.check_free(to, true)?;
        self.rank.check_apart(from, to)?;
        let packed = self.rank.read(from);
        let expected = to.count as usize * self.rank.type_of(to.datatype).size();
        if packed.len() != expected {
            return Err(format!("copy of {from} to {to}: sizes differ"));
        }
        self.rank.write(to, &packed);
        Ok(())
    }

    fn reduce(&mut self, from: Region, into: Region) -> Result<(), String> {
        self.rank.check_free(from, false)?;
        self.rank.check_free(into, true)?;
        self.rank.check_apart(from, into)?;
        if from.datatype != TypeSlot::Recv || into.datatype != TypeSlot::Recv || from.count != into.count {
            return Err(format!("reduction of {from} into {into}"));
        }
        let (left, right) = (self.rank.read(from), self.rank.read(into));
        let result = self.rank.member.operation.apply(&left, &right);
        self.rank.write(into, &result);
        Ok(())
    }
}
