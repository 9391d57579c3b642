//! The process manager behind a world, as `mpi-core` sees it.

use std::cell::Cell;
use std::sync::{Mutex, MutexGuard, PoisonError};

use base::Config;
use base::config::DeviceChoice;
use base::ending;
use mpi_core::environment::Hardware;
use mpi_core::{ProcessManager, RankReport};
use pmi::{Client, PmiError, Timeouts};

use crate::hosts::Hosts;
use crate::{BootError, ways};

/// Whoever started this process, or nobody.
pub(crate) struct Manager {
    /// Gone once the launcher has been told of the end.
    client: Mutex<Option<Client>>,
    world: Option<pmi::World>,
    hosts: Hosts,
    /// What carries messages, once that is known.
    device: Cell<DeviceChoice>,
    /// Counters are shown at the end.
    stats: bool,
}

impl Manager {
    /// Finds and greets the launcher that the environment names.
    pub(crate) fn from_environment(config: &Config) -> Result<Self, BootError> {
        let variable = |name: &str| std::env::var(name).ok();
        let client = Client::from_env_with(variable, base::descriptor::inherited, Timeouts::default())?;
        let world = client.as_ref().map(|client| client.world().clone());
        // Without a word of the launcher's all are on one host.
        let nodes = world.as_ref().map_or(vec![0], |world| world.nodes().unwrap_or(vec![0; world.size as usize]));
        let hosts = Hosts::new(nodes, config.host_ranks_max);
        let device = Cell::new(config.device);
        Ok(Self { client: Mutex::new(client), world, hosts, device, stats: config.stats })
    }

    pub(crate) fn rank(&self) -> u32 {
        self.world.as_ref().map_or(0, |world| world.rank)
    }

    pub(crate) fn size(&self) -> u32 {
        self.world.as_ref().map_or(1, |world| world.size)
    }

    /// From now on so many ranks of a host, at most, are treated as being on it.
    pub(crate) fn limit_hosts(&mut self, ranks_max: u32) {
        self.hosts = self.hosts.limited(ranks_max);
    }

    /// Messages go over `device`.
    pub(crate) fn use_device(&self, device: DeviceChoice) {
        self.device.set(device);
    }

    /// Which ranks share a host.
    pub(crate) fn hosts(&self) -> &Hosts {
        &self.hosts
    }

    pub(crate) fn put(&self, key: &str, value: &str) -> Result<(), BootError> {
        self.ask(|client| client.put(key, value))
    }

    pub(crate) fn barrier(&self) -> Result<(), BootError> {
        self.ask(Client::barrier)
    }

    pub(crate) fn get(&self, key: &str) -> Result<String, BootError> {
        self.ask(|client| client.get(key))
    }

    pub(crate) fn get_all(&self, keys: &[String]) -> Result<Vec<String>, BootError> {
        self.ask(|client| client.get_all(keys))
    }

    fn client(&self) -> MutexGuard<'_, Option<Client>> {
        self.client.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ask<T>(&self, question: impl FnOnce(&mut Client) -> Result<T, PmiError>) -> Result<T, BootError> {
        Ok(question(self.client().as_mut().expect("only a job of several processes has questions"))?)
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        // For a launcher the end of the connection is the death of the process, and of the job with it. One that could not
        // start has yet to say why; what is not over lasts as long as the process.
        std::mem::forget(self.client().take());
    }
}

impl ProcessManager for Manager {
    fn abort(&self, code: i32, message: &str) -> ! {
        if !message.is_empty() {
            ending::say(message);
        }
        // An error while the launcher is being asked something: the wire is busy, but our end tells it enough.
        if let Ok(mut client) = self.client.try_lock()
            && let Some(client) = client.as_mut()
        {
            let _ = client.abort(code, message);
        }
        ending::exit(code)
    }

    fn finalize(&self) -> Result<(), String> {
        match self.client().take() {
            Some(client) => client.finalize().map_err(|error| error.to_string()),
            None => Ok(()),
        }
    }

    fn wants_report(&self) -> bool {
        self.stats
    }

    fn report(&self, ranks: &[RankReport]) {
        // One write, so that it does not mix with what others print.
        let way = |one, other| ways::way(self.device.get(), &self.hosts, one, other);
        eprint!("{}", crate::report::text(ranks, self.size(), self.device.get().name(), way));
    }

    fn appnum(&self) -> Option<i32> {
        self.world.as_ref().map(|world| world.appnum).filter(|number| *number >= 0)
    }

    fn universe_size(&self) -> Option<i32> {
        self.world.as_ref()?.universe_size.and_then(|size| i32::try_from(size).ok())
    }

    fn processor_name(&self) -> String {
        mpi_core::environment::processor_name()
    }

    fn hardware(&self) -> Hardware {
        crate::hardware::hardware()
    }

    fn node_key(&self) -> u64 {
        self.hosts.first_mate(self.rank()).into()
    }
}
