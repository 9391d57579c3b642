//! Adapters that are there, and the one to use.

use crate::choice::{Gid, LinkLayer, Port, PortOffer, Rejection, Wanted, gid_kind, offers, unasked};
use crate::context::VerbsContext;
use crate::ffi::numbers::{LINK_LAYER_ETHERNET, LINK_LAYER_INFINIBAND, PORT_ACTIVE, TRANSPORT_IB};
use crate::ffi::{IbvGidEntry, IbvPortAttr, LoadError, Verbs};
use crate::multicast::Way;
use crate::objects::{Adapter, name_of, system};
use fabric::{Capabilities, Context, Device, FabricError};
use std::ptr::NonNull;
use std::sync::Arc;

/// Ports of one adapter that are looked at; adapters have one or two.
const PORTS_MAX: u8 = 32;

/// Why there is no adapter to use. Each is one line for the user.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NoDevice {
    /// rdma-core is not installed.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The kernel knows of no adapter.
    #[error("no RDMA adapter on this machine")]
    NoAdapter,
    /// There are some, and none will do.
    #[error("{}", listed(.0))]
    AllRejected(Vec<Rejection>),
    /// The library failed.
    #[error(transparent)]
    Fabric(#[from] FabricError),
}

fn listed(rejections: &[Rejection]) -> String {
    rejections.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

/// The adapters of this machine, looked at and not yet in use.
pub struct Survey {
    adapters: Vec<(String, Arc<Adapter>)>,
    offers: Vec<PortOffer>,
    rejections: Vec<Rejection>,
}

impl Survey {
    /// Looks at every port of every adapter.
    ///
    /// # Errors
    /// [`NoDevice::Load`] and [`NoDevice::NoAdapter`].
    pub fn new(wanted: &Wanted) -> Result<Self, NoDevice> {
        let verbs = Verbs::load()?;
        let (adapters, mut rejections) = open_all(verbs)?;
        let mut ports = Vec::new();
        for (name, adapter) in &adapters {
            match ports_of(name, adapter) {
                Ok(found) => ports.extend(found),
                Err(error) => {
                    rejections.push(Rejection { adapter: name.clone(), port: None, reason: error.to_string() });
                }
            }
        }
        let (offers, refused) = offers(&ports, wanted);
        rejections.extend(refused);
        Ok(Self { adapters, offers, rejections })
    }

    /// Ways to reach others, best first: the table that processes exchange.
    pub fn offers(&self) -> &[PortOffer] {
        &self.offers
    }

    /// Ports that are not used.
    pub fn rejections(&self) -> &[Rejection] {
        &self.rejections
    }

    /// Offers only what may be taken unasked: ports whose network says who is reached, and in whose device `trial` finds
    /// no fault. The others are rejected.
    pub fn offer_unasked(&mut self, mut trial: impl FnMut(VerbsDevice) -> Result<(), String>) {
        let all = std::mem::take(&mut self.offers);
        let (left, refused) =
            unasked(all, |offer| trial(self.device_of(offer).map_err(|why| NoDevice::from(why).to_string())?));
        self.offers = left;
        self.rejections.extend(refused);
    }

    /// The device behind line `place` of the table.
    ///
    /// # Errors
    /// [`NoDevice::AllRejected`] if there is no such line; [`NoDevice::Fabric`] if the adapter refuses to tell its
    /// limits.
    pub fn device(&self, place: usize) -> Result<VerbsDevice, NoDevice> {
        let offer = self.offers.get(place).ok_or_else(|| NoDevice::AllRejected(self.rejections.clone()))?;
        Ok(self.device_of(offer)?)
    }

    fn device_of(&self, offer: &PortOffer) -> Result<VerbsDevice, FabricError> {
        let (_, adapter) =
            self.adapters.iter().find(|(name, _)| *name == offer.adapter).expect("offers come from here");
        let way_to_groups = Way::of(offer, adapter.attributes()?.max_mcast_grp);
        let capabilities = crate::limits::capabilities(adapter, offer, way_to_groups.is_ok())?;
        let notes = crate::limits::notes(adapter, way_to_groups);
        Ok(VerbsDevice { adapter: Arc::clone(adapter), offer: offer.clone(), capabilities, notes, way_to_groups })
    }
}

/// One port of one adapter, found and not yet in use.
pub struct VerbsDevice {
    adapter: Arc<Adapter>,
    offer: PortOffer,
    capabilities: Capabilities,
    notes: Vec<String>,
    way_to_groups: Result<Way, &'static str>,
}

impl VerbsDevice {
    /// The best port of this machine that `wanted` allows.
    ///
    /// # Errors
    /// Why there is none.
    pub fn find(wanted: &Wanted) -> Result<Self, NoDevice> {
        Survey::new(wanted)?.device(0)
    }

    /// The way it reaches others.
    pub fn offer(&self) -> &PortOffer {
        &self.offer
    }

    /// What stands behind its abilities and why it lacks some: one line each, for people.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// The same, joining groups through rdma_cm as on InfiniBand: for tests, which have Ethernet.
    #[doc(hidden)]
    pub fn joining_by_rdma_cm(self) -> Self {
        let way_to_groups = self.way_to_groups.map(|way| way.by_rdma_cm(&self.offer));
        Self { way_to_groups, ..self }
    }
}

impl Device for VerbsDevice {
    fn capabilities(&self) -> Capabilities {
        self.capabilities.clone()
    }

    fn open(self: Box<Self>) -> Result<Box<dyn Context>, FabricError> {
        Ok(Box::new(VerbsContext::new(self.adapter, self.offer, self.capabilities, self.way_to_groups)?))
    }
}

/// Opens every adapter; those that cannot be opened are rejected.
#[expect(clippy::type_complexity, reason = "two lists, taken apart at once")]
fn open_all(verbs: &'static Verbs) -> Result<(Vec<(String, Arc<Adapter>)>, Vec<Rejection>), NoDevice> {
    // A child that this process forks must not take pinned pages away from the adapter. Kernels since 5.12 see to it by
    // themselves; with older ones that refuse, only programs that fork are worse off.
    // SAFETY: no region is registered before the first survey, which is all the call asks for.
    let _ = unsafe { (verbs.fork_init)() };
    let mut count = 0;
    // SAFETY: the library gives a list of so many adapters, or nothing.
    let list = unsafe { (verbs.get_device_list)(&raw mut count) };
    if list.is_null() {
        let code = std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::ENOSYS);
        // A kernel without RDMA is a machine without adapters.
        return Err(if code == libc::ENOSYS {
            NoDevice::NoAdapter
        } else {
            system("ibv_get_device_list", code).into()
        });
    }
    let (mut adapters, mut rejections) = (Vec::new(), Vec::new());
    for place in 0..usize::try_from(count).unwrap_or(0) {
        // SAFETY: the list has so many entries.
        let Some(device) = NonNull::new(unsafe { *list.add(place) }) else { continue };
        // SAFETY: devices of the list live until it is freed.
        let name = unsafe { name_of(device) };
        // SAFETY: as above.
        let transport = unsafe { device.as_ref() }.transport_type;
        if transport != TRANSPORT_IB {
            let reason = "neither InfiniBand nor RoCE (connections need rdma_cm)".to_owned();
            rejections.push(Rejection { adapter: name, port: None, reason });
            continue;
        }
        // SAFETY: as above; an open context outlives the list.
        match NonNull::new(unsafe { (verbs.open_device)(device.as_ptr()) }) {
            // SAFETY: just opened by this library.
            Some(raw) => adapters.push((name, Arc::new(unsafe { Adapter::from_raw(verbs, raw) }))),
            None => {
                let reason = format!("cannot be opened: {}", std::io::Error::last_os_error());
                rejections.push(Rejection { adapter: name, port: None, reason });
            }
        }
    }
    // SAFETY: the list was made above and is freed once; opened devices hold what they need.
    unsafe { (verbs.free_device_list)(list) };
    if adapters.is_empty() && rejections.is_empty() { Err(NoDevice::NoAdapter) } else { Ok((adapters, rejections)) }
}

fn ports_of(name: &str, adapter: &Adapter) -> Result<Vec<Port>, FabricError> {
    let count = adapter.attributes()?.phys_port_cnt.min(PORTS_MAX);
    let found: Vec<(u8, IbvPortAttr)> =
        (1..=count).map(|number| Ok((number, adapter.port(number)?))).collect::<Result<_, FabricError>>()?;
    let entries_max = found.iter().map(|(_, port)| usize::try_from(port.gid_tbl_len).unwrap_or(0)).sum();
    let gids = adapter.gids(entries_max)?;
    Ok(found.into_iter().map(|(number, port)| described(name, adapter, number, &port, &gids)).collect())
}

fn described(name: &str, adapter: &Adapter, number: u8, port: &IbvPortAttr, gids: &[IbvGidEntry]) -> Port {
    let gid = |entry: &IbvGidEntry| {
        Some(Gid {
            index: entry.gid_index,
            bytes: entry.gid,
            kind: gid_kind(entry.gid_type)?,
            interface: entry.ndev_ifindex,
        })
    };
    Port {
        adapter: name.to_owned(),
        number,
        active: port.state == PORT_ACTIVE,
        link_layer: match port.link_layer {
            LINK_LAYER_INFINIBAND => Some(LinkLayer::InfiniBand),
            LINK_LAYER_ETHERNET => Some(LinkLayer::Ethernet),
            // Providers from before RoCE leave it unspecified.
            0 => Some(LinkLayer::InfiniBand),
            _ => None,
        },
        lid: port.lid,
        mtu: u8::try_from(port.active_mtu).unwrap_or(1).clamp(1, 5),
        gids: gids.iter().filter(|entry| entry.port_num == u32::from(number)).filter_map(gid).collect(),
        partitions: adapter.partitions(number, port.pkey_tbl_len),
    }
}
