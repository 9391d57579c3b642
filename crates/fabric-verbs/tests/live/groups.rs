//! Groups joined through rdma_cm, as on InfiniBand. Here the kernel answers in the subnet manager's stead.

use crate::side::{Side, best, opened};
use fabric::{
    AddressHandle, AsynchronousEvent, ConnectOptions, DatagramAddress, Destination, Device, FabricError,
    MulticastGroup, Operation, Payload, Qkey, QpNumber, QueuePair, QueuePairAttributes, ReceiveRequest, SendRequest,
    Transport, WcStatus, WorkCompletion,
};
use fabric_verbs::VerbsDevice;
use fabric_verbs::choice::{LinkLayer, PortOffer, Wanted};
use std::process::Command;
use std::sync::Mutex;
use std::time::Duration;

const QKEY: Qkey = Qkey(0x2b);
/// 239.7.8.9.
const GROUP: MulticastGroup = MulticastGroup([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 239, 7, 8, 9]);
/// The tests count what a process and its host have joined.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
const DEVICE: &str = "/dev/infiniband/rdma_cm";
/// The adapter that is taken from a process.
const DOOMED: &str = "FERROVIA_TEST_DOOMED";
/// Set for a process whose device file is hidden.
const HIDDEN: &str = "FERROVIA_TEST_HIDDEN";

/// A device that joins through rdma_cm, unless there is none or this is no place for it.
fn device(wanted: &Wanted) -> Option<VerbsDevice> {
    let found = best()?.offer().clone();
    let wanted = Wanted { adapter: Some(found.adapter), port: Some(found.port), ..wanted.clone() };
    let device = VerbsDevice::find(&wanted).unwrap();
    if !device.capabilities().multicast {
        println!("skipped: no multicast: {:?}", device.notes());
        return None;
    }
    if !std::path::Path::new(DEVICE).exists() {
        println!("skipped: no {DEVICE}");
        return None;
    }
    Some(device.joining_by_rdma_cm())
}

/// A sender, and a receiver of two queue pairs, whose receives are 0 to 2 and 10 to 12.
struct Speech {
    sender: Side,
    receiver: Side,
    members: [QueuePair; 2],
    offer: PortOffer,
}

impl Speech {
    fn new() -> Option<Self> {
        let (sender, receiver) = (device(&Wanted::default())?, device(&Wanted::default())?);
        let offer = sender.offer().clone();
        let [sender, mut receiver] = [sender, receiver].map(|device| Side::on(opened(device), datagrams));
        let mut attributes = QueuePairAttributes::new(receiver.domain, receiver.completions);
        datagrams(&mut attributes);
        let members = [receiver.qp, receiver.context.create_queue_pair(&attributes).unwrap()];
        let mut speech = Self { sender, receiver, members, offer };
        let options = ConnectOptions { qkey: QKEY, ..ConnectOptions::default() };
        fabric::connect(&mut *speech.sender.context, speech.sender.qp, None, &options).unwrap();
        for (qp, first) in members.into_iter().zip([0, 10]) {
            fabric::connect(&mut *speech.receiver.context, qp, None, &options).unwrap();
            for id in first..first + 3 {
                let list = [speech.receiver.region.part(200 * id, 200)];
                assert_eq!(speech.receiver.context.post_receive(qp, &[ReceiveRequest { id, list: &list }]), Ok(1));
            }
        }
        Some(speech)
    }

    /// Says something to the group; receives `heard` and no others take it.
    fn say(&mut self, address: AddressHandle, heard: &[u64]) {
        let destination = Destination::Datagram { address, qp: QpNumber(0), qkey: QKEY };
        let say = SendRequest::new(9, Operation::Send, Payload::Inline(b"to all"));
        self.sender.send(SendRequest { destination, ..say });
        self.sender.completed(9);
        let header = self.receiver.context.capabilities().limits.datagram_header_bytes;
        let mut arrived: Vec<_> = heard.iter().map(|_| self.receiver.next()).collect();
        arrived.sort_unstable_by_key(|completion| completion.id);
        for (completion, id) in arrived.iter().zip(heard) {
            let expected = (*id, WcStatus::Success, u64::from(header) + 6);
            assert_eq!((completion.id, completion.status, completion.bytes), expected);
            let at = 200 * *id as usize + header as usize;
            assert_eq!(self.receiver.memory[at..at + 6], *b"to all");
        }
        std::thread::sleep(Duration::from_millis(100));
        assert_eq!(self.receiver.context.poll(self.receiver.completions, &mut [WorkCompletion::default()]), Ok(0));
        assert_eq!(self.receiver.context.next_event(), None);
    }

    fn attach(&mut self, place: usize) {
        self.receiver.context.attach_multicast(self.members[place], GROUP).unwrap();
    }

    fn detach(&mut self, place: usize) {
        self.receiver.context.detach_multicast(self.members[place], GROUP).unwrap();
        let gone = self.receiver.context.detach_multicast(self.members[place], GROUP);
        assert!(matches!(gone, Err(FabricError::NoSuch(_))), "{gone:?}");
    }

    /// Whether this host takes what is sent to the group, as far as its kernel tells.
    fn is_member(&self) -> Option<bool> {
        (self.offer.link_layer == LinkLayer::Ethernet).then(|| host_is_member(self.offer.gid.interface))
    }
}

fn datagrams(attributes: &mut QueuePairAttributes) {
    attributes.transport = Transport::UnreliableDatagram;
}

/// Whether the kernel's list of groups has ours on that interface.
fn host_is_member(interface: u32) -> bool {
    let all = std::fs::read_to_string("/proc/net/igmp").unwrap();
    let wanted = format!("{:08X}", u32::from_ne_bytes([239, 7, 8, 9]));
    // A line of an interface starts with its number, and those of its groups with white space.
    let mut current = None;
    all.lines().any(|line| {
        let first = line.split_whitespace().next().unwrap_or_default();
        if !line.starts_with(char::is_whitespace) {
            current = first.parse().ok();
        }
        current == Some(interface) && first == wanted
    })
}

/// Memberships of this process: each has the device file open.
fn memberships() -> usize {
    let open = std::fs::read_dir("/proc/self/fd").unwrap();
    let link = |entry: std::io::Result<std::fs::DirEntry>| std::fs::read_link(entry.ok()?.path()).ok();
    open.filter_map(link).filter(|path| path.as_os_str() == DEVICE).count()
}

#[test]
fn members_that_rdma_cm_joined_are_reached_until_they_leave() {
    let _alone = ONE_AT_A_TIME.lock();
    let Some(mut speech) = Speech::new() else { return };
    let domain = speech.sender.domain;
    let address = speech.sender.context.create_address_handle(domain, DatagramAddress::Multicast(GROUP)).unwrap();
    assert_eq!(memberships(), 1, "who sends joins");
    assert_ne!(speech.is_member(), Some(true));
    speech.say(address, &[]);
    speech.attach(0);
    speech.attach(1);
    speech.attach(1);
    assert_eq!(memberships(), 2, "the queue pairs share one");
    assert_ne!(speech.is_member(), Some(false));
    speech.say(address, &[0, 10]);
    speech.detach(0);
    assert_ne!(speech.is_member(), Some(false));
    speech.say(address, &[11]);
    speech.detach(1);
    assert_ne!(speech.is_member(), Some(true));
    speech.say(address, &[]);
    // Whoever goes leaves.
    speech.attach(0);
    speech.attach(1);
    speech.receiver.context.destroy_queue_pair(speech.members[0]).unwrap();
    speech.say(address, &[12]);
    speech.receiver.context.destroy_queue_pair(speech.members[1]).unwrap();
    assert_ne!(speech.is_member(), Some(true));
    speech.sender.context.destroy_address_handle(address).unwrap();
    assert_eq!(memberships(), 0);
    speech.sender.context.create_address_handle(domain, DatagramAddress::Multicast(GROUP)).unwrap();
    speech.sender.context.attach_multicast(speech.sender.qp, GROUP).unwrap();
    let interface = speech.offer.gid.interface;
    drop(speech);
    assert!(!host_is_member(interface) && memberships() == 0, "a context leaves nothing behind");
}

#[test]
fn a_link_local_address_is_one_to_join_from() {
    let _alone = ONE_AT_A_TIME.lock();
    // As on InfiniBand, where the address is that of the interface.
    let Some(device) = device(&Wanted { gid_index: Some(0), ..Wanted::default() }) else { return };
    println!("joins from {:?}", device.offer().gid);
    let mut side = Side::on(opened(device), datagrams);
    side.context.attach_multicast(side.qp, GROUP).unwrap();
    side.context.detach_multicast(side.qp, GROUP).unwrap();
}

/// Not a test of its own: joins where the device file is hidden.
#[test]
fn joins_without_the_device_file() {
    if std::env::var_os(HIDDEN).is_none() {
        return;
    }
    let device = device(&Wanted::default()).unwrap();
    let mut side = Side::on(opened(device), datagrams);
    println!("\nsaid: {}", side.context.attach_multicast(side.qp, GROUP).unwrap_err());
    side.context.destroy_queue_pair(side.qp).unwrap();
}

#[test]
fn a_missing_device_file_is_named() {
    if device(&Wanted::default()).is_none() {
        return;
    }
    // Nobody but the process sees what is mounted in a name space of its own.
    let hide = format!("mount --bind /dev/null {DEVICE} && exec \"$0\" \"$@\"");
    let output = Command::new("unshare")
        .args(["--mount", "sh", "-c", &hide])
        .arg(std::env::current_exe().unwrap())
        .args(["groups::joins_without_the_device_file", "--exact", "--nocapture"])
        .env(HIDDEN, "1")
        .output();
    let said = match &output {
        Ok(output) => String::from_utf8_lossy(&output.stdout),
        Err(error) => return println!("skipped: unshare: {error}"),
    };
    match said.lines().find_map(|line| line.strip_prefix("said: ")) {
        Some(error) => assert!(error.starts_with(&format!("joining a multicast group: {DEVICE} ")), "{error}"),
        None if said.contains("running 1 test") => panic!("{output:?}"),
        None => println!("skipped: name spaces of one's own are not allowed: {output:?}"),
    }
}

/// Not a test of its own: joins on an adapter of this name, which is taken away.
#[test]
fn loses_its_adapter() {
    let Ok(adapter) = std::env::var(DOOMED) else { return };
    let wanted = Wanted { adapter: Some(adapter.clone()), ..Wanted::default() };
    // The GID of the IPv4 address appears a moment after the adapter.
    let device = (0..100).find_map(|_| {
        std::thread::sleep(Duration::from_millis(50));
        VerbsDevice::find(&wanted).ok().filter(|device| device.offer().gid.bytes[10..12] == [0xff; 2])
    });
    let mut side = Side::on(opened(device.expect("an adapter").joining_by_rdma_cm()), datagrams);
    side.context.attach_multicast(side.qp, GROUP).unwrap();
    assert_eq!(side.context.next_event(), None);
    // This does not end before the process, for the library keeps the adapter open.
    let delete = format!("rdma link delete {adapter} >/dev/null 2>&1 &");
    assert!(Command::new("sh").args(["-c", &delete]).status().unwrap().success());
    let mut told = |count: u32| {
        (0..count).find_map(|_| {
            std::thread::sleep(Duration::from_millis(50));
            side.context.next_event().filter(|event| *event == AsynchronousEvent::GroupLost(GROUP))
        })
    };
    assert!(told(200).is_some() && told(5).is_none());
    println!("\ntold once");
}

#[test]
fn a_membership_that_ends_by_itself_is_told() {
    if std::env::var_os("RDMA_VM_DEV").is_none_or(|name| name != "rxe0") {
        println!("skipped: an adapter is taken away only in a virtual machine");
        return;
    }
    let run = |line: &str| assert!(Command::new("sh").args(["-ec", line]).status().unwrap().success(), "{line}");
    run("ip link add groups0 type dummy; ip addr add 10.78.0.1/24 dev groups0; ip link set groups0 up");
    run("rdma link add rxe9 type rxe netdev groups0");
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["groups::loses_its_adapter", "--exact", "--nocapture"])
        .env(DOOMED, "rxe9")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("\ntold once\n"), "{output:?}");
    run(
        "for i in $(seq 100); do [ ! -e /sys/class/infiniband/rxe9 ] && break; sleep 0.1; done; ip link delete groups0",
    );
}
