//! What is asked for reaches the driver: its packets tell.

use crate::side::{BYTES, Side, best, connect, opened};
use fabric::{
    ConnectOptions, DatagramAddress, Destination, Operation, Payload, Qkey, SendRequest, Transport, WcStatus,
};
use fabric_verbs::choice::{Gid, GidKind, LinkLayer, PortOffer, Wanted};
use fabric_verbs::{NoDevice, Survey, VerbsDevice};
use std::net::Ipv6Addr;
use std::time::Duration;

const QKEY: Qkey = Qkey(0x51);

/// This port and nothing else.
fn only(offer: &PortOffer) -> Wanted {
    Wanted { adapter: Some(offer.adapter.clone()), port: Some(offer.port), ..Wanted::default() }
}

#[test]
fn datagrams_come_from_the_gid_that_was_asked_for() {
    let Some(device) = best() else { return };
    if device.offer().link_layer != LinkLayer::Ethernet {
        println!("skipped: inside a subnet of InfiniBand datagrams name no GID");
        return;
    }
    for offer in Survey::new(&only(device.offer())).unwrap().offers() {
        let wanted = Wanted { gid_index: Some(offer.gid.index), ..only(offer) };
        let header = header_of_a_datagram(&wanted);
        println!("asked for {:?}, the header is {header:02x?}", offer.gid);
        assert_eq!(source_of(&header, &offer.gid), offer.gid.bytes);
    }
}

/// What stands before a datagram between two contexts that ask for the same.
fn header_of_a_datagram(wanted: &Wanted) -> Vec<u8> {
    let options = ConnectOptions { qkey: QKEY, ..ConnectOptions::default() };
    let [mut a, mut b] = [(), ()].map(|()| {
        let context = opened(VerbsDevice::find(wanted).unwrap());
        let mut side = Side::on(context, |attributes| attributes.transport = Transport::UnreliableDatagram);
        fabric::connect(&mut *side.context, side.qp, None, &options).unwrap();
        side
    });
    b.receive(1, 0, 200);
    let to = b.endpoint();
    let address = a.context.create_address_handle(a.domain, DatagramAddress::Endpoint(&to)).unwrap();
    let destination = Destination::Datagram { address, qp: to.qp(), qkey: QKEY };
    a.send(SendRequest { destination, ..SendRequest::new(2, Operation::Send, Payload::Inline(b"who?")) });
    a.completed(2);
    b.completed(1);
    let length = b.context.capabilities().limits.datagram_header_bytes as usize;
    b.memory[..length].to_vec()
}

/// The sender in a header: a global route header has its GID; of RoCE v2 over IPv4 the last 20 bytes are the IP header.
fn source_of(header: &[u8], gid: &Gid) -> [u8; 16] {
    let is_ipv4 = Ipv6Addr::from(gid.bytes).to_ipv4_mapped().is_some();
    if is_ipv4 && gid.kind == GidKind::RoceV2 {
        let address: [u8; 4] = header[32..36].try_into().unwrap();
        return std::net::Ipv4Addr::from(address).to_ipv6_mapped().octets();
    }
    header[8..24].try_into().unwrap()
}

#[test]
fn packets_are_no_longer_than_was_asked_for() {
    let Some(device) = best() else { return };
    for mtu_bytes in [256, 1024] {
        let wanted = Wanted { mtu_bytes: Some(mtu_bytes), ..only(device.offer()) };
        let [mut a, mut b] = [(), ()].map(|()| Side::on(opened(VerbsDevice::find(&wanted).unwrap()), |_| {}));
        assert_eq!(a.context.capabilities().limits.datagram_max_bytes, mtu_bytes);
        connect(&mut a, &mut b, &ConnectOptions::default());
        let Some(before) = packets_sent(device.offer()) else {
            println!("skipped: the driver does not count packets");
            return;
        };
        let list = [a.region.part(0, BYTES as u32)];
        a.send(SendRequest::new(1, Operation::RdmaWrite(b.region.remote(0)), Payload::Memory(&list)));
        assert_eq!(a.completed(1).status, WcStatus::Success);
        let packets = packets_sent(device.offer()).unwrap() - before;
        println!("{BYTES} bytes went in {packets} packets of at most {mtu_bytes}");
        assert!(packets >= BYTES as u64 / u64::from(mtu_bytes));
    }
}

/// Soft-RoCE counts them; other drivers have counters of other names.
fn packets_sent(offer: &PortOffer) -> Option<u64> {
    // The kernel looks at the counters again when what it knows is older than 10 ms.
    std::thread::sleep(Duration::from_millis(100));
    let place = format!("/sys/class/infiniband/{}/ports/{}/hw_counters/sent_pkts", offer.adapter, offer.port);
    std::fs::read_to_string(place).ok()?.trim().parse().ok()
}

#[test]
fn what_is_not_there_is_refused_by_its_name() {
    let Some(device) = best() else { return };
    let one = only(device.offer());
    let refused = [
        (Wanted { gid_index: Some(250), ..one.clone() }, "no GID at index 250 (FERROVIA_VERBS_GID)"),
        (Wanted { partition: Some(0x1234), ..one.clone() }, "not a member of partition 0x1234"),
        (Wanted { port: Some(200), ..one }, "FERROVIA_VERBS_DEVICE asks for another"),
    ];
    for (wanted, reason) in refused {
        match VerbsDevice::find(&wanted) {
            Err(NoDevice::AllRejected(rejections)) => {
                assert!(rejections.iter().any(|rejection| rejection.reason.starts_with(reason)), "{rejections:?}");
            }
            Err(other) => panic!("{wanted:?}: {other}"),
            Ok(found) => panic!("{wanted:?} gave {:?}", found.offer()),
        }
    }
}
