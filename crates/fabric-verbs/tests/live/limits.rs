//! Whatever the limits of the adapter are, what they leave works, to the last byte, and more is refused.

use crate::side::{Side, best, connect, opened, pattern};
use fabric::{
    ConnectOptions, Device, FabricError, Operation, Payload, QueuePairAttributes, ReceiveRequest, ScatterGather,
    SendRequest,
};

#[test]
fn requests_reach_to_the_limits_that_are_told_and_no_further() {
    let (Some(ours), Some(theirs)) = (best(), best()) else { return };
    let capabilities = ours.capabilities();
    let limits = capabilities.limits;
    let (inline, entries) = (limits.inline_max_bytes, limits.scatter_gather_max);
    println!("inline {inline} B, lists of {entries}, atomics {}", capabilities.atomics);
    ours.notes().iter().for_each(|note| println!("{note}"));
    let all = |attributes: &mut QueuePairAttributes| {
        attributes.inline_max_bytes = inline;
        (attributes.send_entries_max, attributes.receive_entries_max) = (entries, entries);
    };
    let (mut a, mut b) = (Side::on(opened(ours), all), Side::on(opened(theirs), all));
    connect(&mut a, &mut b, &ConnectOptions::default());
    pattern(&mut a.memory, 3);
    // The longest lists at both ends, each piece apart from the next.
    let parts = |side: &Side, count: u32| -> Vec<ScatterGather> {
        (0..count).map(|place| side.region.part(8 * u64::from(place), 4)).collect()
    };
    let (from, to) = (parts(&a, entries), parts(&b, entries));
    b.context.post_receive(b.qp, &[ReceiveRequest { id: 1, list: &to }]).unwrap();
    a.send(SendRequest::new(2, Operation::Send, Payload::Memory(&from)));
    a.completed(2);
    assert_eq!(b.completed(1).bytes, 4 * u64::from(entries));
    for place in 0..8 * entries as usize {
        assert_eq!(b.memory[place], if place % 8 < 4 { a.memory[place] } else { 0 }, "byte {place}");
    }
    let bytes: Vec<u8> = (0..inline).map(|at| at as u8).collect();
    a.send(SendRequest::new(3, Operation::RdmaWrite(b.region.remote(4096)), Payload::Inline(&bytes)));
    a.completed(3);
    assert_eq!(b.memory[4096..][..bytes.len()], bytes);
    let (long, many) = (vec![0; bytes.len() + 1], parts(&a, entries + 1));
    for payload in [Payload::Inline(&long), Payload::Memory(&many)] {
        let refused = a.context.post_send(a.qp, &[SendRequest::new(4, Operation::Send, payload)]);
        assert!(matches!(refused, Err(FabricError::BeyondLimit { .. })), "{refused:?}");
    }
}
