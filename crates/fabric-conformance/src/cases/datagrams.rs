//! Datagrams, to one and to a group. What may be lost is sent until it arrives.

use fabric::{
    Access, AddressHandle, ConnectOptions, DatagramAddress, Destination, FabricError, MulticastGroup, Operation,
    Payload, Qkey, QpNumber, QueuePair, SendRequest, Transport, WcStatus,
};

use super::with_ability;
use crate::side::{Pair, Side};
use crate::{Case, Fixture, Outcome};

pub(super) const CASES: &[Case] = &[
    Case { name: "a_datagram_carries_its_sender", run: datagram },
    Case { name: "a_datagram_with_another_key_is_dropped", run: wrong_key },
    Case { name: "datagrams_do_only_what_they_can", run: limits },
    Case { name: "a_multicast_reaches_who_joined", run: multicast },
];

const KEY: Qkey = Qkey(0x1111);

fn datagram_queue_pair(side: &mut Side) -> QueuePair {
    let mut attributes = side.attributes();
    attributes.transport = Transport::UnreliableDatagram;
    let qp = side.context.create_queue_pair(&attributes).expect("a datagram queue pair");
    let options = ConnectOptions { qkey: KEY, ..ConnectOptions::default() };
    fabric::connect(side.context.as_mut(), qp, None, &options).expect("ready");
    qp
}

fn request(id: u64, address: AddressHandle, qp: QpNumber, qkey: Qkey, text: &[u8]) -> SendRequest<'_> {
    let mut request = SendRequest::new(id, Operation::SendWithImmediate(id as u32), Payload::Inline(text));
    request.destination = Destination::Datagram { address, qp, qkey };
    request
}

/// Sends until something arrives there: datagrams may be lost.
fn send_until_received(pair: &mut Pair, from: QueuePair, request: &SendRequest<'_>) {
    let (mut rounds, mut posted) = (0, 1);
    pair.here.post(from, request);
    pair.until("a datagram", |pair| {
        rounds += 1;
        if rounds % 500 == 0 {
            pair.here.post(from, request);
            posted += 1;
        }
        // It may be there before its sending is reported.
        !pair.there.done.is_empty() && pair.here.done.len() >= posted
    });
    pair.here.done.clear();
}

fn datagram(fixture: &mut dyn Fixture) -> Outcome {
    with_ability(
        fixture,
        "datagrams",
        |has| has.datagrams,
        |pair| {
            let header = pair.there.context.capabilities().limits.datagram_header_bytes as usize;
            let (from, to) = (datagram_queue_pair(&mut pair.here), datagram_queue_pair(&mut pair.there));
            let endpoint = pair.there.context.endpoint(to).expect("an endpoint");
            let domain = pair.here.domain;
            let address = pair
                .here
                .context
                .create_address_handle(domain, DatagramAddress::Endpoint(&endpoint))
                .expect("the way there");
            let target = pair.there.memory(256, Access::LOCAL);
            pair.there.receive(to, 5, &[target.part(0, 20), target.part(100, 100)]);
            send_until_received(pair, from, &request(1, address, endpoint.qp(), KEY, b"a datagram"));
            let got = pair.expect_there(5, WcStatus::Success, "a datagram");
            assert_eq!(got.bytes as usize, header + 10, "the header's place is counted");
            assert_eq!(got.immediate, Some(1));
            assert_eq!(got.source, Some(pair.here.context.endpoint(from).unwrap().qp()));
            let laid_out = [target.read(0, 20), target.read(100, 100)].concat();
            assert_eq!(laid_out[header..header + 10], *b"a datagram");
            // Nobody waits for it: it is gone, and the next is taken.
            pair.here.post(from, &request(2, address, endpoint.qp(), KEY, b"lost"));
            pair.expect_here(2, WcStatus::Success, "sending is all a datagram promises");
            pair.pump();
            pair.there.receive(to, 6, &[target.part(0, 200)]);
            send_until_received(pair, from, &request(3, address, endpoint.qp(), KEY, b"found"));
            pair.expect_there(6, WcStatus::Success, "the next");
            pair.here.context.destroy_address_handle(address).expect("it exists");
            assert!(pair.here.context.destroy_address_handle(address).is_err());
        },
    )
}

fn wrong_key(fixture: &mut dyn Fixture) -> Outcome {
    with_ability(
        fixture,
        "datagrams",
        |has| has.datagrams,
        |pair| {
            let (from, to) = (datagram_queue_pair(&mut pair.here), datagram_queue_pair(&mut pair.there));
            let endpoint = pair.there.context.endpoint(to).expect("an endpoint");
            let domain = pair.here.domain;
            let address = pair
                .here
                .context
                .create_address_handle(domain, DatagramAddress::Endpoint(&endpoint))
                .expect("the way there");
            let target = pair.there.memory(128, Access::LOCAL);
            pair.there.receive(to, 1, &[target.part(0, 128)]);
            pair.here.post(from, &request(7, address, endpoint.qp(), Qkey(0x2222), b"wrong"));
            pair.expect_here(7, WcStatus::Success, "sending is all a datagram promises");
            send_until_received(pair, from, &request(8, address, endpoint.qp(), KEY, b"right"));
            let got = pair.expect_there(1, WcStatus::Success, "the one with the right key");
            assert_eq!(got.immediate, Some(8));
        },
    )
}

fn limits(fixture: &mut dyn Fixture) -> Outcome {
    with_ability(
        fixture,
        "datagrams",
        |has| has.datagrams,
        |pair| {
            let from = datagram_queue_pair(&mut pair.here);
            let endpoint = pair.here.context.endpoint(from).expect("an endpoint");
            let domain = pair.here.domain;
            let max = pair.here.context.capabilities().limits.datagram_max_bytes;
            let address =
                pair.here.context.create_address_handle(domain, DatagramAddress::Endpoint(&endpoint)).expect("a way");
            let memory = pair.here.memory(max as usize + 1, Access::REMOTE_ALL);
            let destination = Destination::Datagram { address, qp: endpoint.qp(), qkey: KEY };
            let too_long = [memory.part(0, max + 1)];
            let mut request = SendRequest::new(1, Operation::Send, Payload::Memory(&too_long));
            request.destination = destination;
            let refused = pair.here.context.post_send(from, &[request]);
            assert!(matches!(refused, Err(FabricError::BeyondLimit { .. })), "{refused:?}");
            for operation in [Operation::RdmaWrite(memory.remote(0)), Operation::RdmaRead(memory.remote(0))] {
                let list = [memory.part(0, 8)];
                let mut request = SendRequest::new(1, operation, Payload::Memory(&list));
                request.destination = destination;
                let refused = pair.here.context.post_send(from, &[request]);
                assert!(matches!(refused, Err(FabricError::InvalidRequest { .. })), "{operation:?}: {refused:?}");
            }
            let nowhere = SendRequest::new(1, Operation::Send, Payload::Inline(b"x"));
            let refused = pair.here.context.post_send(from, &[nowhere]);
            assert!(matches!(refused, Err(FabricError::InvalidRequest { .. })), "{refused:?}");
        },
    )
}

fn multicast(fixture: &mut dyn Fixture) -> Outcome {
    with_ability(
        fixture,
        "multicast",
        |has| has.multicast,
        |pair| {
            let header = pair.there.context.capabilities().limits.datagram_header_bytes as usize;
            // An administratively scoped group, as IPv4 239.1.2.3 maps to a GID.
            let group = MulticastGroup([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 239, 1, 2, 3]);
            let from = datagram_queue_pair(&mut pair.here);
            let members = [(), ()].map(|()| datagram_queue_pair(&mut pair.there));
            let stranger = datagram_queue_pair(&mut pair.there);
            let target = pair.there.memory(512, Access::LOCAL);
            for (index, qp) in members.into_iter().chain([stranger]).enumerate() {
                pair.there.receive(qp, index as u64, &[target.part(100 * index as u64, 100)]);
            }
            for qp in members {
                pair.there.context.attach_multicast(qp, group).expect("joins");
            }
            let domain = pair.here.domain;
            let address =
                pair.here.context.create_address_handle(domain, DatagramAddress::Multicast(group)).expect("a way");
            let message = request(1, address, QpNumber(0x00ff_ffff), KEY, b"to all");
            send_until_received(pair, from, &message);
            let mut ids: Vec<_> = pair.there(2).iter().map(|done| (done.id, done.status)).collect();
            ids.sort_by_key(|(id, _)| *id);
            assert_eq!(ids, [(0, WcStatus::Success), (1, WcStatus::Success)]);
            assert!((0..2).all(|index| target.read(100 * index + header, 6) == b"to all"));
            assert_eq!(target.read(200, 100), [0; 100], "who has not joined gets nothing");
            pair.there.context.detach_multicast(members[0], group).expect("leaves");
            assert!(pair.there.context.detach_multicast(members[0], group).is_err());
            for (index, qp) in members.into_iter().enumerate() {
                pair.there.receive(qp, 10 + index as u64, &[target.part(100 * index as u64, 100)]);
            }
            pair.here.done.clear();
            send_until_received(pair, from, &message);
            pair.expect_there(11, WcStatus::Success, "the member that stayed");
        },
    )
}
