//! What all substitutes of a context share: a completion queue of our own, and who sleeps on which descriptor.

use super::{Role, Substitute, control};
use crate::address::Address;
use crate::connect::{ready_to_send, receive_mask};
use crate::context::VerbsContext;
use crate::ffi::numbers::{QPS_RESET, qp_attr, send, wr};
use crate::ffi::{IbvQpAttr, IbvSendWr, IbvSendWrAtomic, IbvSendWrTarget, IbvWc};
use crate::objects::{Completions, Domain, Pair};
use crate::queues::WorkQueue;
use crate::status::status;
use base::SlabKey;
use fabric::{
    AsynchronousEvent, CompletionQueue, DeviceKind, Endpoint, FabricError, QueuePair, QueuePairState,
    ReceiverNotReadyRetry, Transition, WcStatus, WorkCompletion,
};
use rustix::event::epoll;
use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

/// Completions of control messages and lanes waiting at once, in all of a context.
const DEPTH: u32 = 4096;
/// Requests posted to lanes at once, in all of a context: the queue holds all their completions and leaves room for
/// control messages.
pub(crate) const IN_FLIGHT_MAX: u32 = 3072;

/// What substitutes share.
pub(crate) struct Service {
    pub(crate) domain: Arc<Domain>,
    pub(crate) completions: Arc<Completions>,
    /// Queue pairs that have a substitute.
    pub(crate) users: Vec<SlabKey>,
    /// Requests posted to lanes and not completed.
    pub(crate) in_flight: u32,
    /// Lanes of targets: which queue pair of ours each number stands for.
    pub(crate) lane_numbers: HashMap<u32, u32>,
    /// The number of the last shared receive queue.
    pub(crate) last_queue_number: u32,
}

/// A descriptor that is readable for a queue's own notifications, for work of the service, and for what the service
/// put into the queue's backlog.
pub(crate) struct Signal {
    all: OwnedFd,
    backlog: OwnedFd,
}

fn refused(error: rustix::io::Errno) -> FabricError {
    FabricError::System { operation: "epoll", reason: error.to_string() }
}

impl Signal {
    pub(crate) fn new(own: BorrowedFd<'_>, service: BorrowedFd<'_>) -> Result<Self, FabricError> {
        use rustix::event::{EventfdFlags, eventfd};
        let all = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(refused)?;
        let backlog = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(refused)?;
        for descriptor in [own, service, backlog.as_fd()] {
            epoll::add(&all, descriptor, epoll::EventData::new_u64(0), epoll::EventFlags::IN).map_err(refused)?;
        }
        Ok(Self { all, backlog })
    }

    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.all.as_fd()
    }

    /// There is something in the backlog.
    pub(crate) fn raise(&self) {
        // Fails only when it is readable already.
        let _ = rustix::io::write(&self.backlog, &1u64.to_ne_bytes());
    }

    pub(crate) fn lower(&self) {
        // Fails only when it is not readable.
        let _ = rustix::io::read(&self.backlog, &mut [0; 8]);
    }
}

impl VerbsContext {
    /// Starts the service with the first object that needs it.
    pub(crate) fn start_service(&mut self) -> Result<(), FabricError> {
        if self.service.is_some() {
            return Ok(());
        }
        let depth = DEPTH.min(self.capabilities.limits.completion_depth_max);
        let completions = Arc::new(Completions::new(&self.adapter, depth)?);
        completions.arm(false)?;
        let keys: Vec<SlabKey> = self.completion_queues.iter().map(|(key, _)| key).collect();
        for key in keys {
            let entry = self.completion_queues.get_mut(key).expect("just listed");
            entry.signal = Some(Signal::new(entry.completions.as_fd(), completions.as_fd())?);
        }
        self.service = Some(Service {
            domain: Arc::new(Domain::new(&self.adapter)?),
            completions,
            users: Vec::new(),
            in_flight: 0,
            lane_numbers: HashMap::new(),
            last_queue_number: 0,
        });
        Ok(())
    }

    /// Carries on with what substitutes have to do.
    pub(crate) fn serve(&mut self) {
        let Some(service) = &self.service else { return };
        let completions = Arc::clone(&service.completions);
        let mut polled = [IbvWc::default(); 64];
        loop {
            // A queue that cannot be polled has nothing; its pairs fail by themselves.
            let count = completions.poll(&mut polled).unwrap_or(0);
            polled[..count].iter().for_each(|completion| self.served(completion));
            if count < polled.len() {
                break;
            }
        }
        for place in 0.. {
            let Some(key) = self.service.as_ref().and_then(|service| service.users.get(place).copied()) else { break };
            self.pump(key);
        }
    }

    fn served(&mut self, completion: &IbvWc) {
        match self.registry.find(completion.wr_id) {
            Some((WorkQueue::Lane(key, queue), slot)) => {
                let key = *key;
                if let Some(entry) = queue.complete(slot) {
                    self.lane_completed(key, entry, status(completion.status));
                }
            }
            Some((WorkQueue::Control(key), slot)) => {
                let key = *key;
                self.control_completed(key, slot, status(completion.status));
            }
            _ => {}
        }
    }

    fn control_completed(&mut self, key: SlabKey, slot: u32, status: WcStatus) {
        if status != WcStatus::Success {
            self.control_failed(key, status);
            return;
        }
        if !Substitute::receive_slots().contains(&slot) {
            return;
        }
        let Some(entry) = self.pairs.get(key) else { return };
        let Some(substitute) = &entry.substitute else { return };
        let message = substitute.read(slot);
        let posted = substitute.post_receive(&entry.pair, slot, entry.sends.request(slot));
        let role_is_target = matches!(substitute.role, Role::Target(_));
        let done = match (message, role_is_target) {
            (Some(control::Message::Open { queue, end, close }), true) => self.open_lane(key, queue, end, close),
            (Some(control::Message::Opened(end)), false) => self.lane_opened(key, end),
            (Some(control::Message::Refused), false) => self.lane_refused(key),
            _ => Err(FabricError::BadEndpoint("the peer's control message makes no sense")),
        };
        if posted.and(done).is_err() {
            self.control_failed(key, WcStatus::BadResponse);
        }
    }

    /// The control connection is lost, and with it the whole.
    fn control_failed(&mut self, key: SlabKey, status: WcStatus) {
        let Some(entry) = self.pairs.get(key) else { return };
        if entry.failed || entry.state == QueuePairState::Error {
            return;
        }
        // The request that waited for an answer ends with the reason.
        self.end_head(key, status);
        self.fail_substitute(key, true);
    }

    /// Sends a control message.
    pub(crate) fn tell(&mut self, key: SlabKey, message: control::Message) -> Result<(), FabricError> {
        let Some(entry) = self.pairs.get_mut(key) else { return Ok(()) };
        let name = entry.sends;
        let Some(substitute) = &mut entry.substitute else { return Ok(()) };
        let (slot, mut list) = substitute.write(message);
        let mut chain = [IbvSendWr {
            wr_id: name.request(slot),
            next: std::ptr::null_mut(),
            sg_list: &raw mut list,
            num_sge: 1,
            opcode: wr::SEND,
            send_flags: send::SIGNALED,
            imm_data: 0,
            wr: IbvSendWrTarget { atomic: IbvSendWrAtomic::default() },
            remote_srqn: 0,
            bind_or_tso: [0; 6],
        }];
        // SAFETY: a chain of one, whose list is `list`; the slot belongs to a region of ours.
        unsafe { entry.pair.post_send(&mut chain) }.map_err(|(_, code)| crate::objects::system("ibv_post_send", code))
    }

    /// A completion for the caller, through the queue's backlog.
    pub(crate) fn deliver(&mut self, queue: CompletionQueue, completion: WorkCompletion) {
        if let Some(entry) = self.completion_queues.get_mut(queue.0) {
            entry.backlog.push_back(completion);
            if let (true, Some(signal)) = (entry.armed, &entry.signal) {
                entry.armed = false;
                signal.raise();
            }
        }
    }

    /// Takes a pair with a substitute to the error state; everything posted is flushed, in order.
    pub(crate) fn fail_substitute(&mut self, key: SlabKey, by_itself: bool) {
        let Some(entry) = self.pairs.get_mut(key) else { return };
        if entry.failed {
            return;
        }
        entry.failed = true;
        entry.state = QueuePairState::Error;
        self.flush(key);
        self.flush_lanes(key);
        if by_itself {
            self.note(AsynchronousEvent::QueuePairError(QueuePair(key)));
        }
        self.pump(key);
    }

    /// [`Context::modify`](fabric::Context::modify) for a pair with a substitute.
    pub(crate) fn modify_substitute(&mut self, qp: QueuePair, transition: &Transition) -> Result<(), FabricError> {
        let state = self.state_of(self.pair(qp)?)?;
        if !transition.fits(state) {
            return Err(FabricError::InvalidState { operation: "modify", state });
        }
        match transition {
            Transition::Init { access, .. } => self.init_substitute(qp, *access, state)?,
            Transition::ReadyToReceive { remote, receiver_not_ready_timer } => {
                self.join_substitute(qp, remote.as_ref(), *receiver_not_ready_timer)?;
            }
            Transition::ReadyToSend { timeout, retry_count, receiver_not_ready_retry } => {
                let entry = self.pairs.get_mut(qp.0).expect("looked up above");
                let (attributes, mask) = ready_to_send(
                    fabric::Transport::ReliableConnection,
                    (entry.sequence_number, 1),
                    *timeout,
                    *retry_count,
                    ReceiverNotReadyRetry::Forever,
                );
                entry.pair.modify(&attributes, mask)?;
                let substitute = entry.substitute.as_mut().expect("the caller looked");
                (substitute.timeout, substitute.retry_count) = (*timeout, *retry_count);
                substitute.receiver_not_ready_retry = *receiver_not_ready_retry;
            }
            Transition::Error => {
                self.fail_substitute(qp.0, false);
                return Ok(());
            }
            Transition::Reset => {
                self.remove_lanes(qp.0);
                let entry = self.pairs.get_mut(qp.0).expect("looked up above");
                let attributes = IbvQpAttr { qp_state: QPS_RESET, ..IbvQpAttr::default() };
                entry.pair.modify(&attributes, qp_attr::STATE)?;
                entry.failed = false;
                self.renew_queues(qp.0);
            }
            Transition::Drain | Transition::Resume => {}
        }
        self.pairs.get_mut(qp.0).expect("looked up above").state = transition.state();
        self.pump(qp.0);
        Ok(())
    }

    fn init_substitute(
        &mut self,
        qp: QueuePair,
        access: fabric::Access,
        from: QueuePairState,
    ) -> Result<(), FabricError> {
        let (attributes, mask) = self.init(true, 0, 0);
        let access = self.remote_access(access);
        let entry = self.pairs.get_mut(qp.0).ok_or(FabricError::NoSuch("queue pair"))?;
        entry.pair.modify(&attributes, mask)?;
        let substitute = entry.substitute.as_mut().expect("the caller looked");
        substitute.access = access;
        if from == QueuePairState::Reset {
            for slot in Substitute::receive_slots() {
                substitute.post_receive(&entry.pair, slot, entry.sends.request(slot))?;
            }
        }
        Ok(())
    }

    fn join_substitute(
        &mut self,
        qp: QueuePair,
        remote: Option<&Endpoint>,
        receiver_not_ready_timer: Duration,
    ) -> Result<(), FabricError> {
        let remote = remote.ok_or(FabricError::InvalidRequest {
            operation: "modify",
            reason: "a connection needs the peer's endpoint",
        })?;
        let address = Address::parse(remote.address_for(DeviceKind::Verbs)?)?;
        if !address.substitute {
            return Err(FabricError::BadEndpoint("the peer's adapter has XRC of its own and ours has none"));
        }
        // Control messages wait for nobody: receives are always posted.
        let attributes = self.receive_attributes(&address, remote.qp().0, receiver_not_ready_timer)?;
        self.pair(qp)?.pair.modify(&attributes, receive_mask())?;
        let entry = self.pairs.get_mut(qp.0).expect("looked up above");
        let substitute = entry.substitute.as_mut().expect("the caller looked");
        (substitute.peer, substitute.receiver_not_ready_timer) = (Some(address), receiver_not_ready_timer);
        Ok(())
    }

    /// Takes the pair of a lane to [`QueuePairState::Init`].
    pub(crate) fn init_lane(&self, pair: &Pair, access: std::ffi::c_int) -> Result<(), FabricError> {
        let (attributes, mask) = self.init(true, access, 0);
        pair.modify(&attributes, mask)
    }
}
