//! Membership that rdma_cm asks for: of the subnet manager on InfiniBand; over Ethernet the kernel answers by itself.
//!
//! ```text
//!   create an identifier, bind it to an address of the port      which port it is on is looked at
//!   join the group ----> kernel ----> subnet manager             as a full member or to send only
//!   MULTICAST_JOIN <---- the group's identifiers, and the way to it
//!   ...
//!   MULTICAST_ERROR <--- only if the subnet manager has forgotten us
//!   destroy the identifier ----> the kernel leaves the group
//! ```

use super::{Role, not_joined};
use crate::choice::{LinkLayer, PortOffer};
use crate::ffi::rdma_cm::{
    PS_UDP, RDMA_CM_DEVICE, RdmaCm, RdmaCmEvent, RdmaCmId, RdmaCmJoinMcAttrEx, RdmaEventChannel, cm_event, join,
};
use crate::ffi::{IbvAhAttr, IbvGid};
use crate::objects::{do_not_block, library_object, name_of};
use fabric::FabricError;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::addr::SocketAddrArg;
use std::ffi::c_int;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::{NonNull, null_mut};
use std::time::{Duration, Instant};

/// How long the subnet manager may take to answer. The kernel itself gives it 3 s.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(10);
/// Local identifiers of groups.
const GROUP_LIDS: std::ops::RangeInclusive<u16> = 0xc000..=0xfffe;
/// The queue pair that stands for all members of a group.
const EVERY_MEMBER: u32 = 0xff_ffff;

/// Where the library says what became of what it was asked.
struct Channel {
    library: &'static RdmaCm,
    raw: NonNull<RdmaEventChannel>,
}

library_object!(Channel);

impl Channel {
    fn open(library: &'static RdmaCm) -> Result<Self, FabricError> {
        // SAFETY: the call has no preconditions.
        let raw = NonNull::new(unsafe { (library.create_event_channel)() })
            .ok_or_else(|| not_joined(format!("{RDMA_CM_DEVICE} cannot be opened: {}", system_error())))?;
        let channel = Self { library, raw };
        do_not_block(channel.as_fd())?;
        Ok(channel)
    }

    /// What the library has to tell next, if anything.
    fn next(&self) -> Result<Option<Told>, FabricError> {
        let mut event = null_mut();
        // SAFETY: the channel exists and does not block.
        if unsafe { (self.library.get_cm_event)(self.raw.as_ptr(), &raw mut event) } != 0 {
            let error = std::io::Error::last_os_error();
            return match error.kind() {
                std::io::ErrorKind::WouldBlock => Ok(None),
                _ => Err(not_joined(format!("rdma_get_cm_event: {error}"))),
            };
        }
        let Some(taken) = NonNull::new(event) else { return Ok(None) };
        // SAFETY: the library made the event and filled it, zero where its kind has nothing to say; it is ours until it
        // is acknowledged. Our identifiers are for datagrams, so that of its union `ud` is the part in use.
        let told = Told::from(unsafe { taken.as_ref() });
        // SAFETY: taken above, acknowledged once, and what was copied out of it holds no pointer into it.
        unsafe { (self.library.ack_cm_event)(taken.as_ptr()) };
        Ok(Some(told))
    }

    /// Sleeps until there is something to take; false if `until` comes first.
    fn wait(&self, until: Instant) -> Result<bool, FabricError> {
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let limit = Timespec::try_from(left).expect("at most some seconds");
            let mut descriptor = [PollFd::new(self, PollFlags::IN)];
            match poll(&mut descriptor, Some(&limit)) {
                Ok(0) => return Ok(false),
                Ok(_) if descriptor[0].revents().contains(PollFlags::IN) => return Ok(true),
                Ok(_) => return Err(not_joined(format!("{RDMA_CM_DEVICE} has failed"))),
                Err(Errno::INTR) => {}
                Err(error) => return Err(not_joined(error.to_string())),
            }
        }
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the channel exists until our Drop, and its descriptor with it.
        unsafe { BorrowedFd::borrow_raw(self.raw.as_ref().fd) }
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        // SAFETY: made once, destroyed once; the one identifier on it is gone, and every event was acknowledged.
        unsafe { (self.library.destroy_event_channel)(self.raw.as_ptr()) };
    }
}

/// What an event says.
enum Told {
    Joined { route: IbvAhAttr, number: u32 },
    Lost { status: c_int },
    Nothing,
}

impl From<&RdmaCmEvent> for Told {
    fn from(event: &RdmaCmEvent) -> Self {
        match event.event {
            cm_event::MULTICAST_JOIN if event.status == 0 => {
                Self::Joined { route: event.ud.ah_attr, number: event.ud.qp_num }
            }
            cm_event::MULTICAST_JOIN | cm_event::MULTICAST_ERROR | cm_event::DEVICE_REMOVAL => {
                Self::Lost { status: event.status }
            }
            _ => Self::Nothing,
        }
    }
}

/// What a request to join came to.
enum Answer {
    Member(IbvAhAttr),
    Refused(String),
}

/// A membership of a group, until it is dropped.
pub(super) struct Joined {
    id: NonNull<RdmaCmId>,
    channel: Channel,
    patience: Duration,
}

library_object!(Joined);

impl Joined {
    /// Joins `group` on `port` from `address`, and returns the way to it; blocks until that is answered.
    pub(super) fn new(
        port: &PortOffer,
        address: SocketAddr,
        group: IpAddr,
        role: Role,
    ) -> Result<(Self, IbvAhAttr), FabricError> {
        let library = RdmaCm::load().map_err(|error| not_joined(error.to_string()))?;
        let unbound = Self::unbound(library, ANSWER_TIME_MAX)?;
        unbound.join(port, address, group, role)
    }

    fn unbound(library: &'static RdmaCm, patience: Duration) -> Result<Self, FabricError> {
        let channel = Channel::open(library)?;
        let mut id = null_mut();
        // SAFETY: the channel exists and is kept for longer than the identifier; `id` is a place for the result.
        let code = unsafe { (library.create_id)(channel.raw.as_ptr(), &raw mut id, null_mut(), PS_UDP) };
        check("rdma_create_id", code)?;
        let id = NonNull::new(id).ok_or_else(|| not_joined("rdma_create_id gave nothing".to_owned()))?;
        Ok(Self { id, channel, patience })
    }

    fn join(
        self,
        port: &PortOffer,
        address: SocketAddr,
        group: IpAddr,
        role: Role,
    ) -> Result<(Self, IbvAhAttr), FabricError> {
        self.bind(address)?;
        self.on(port)?;
        let mut answer = match role {
            Role::Sender => self.ask(group, join::SEND_ONLY_FULL_MEMBER, port)?,
            Role::Member => self.ask(group, join::FULL_MEMBER, port)?,
        };
        if let (Role::Sender, Answer::Refused(_)) = (role, &answer) {
            // Some subnet managers know only members that receive as well.
            answer = self.ask(group, join::FULL_MEMBER, port)?;
        }
        match answer {
            Answer::Member(route) => Ok((self, route)),
            Answer::Refused(why) => Err(not_joined(why)),
        }
    }

    fn bind(&self, address: SocketAddr) -> Result<(), FabricError> {
        // SAFETY: the identifier exists; the library reads from the address what its family says is there.
        let code = unsafe {
            address.with_sockaddr(|start, _| {
                (self.channel.library.bind_addr)(self.id.as_ptr(), start.cast::<libc::sockaddr>().cast_mut())
            })
        };
        check("rdma_bind_addr", code)
    }

    /// Whether the address was one of this port: the group must be joined where the queue pairs are.
    fn on(&self, port: &PortOffer) -> Result<(), FabricError> {
        // SAFETY: the identifier exists until our Drop, and binding it, which is over, wrote what is read here.
        let id = unsafe { self.id.as_ref() };
        // SAFETY: the library keeps the adapter open that the identifier is bound to, and has written what is read here.
        let device = NonNull::new(id.verbs).and_then(|adapter| NonNull::new(unsafe { adapter.as_ref() }.device));
        // SAFETY: the device of an open adapter.
        let adapter = device.map(|device| unsafe { name_of(device) });
        match adapter {
            Some(adapter) if adapter == port.adapter && id.port_num == port.port => Ok(()),
            adapter => {
                let adapter = adapter.as_deref().unwrap_or("no adapter");
                let (there, here) = (id.port_num, format!("{}:{}", port.adapter, port.port));
                Err(not_joined(format!("the address of {here} led rdma_cm to {adapter}:{there}")))
            }
        }
    }

    /// Asks for the group and waits for the answer.
    fn ask(&self, group: IpAddr, join_flags: u32, port: &PortOffer) -> Result<Answer, FabricError> {
        // SAFETY: the identifier exists; the mask names the fields filled, and the library copies the address.
        let code = unsafe {
            SocketAddr::new(group, 0).with_sockaddr(|start, _| {
                let (comp_mask, addr) = (join::ADDRESS | join::JOIN_FLAGS, start.cast::<libc::sockaddr>().cast_mut());
                let mut asked = RdmaCmJoinMcAttrEx { comp_mask, join_flags, addr };
                (self.channel.library.join_multicast_ex)(self.id.as_ptr(), &raw mut asked, null_mut())
            })
        };
        if code != 0 {
            return Ok(Answer::Refused(format!("rdma_join_multicast_ex: {}", system_error())));
        }
        let until = Instant::now() + self.patience;
        while self.channel.wait(until)? {
            match self.channel.next()? {
                Some(Told::Joined { route, number }) => {
                    let route = checked(route, number, port);
                    return route.map(Answer::Member).map_err(|why| not_joined(format!("rdma_cm answered {why}")));
                }
                Some(Told::Lost { status }) => return Ok(Answer::Refused(refusal(status))),
                Some(Told::Nothing) | None => {}
            }
        }
        Err(not_joined(format!("the subnet manager did not answer in {:?}", self.patience)))
    }

    /// Whether the membership has ended by itself since this was asked last.
    pub(super) fn is_lost(&self) -> bool {
        std::iter::from_fn(|| self.channel.next().ok().flatten()).any(|told| matches!(told, Told::Lost { .. }))
    }
}

impl Drop for Joined {
    fn drop(&mut self) {
        // SAFETY: made once, destroyed once; its events were acknowledged as they were taken, so that this does not wait.
        unsafe { (self.channel.library.destroy_id)(self.id.as_ptr()) };
    }
}

/// The way to a group, if it is one that a queue pair of this port can be attached by.
fn checked(mut route: IbvAhAttr, number: u32, port: &PortOffer) -> Result<IbvAhAttr, &'static str> {
    if !is_group(route.grh.dgid.0) || route.is_global == 0 || number != EVERY_MEMBER {
        return Err("with the way to no group");
    }
    if route.port_num != port.port {
        return Err("with the way from another port");
    }
    match port.link_layer {
        LinkLayer::InfiniBand if !GROUP_LIDS.contains(&route.dlid) => {
            return Err("with a local identifier that is no group's");
        }
        LinkLayer::InfiniBand => {}
        LinkLayer::Ethernet => (route.dlid, route.sl) = (0, 0),
    }
    Ok(route)
}

fn is_group(gid: IbvGid) -> bool {
    let address = Ipv6Addr::from(gid);
    address.is_multicast() || address.to_ipv4_mapped().is_some_and(|address| address.is_multicast())
}

/// What a status other than 0 means: the kernel's are negative.
fn refusal(status: c_int) -> String {
    match status {
        ..0 => format!("refused: {}", std::io::Error::from_raw_os_error(status.saturating_neg())),
        _ => format!("refused with status {status}"),
    }
}

/// The library's "0, or -1 and an error number".
fn check(operation: &'static str, code: c_int) -> Result<(), FabricError> {
    if code == 0 { Ok(()) } else { Err(not_joined(format!("{operation}: {}", system_error()))) }
}

fn system_error() -> std::io::Error {
    std::io::Error::last_os_error()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::choice::{Gid, GidKind};
    use crate::ffi::rdma_cm::{RDMA_CM_LIBRARY, RdmaUdParam};
    use crate::ffi::{IbvGidAligned, IbvGlobalRoute};
    use crate::multicast::scripted::{LIBRARY, PORT, Script, Step, script};

    fn port(link_layer: LinkLayer) -> PortOffer {
        let gid = Gid { index: 0, bytes: [0xfe; 16], kind: GidKind::InfiniBand, interface: 0 };
        PortOffer {
            adapter: "mlx5_0".into(),
            port: 2,
            link_layer,
            lid: 7,
            mtu: 5,
            gid,
            partition: 0xffff,
            partition_index: 0,
        }
    }

    /// As a subnet manager would have it for 239.1.2.3.
    fn route() -> IbvAhAttr {
        let dgid = [0xff, 0x12, 0x40, 0x01, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0x0f, 1, 2, 3];
        let grh = IbvGlobalRoute { dgid: IbvGidAligned(dgid), ..IbvGlobalRoute::default() };
        IbvAhAttr { grh, dlid: 0xc004, sl: 3, is_global: 1, port_num: PORT, ..IbvAhAttr::default() }
    }

    #[test]
    fn only_the_way_to_a_group_from_this_port_is_taken() {
        let infiniband = |route, number| checked(route, number, &port(LinkLayer::InfiniBand));
        let good = infiniband(route(), EVERY_MEMBER).unwrap();
        assert_eq!((good.dlid, good.sl, good.grh.dgid.0[15]), (0xc004, 3, 3));
        let mut host = route();
        host.grh.dgid.0[0] = 0xfe;
        for (wrong, number, why) in [
            (host, EVERY_MEMBER, "no group"),
            (route(), 17, "no group"),
            (IbvAhAttr { is_global: 0, ..route() }, EVERY_MEMBER, "no group"),
            (IbvAhAttr { port_num: 1, ..route() }, EVERY_MEMBER, "another port"),
            (IbvAhAttr { dlid: 4, ..route() }, EVERY_MEMBER, "no group's"),
            (IbvAhAttr { dlid: 0xffff, ..route() }, EVERY_MEMBER, "no group's"),
        ] {
            assert!(infiniband(wrong, number).is_err_and(|reason| reason.contains(why)), "{why}");
        }
        let ethernet = checked(route(), EVERY_MEMBER, &port(LinkLayer::Ethernet)).unwrap();
        assert_eq!((ethernet.dlid, ethernet.sl), (0, 0), "there are no such things");
    }

    #[test]
    fn events_are_joins_losses_or_nothing() {
        let event = |event: u32, status: c_int| {
            let ud = RdmaUdParam {
                private_data: std::ptr::null(),
                private_data_len: 0,
                ah_attr: route(),
                qp_num: EVERY_MEMBER,
                qkey: 0,
            };
            Told::from(&RdmaCmEvent { id: null_mut(), listen_id: null_mut(), event, status, ud })
        };
        let joined = event(cm_event::MULTICAST_JOIN, 0);
        assert!(matches!(joined, Told::Joined { number: EVERY_MEMBER, route } if route.dlid == 0xc004));
        for (kind, status) in [
            (cm_event::MULTICAST_JOIN, -libc::EINVAL),
            (cm_event::MULTICAST_ERROR, -libc::ENETRESET),
            (cm_event::DEVICE_REMOVAL, 0),
        ] {
            assert!(matches!(event(kind, status), Told::Lost { status: told } if told == status), "{kind}");
        }
        for other in [0, 14, 1000] {
            assert!(matches!(event(other, 0), Told::Nothing), "{other}");
        }
        assert!(refusal(-libc::ETIMEDOUT).starts_with("refused: Connection timed out"));
        assert_eq!(refusal(7), "refused with status 7");
        assert!(refusal(c_int::MIN).starts_with("refused: "));
    }

    /// Joins where the library does `steps`, and sees to it that nothing is left.
    fn join_as_told(role: Role, steps: &[Step]) -> (Result<(u16, bool), String>, Vec<u32>) {
        script(|script| {
            *script = Script { steps: steps.iter().copied().collect(), adapter: "mlx5_0", ..Script::default() }
        });
        let unbound = Joined::unbound(&LIBRARY, Duration::from_millis(20)).unwrap();
        let group = IpAddr::from([239, 1, 2, 3]);
        let joined = unbound.join(&port(LinkLayer::InfiniBand), ([10, 0, 0, 1], 0).into(), group, role);
        let outcome = joined.map(|(joined, route)| (route.dlid, joined.is_lost())).map_err(|error| error.to_string());
        let (flags, alive) = script(|script| (script.flags.clone(), script.alive));
        assert_eq!(alive, [0; 3], "channels, identifiers, events");
        (outcome, flags)
    }

    #[test]
    fn what_a_subnet_manager_may_answer() {
        let yes = Step::Event(cm_event::MULTICAST_JOIN, 0, route());
        let no = Step::Event(cm_event::MULTICAST_ERROR, -libc::EINVAL, IbvAhAttr::default());
        let old_kernel = Step::Fails(libc::EOPNOTSUPP);
        let (full, send_only) = (join::FULL_MEMBER, join::SEND_ONLY_FULL_MEMBER);
        let good = Ok((0xc004, false));
        assert_eq!(join_as_told(Role::Member, &[yes]), (good.clone(), vec![full]));
        assert_eq!(join_as_told(Role::Sender, &[yes]), (good.clone(), vec![send_only]));
        for refused in [no, old_kernel] {
            assert_eq!(join_as_told(Role::Sender, &[refused, yes]), (good.clone(), vec![send_only, full]));
        }
        let stray = Step::Event(cm_event::MULTICAST_JOIN, 0, IbvAhAttr { dlid: 4, ..route() });
        for (role, steps, why) in [
            (Role::Member, &[no][..], "refused: Invalid argument"),
            (Role::Sender, &[no, no], "refused: Invalid argument"),
            (
                Role::Member,
                &[Step::Fails(libc::EADDRNOTAVAIL)],
                "rdma_join_multicast_ex: Cannot assign requested address",
            ),
            (Role::Member, &[Step::Silence], "the subnet manager did not answer in 20ms"),
            (Role::Sender, &[Step::Silence], "the subnet manager did not answer in 20ms"),
            (Role::Member, &[Step::Event(14, 0, route())], "did not answer"),
            (Role::Sender, &[stray], "rdma_cm answered with a local identifier that is no group's"),
        ] {
            let (outcome, flags) = join_as_told(role, steps);
            assert!(outcome.as_ref().is_err_and(|error| error.contains(why)), "{why}: {outcome:?}");
            assert_eq!(flags.len(), steps.len(), "{why}");
        }
    }

    #[test]
    fn another_adapter_s_address_is_refused_before_anything_is_asked() {
        script(|script| *script = Script { adapter: "mlx5_1", ..Script::default() });
        let unbound = Joined::unbound(&LIBRARY, Duration::ZERO).unwrap();
        let group = IpAddr::from([239, 1, 2, 3]);
        let joined = unbound.join(&port(LinkLayer::InfiniBand), ([10, 0, 0, 1], 0).into(), group, Role::Member);
        let error = joined.map(drop).unwrap_err().to_string();
        assert!(error.ends_with("the address of mlx5_0:2 led rdma_cm to mlx5_1:2"), "{error}");
        assert_eq!(script(|script| (script.flags.len(), script.alive)), (0, [0; 3]));
    }

    #[test]
    fn without_rdma_cm_the_error_names_what_is_missing() {
        let group = IpAddr::from([239, 1, 2, 3]);
        match Joined::new(&port(LinkLayer::InfiniBand), ([127, 0, 0, 1], 0).into(), group, Role::Member) {
            Ok(_) => panic!("there is no such port"),
            Err(_) if std::path::Path::new(RDMA_CM_DEVICE).exists() => println!("skipped: rdma_cm is there"),
            Err(error) => {
                let text = error.to_string();
                let named = [RDMA_CM_LIBRARY, RDMA_CM_DEVICE].iter().any(|name| text.contains(name));
                assert!(text.starts_with("joining a multicast group: ") && named, "{text}");
            }
        }
    }
}
