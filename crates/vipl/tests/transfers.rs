//! Transfers between two VIs, by both ways of memory, against what a naive copy gives.

mod common;

use common::*;
use proptest::prelude::*;
use vipl::*;

/// A message of every length class by both ways, and what is copied for it.
#[test]
fn a_message_arrives_by_either_way_and_way_3_copies_nothing_beside() {
    for (from, to) in [(2, 2), (2, 3), (3, 2), (3, 3)] {
        let (server, client) = pair();
        let (source, target) = (client.memory(from, 1 << 20), server.memory(to, 1 << 20));
        let mut total = 0;
        for len in [0usize, 1, 7, 64, 4096, 1 << 20] {
            source.write(0, &pattern(from as u8, len));
            server.vi.post_receive(Descriptor::of(vec![target.segment(0, 1 << 20)], 1)).unwrap();
            client.vi.post_send(Descriptor::of(vec![source.segment(0, len)], 2)).unwrap();
            let (received, sent) = (server.received(), client.sent());
            assert_eq!((received.context, received.len_bytes as usize), (1, len));
            assert_eq!(received.status, Status::DONE.and(Status::OP_RECEIVE));
            assert_eq!((sent.context, sent.status, sent.len_bytes as usize), (2, Status::DONE, len));
            assert_eq!(target.read(0, len), pattern(from as u8, len));
            total += len as u64;
        }
        let copied = |way: u32| if way == 2 { total } else { 0 };
        assert_eq!(client.count(Counter::CopiedInBytes), copied(from));
        assert_eq!(server.count(Counter::CopiedOutBytes), copied(to));
        assert_eq!(client.count(Counter::TransferredBytes), total);
        assert_eq!(client.count(Counter::SparedBytes), total - copied(from));
    }
}

#[test]
fn immediate_data_comes_with_the_message() {
    let (server, client) = pair();
    server.vi.post_receive(Descriptor::of(vec![], 1)).unwrap();
    server.vi.post_receive(Descriptor::of(vec![], 2)).unwrap();
    client.vi.post_send(Descriptor::of(vec![], 3).with_immediate(0xDEAD_BEEF)).unwrap();
    client.vi.post_send(Descriptor::of(vec![], 4)).unwrap();
    let first = server.received();
    assert!(first.status.has(Status::IMMEDIATE));
    assert_eq!((first.immediate, first.len_bytes), (0xDEAD_BEEF, 0));
    assert!(!server.received().status.has(Status::IMMEDIATE));
}

/// Lists of different shapes between pieces of several registrations.
fn check_shapes(ways: (u32, u32), gather: &[(usize, usize)], scatter: &[(usize, usize)]) {
    let (server, client) = pair();
    let sources = [client.memory(ways.0, 300), client.memory(5 - ways.0, 300)];
    let targets = [server.memory(ways.1, 300), server.memory(5 - ways.1, 300)];
    sources.iter().enumerate().for_each(|(index, memory)| memory.write(0, &pattern(index as u8 + 1, 300)));
    // Pieces of one list lie behind each other, so that none overlaps another.
    let place = |list: &[(usize, usize)]| -> Vec<(usize, usize, usize)> {
        let mut next = [0, 0];
        list.iter()
            .map(|(which, len)| {
                next[*which] += len;
                (*which, next[*which] - len, *len)
            })
            .collect()
    };
    let (gather, scatter) = (place(gather), place(scatter));
    let segments = |memories: &[Memory; 2], list: &[(usize, usize, usize)]| -> Vec<DataSegment> {
        list.iter().map(|(which, offset, len)| memories[*which].segment(*offset, *len)).collect()
    };
    let bytes: Vec<u8> = gather.iter().flat_map(|(which, offset, len)| sources[*which].read(*offset, *len)).collect();
    let room: usize = scatter.iter().map(|piece| piece.2).sum();
    server.vi.post_receive(Descriptor::of(segments(&targets, &scatter), 1)).unwrap();
    client.vi.post_send(Descriptor::of(segments(&sources, &gather), 2)).unwrap();
    let (received, sent) = (server.received(), client.sent());
    let mut expected = [vec![0; 300], vec![0; 300]];
    if bytes.len() <= room {
        assert!(!received.status.is_error() && !sent.status.is_error());
        assert_eq!(received.len_bytes as usize, bytes.len());
        let mut rest = &bytes[..];
        for (which, offset, len) in scatter {
            let len = len.min(rest.len());
            expected[which][offset..offset + len].copy_from_slice(&rest[..len]);
            rest = &rest[len..];
        }
    } else {
        assert!(received.status.has(Status::LENGTH_ERROR) && sent.status.has(Status::REMOTE_DESCRIPTOR_ERROR));
    }
    for (memory, expected) in targets.iter().zip(expected) {
        assert_eq!(memory.read(0, 300), expected);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn lists_of_any_shapes_are_gathered_and_scattered(
        ways in (2u32..4, 2u32..4),
        gather in prop::collection::vec((0usize..2, 0usize..40), 0..7),
        scatter in prop::collection::vec((0usize..2, 0usize..50), 0..7),
    ) {
        check_shapes(ways, &gather, &scatter);
    }
}

#[test]
fn the_longest_list_there_may_be_fits() {
    let list = vec![(0, 1); SEGMENTS_PER_DESCRIPTOR_MAX];
    check_shapes((3, 2), &list, &[(0, 200), (1, 52)]);
    check_shapes((2, 3), &[(0, 200), (1, 52)], &list);
}

#[test]
fn rdma_writes_and_reads_go_where_they_are_told_without_a_receive() {
    for (here, there) in [(2, 2), (2, 3), (3, 2), (3, 3)] {
        let (server, client) = pair();
        let (mine, theirs) = (client.memory(here, 1000), server.memory(there, 1000));
        mine.write(0, &pattern(1, 1000));
        let list = vec![mine.segment(500, 100), mine.segment(0, 50)];
        client.vi.post_send(Descriptor::rdma_write(list, theirs.remote(10), 1)).unwrap();
        let sent = client.sent();
        assert_eq!((sent.status, sent.len_bytes), (Status::DONE.and(Status::OP_RDMA_WRITE), 150));
        let expected = [&pattern(1, 1000)[500..600], &pattern(1, 1000)[..50]].concat();
        assert_eq!(theirs.read(10, 150), expected, "{here} {there}");
        assert_eq!(theirs.read(0, 10), [0; 10]);

        theirs.write(0, &pattern(2, 1000));
        let list = vec![mine.segment(900, 100), mine.segment(0, 7)];
        client.vi.post_send(Descriptor::rdma_read(list, theirs.remote(300), 2)).unwrap();
        let read = client.sent();
        assert_eq!((read.status, read.len_bytes), (Status::DONE.and(Status::OP_RDMA_READ), 107));
        assert_eq!([mine.read(900, 100), mine.read(0, 7)].concat(), &pattern(2, 1000)[300..407]);
        // The other side's processor has only copied where it has a shadow.
        assert_eq!(server.count(Counter::Served), if there == 2 { 2 } else { 0 });
        assert_eq!(server.vi.done(WorkQueue::Receive), None);
    }
}

#[test]
fn an_rdma_write_with_immediate_data_consumes_a_receive() {
    for there in [2, 3] {
        let (server, client) = pair();
        let (mine, theirs) = (client.memory(3, 100), server.memory(there, 100));
        mine.write(0, &pattern(9, 100));
        server.vi.post_receive(Descriptor::of(vec![], 5)).unwrap();
        let write = Descriptor::rdma_write(vec![mine.segment(0, 100)], theirs.remote(0), 1).with_immediate(77);
        client.vi.post_send(write).unwrap();
        let received = server.received();
        assert_eq!((received.context, received.immediate, received.len_bytes), (5, 77, 100));
        assert_eq!(received.status, Status::DONE.and(Status::OP_REMOTE_RDMA_WRITE).and(Status::IMMEDIATE));
        assert_eq!(theirs.read(0, 100), pattern(9, 100), "the data is there when the receive is complete");
        assert!(!client.sent().status.is_error());
    }
}

#[test]
fn what_is_posted_is_done_in_order_whatever_it_is() {
    let (server, client) = pair();
    let (mine, theirs) = (client.memory(3, 64), server.memory(2, 64));
    for round in 0..20u64 {
        mine.write(0, &[round as u8; 64]);
        server.vi.post_receive(Descriptor::of(vec![theirs.segment(32, 8)], round)).unwrap();
        client.vi.post_send(Descriptor::rdma_write(vec![mine.segment(0, 32)], theirs.remote(0), 3 * round)).unwrap();
        let read = Descriptor::rdma_read(vec![mine.segment(32, 32)], theirs.remote(0), 3 * round + 1);
        client.vi.post_send(read).unwrap();
        client.vi.post_send(Descriptor::of(vec![mine.segment(32, 8)], 3 * round + 2)).unwrap();
        assert_eq!(server.received().context, round);
        assert_eq!(theirs.read(32, 8), [round as u8; 8], "what was written before was read before it was sent");
        for step in 0..3 {
            assert_eq!(client.sent().context, 3 * round + step);
        }
    }
}

/// Many messages one behind the other: descriptors go over several at a time, and none is lost or doubled.
fn check_pushes(push_max: usize) -> f64 {
    let (server, client) = pair_with(Settings { push_max, ..Settings::default() }, Reliability::Delivery);
    let (source, target) = (client.memory(3, 8), server.memory(3, 8 * 512));
    for i in 0..512u64 {
        server.vi.post_receive(Descriptor::of(vec![target.segment(8 * i as usize, 8)], i)).unwrap();
    }
    for i in 0..4000u64 {
        source.write(0, &i.to_le_bytes());
        client.vi.post_send(Descriptor::of(vec![source.segment(0, 8)], i)).unwrap();
        assert!(!client.sent().status.is_error());
        let received = server.received();
        assert_eq!(received.context, i % 512);
        assert_eq!(target.read(8 * (i % 512) as usize, 8), i.to_le_bytes());
        let again = vec![target.segment(8 * (i % 512) as usize, 8)];
        server.vi.post_receive(Descriptor::of(again, i % 512)).unwrap();
    }
    server.count(Counter::DescriptorsPushed) as f64 / server.count(Counter::Pushes) as f64
}

#[test]
fn descriptors_are_pushed_several_at_a_time() {
    assert_eq!(check_pushes(1), 1.0);
    let several = check_pushes(32);
    assert!(several > 10.0 && several <= 32.0, "{several} at a time");
}

/// The sender uses up what it has while the receiver does nothing: the event manager pushes what was posted.
#[test]
fn a_send_that_runs_out_of_descriptors_gets_those_that_were_posted() {
    let (server, client) = pair();
    let (source, target) = (client.memory(3, 8), server.memory(3, 8));
    for i in 0..200 {
        server.vi.post_receive(Descriptor::of(vec![target.segment(0, 8)], i)).unwrap();
    }
    for i in 0..200 {
        client.vi.post_send(Descriptor::of(vec![source.segment(0, 8)], i)).unwrap();
    }
    for i in 0..200 {
        assert_eq!((client.sent().context, client.count(Counter::Dropped)), (i, 0));
    }
    assert!(client.count(Counter::SendsHeld) > 0);
    for i in 0..200 {
        assert_eq!(server.received().context, i);
    }
}

#[test]
fn both_directions_and_several_vis_of_a_nic_keep_apart() {
    let (server, client) = (
        Side::new(Settings::default(), Reliability::Reception),
        Side::new(Settings::default(), Reliability::Reception),
    );
    connect(&server, &client);
    let second = Side {
        nic: client.nic.clone(),
        ptag: client.ptag,
        vi: client.nic.create_vi(&attributes(client.ptag, Reliability::Reception), None, None).unwrap(),
    };
    let other = Side::new(Settings::default(), Reliability::Reception);
    connect(&other, &second);
    let memories = [server.memory(2, 16), other.memory(3, 16)];
    let mine = client.memory(2, 64);
    for (index, (there, here)) in [(&server, &client), (&other, &second)].into_iter().enumerate() {
        memories[index].write(0, &[index as u8 + 1; 8]);
        here.vi.post_receive(Descriptor::of(vec![mine.segment(index * 8, 8)], 1)).unwrap();
        there.vi.post_send(Descriptor::of(vec![memories[index].segment(0, 8)], 2)).unwrap();
        assert!(!here.received().status.is_error());
    }
    assert_eq!(mine.read(0, 16), [[1; 8], [2; 8]].concat());
}
