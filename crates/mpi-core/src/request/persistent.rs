//! Persistent operations: made once, started any number of times.
//!
//! MPI: §3.9, §6.13

use std::sync::Arc;

use collectives::Schedule;
use datatype::{Datatype, UserMemory, UserMemoryMut};
use engine::{PeerId, Source, TagPattern};

use super::{Persistent, Request, RequestSet, State};
use crate::collective::Arguments;
use crate::communicator::Comm;
use crate::error::{ErrorClass, Result};
use crate::partitioned::Partitioned;
use crate::point_to_point::Mode;
use crate::status::Status;
use crate::world::World;

/// What a start does.
pub(crate) enum Template {
    Send {
        mode: Mode,
        peer: PeerId,
        to: u32,
        tag: i32,
        elements: Elements<UserMemory>,
    },
    Receive {
        source: i32,
        from: Source,
        tag: TagPattern,
        elements: Elements<UserMemoryMut>,
    },
    Collective {
        schedule: Arc<Schedule>,
        arguments: Arguments,
        tag: i32,
    },
    Partitioned(Partitioned),
    /// Communication with `PROC_NULL`.
    Nothing(Status),
}

/// Memory a start reads or writes.
pub(crate) struct Elements<M> {
    pub memory: M,
    pub count: u64,
    pub datatype: Arc<Datatype>,
}

impl Request {
    pub(crate) fn persistent(comm: &Arc<Comm>, template: Template, call: &'static str) -> Request {
        let persistent = Persistent { template, active: None, comm: Arc::clone(comm) };
        Request { state: State::Persistent(Box::new(persistent)), call }
    }
}

impl World {
    /// Starts all requests of `set`.
    ///
    /// # Errors
    /// `Request` when one is not persistent or active already, and what its operation says; those
    /// before it have been started.
    ///
    /// MPI: §3.9 `MPI_Start`, `MPI_Startall`
    pub fn start_all(&self, set: &impl RequestSet) -> Result<()> {
        for index in 0..set.len() {
            match set.with(index, |request| self.start(request)) {
                Some(started) => started?,
                None => return ErrorClass::Request.fail(format!("request {index} is MPI_REQUEST_NULL")),
            }
        }
        // Collectives have only been put among the operations in flight: their reductions may call
        // the user, which must not happen while a request is lent out.
        if !self.operations.is_empty() {
            self.progress();
        }
        Ok(())
    }

    fn start(&self, request: &mut Request) -> Result<()> {
        let call = request.call;
        let State::Persistent(persistent) = &mut request.state else {
            return ErrorClass::Request.fail(format!("the request of {call} is not persistent and cannot be started"));
        };
        if persistent.active.is_some() {
            return ErrorClass::Request.fail(format!("the request of {call} has been started already"));
        }
        let comm = &persistent.comm;
        persistent.active = Some(match &persistent.template {
            Template::Send { mode, peer, to, tag, elements } => {
                let buf = elements.memory.send(0, elements.count, &elements.datatype);
                self.start_send(*mode, comm, *peer, *to, *tag, buf, call)?
            }
            Template::Receive { source, from, tag, elements } => {
                let buf = elements.memory.recv(0, elements.count, &elements.datatype);
                self.start_receive(comm, *source, *from, *tag, buf, call)?
            }
            Template::Collective { schedule, arguments, tag } => {
                self.run_in_background(comm, Arc::clone(schedule), arguments.clone(), *tag, call)?
            }
            Template::Partitioned(partitioned) => partitioned.start(self, comm, call),
            Template::Nothing(status) => Request::finished(*status, call),
        });
        Ok(())
    }
}
