//! Payloads that are damaged on their way, which the sums of TCP do not always see.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fabric::{ConnectOptions, Context, Operation, WcStatus};

use crate::absence::elsewhere;
use crate::side::{MEMORY_BYTES, Side, until};

/// Which byte of a connection is damaged: behind the greeting and the head of what is sent first, inside its payload.
const DAMAGED: usize = 20_000;

/// Hands over what comes, but for one bit if the connection is to be damaged.
fn hand_over(mut from: TcpStream, mut to: TcpStream, is_damaged: bool) {
    let (mut bytes, mut before) = ([0; 4096], 0);
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        if is_damaged && (before..before + count).contains(&DAMAGED) {
            bytes[DAMAGED - before] ^= 4;
        }
        before += count;
        if to.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    // Either may be closed already.
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}

/// Where connections to `socket` are handed over, the first `count` of them with damage, and how many there were.
fn damaging(socket: SocketAddr, count: u64) -> (SocketAddr, Arc<AtomicU64>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let own = listener.local_addr().expect("its address");
    let made = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&made);
    std::thread::spawn(move || {
        for near in listener.incoming().map_while(Result::ok) {
            let Ok(far) = TcpStream::connect(socket) else { return };
            let is_damaged = counted.fetch_add(1, Ordering::Relaxed) < count;
            let (Ok(back), Ok(forth)) = (far.try_clone(), near.try_clone()) else { return };
            std::thread::spawn(move || hand_over(near, far, is_damaged));
            std::thread::spawn(move || hand_over(back, forth, false));
        }
    });
    (own, made)
}

/// Sends and writes over `connections` connections, each damaged once.
fn over(connections: usize) {
    let len = connections * (48 << 10) + (64 << 10);
    for operation in ["send", "write"] {
        let mut sides = [(); 2]
            .map(|()| Side::new(1, |options| (options.check_payloads, options.connections) = (true, connections)));
        let (proxy, handed) = damaging(sides[1].socket(), connections as u64);
        let [here, there] = &mut sides;
        let (ours, theirs) = (here.adapter.endpoint(here.qp).unwrap(), there.adapter.endpoint(there.qp).unwrap());
        let theirs = elsewhere(&theirs, &[proxy]);
        fabric::connect(&mut here.adapter, here.qp, Some(theirs), &ConnectOptions::default()).expect("connects");
        fabric::connect(&mut there.adapter, there.qp, Some(ours), &ConnectOptions::default()).expect("connects");
        let target = MEMORY_BYTES / 2;
        here.fill(0, len, 9);
        there.receive(2, target, len);
        match operation {
            "send" => here.post(1, Operation::Send, 0, len),
            _ => here.post(1, Operation::RdmaWriteWithImmediate(there.region.remote(target as u64), 7), 0, len),
        }
        until(&mut sides, "the receive", |sides| !sides[1].done.is_empty());
        sides[1].check(target, len, 9, operation);
        until(&mut sides, "its acknowledgement", |sides| !sides[0].done.is_empty());
        for side in &sides {
            assert_eq!(side.done.iter().map(|one| one.status).collect::<Vec<_>>(), [WcStatus::Success], "{operation}");
        }
        let damaged = connections as u64;
        assert!(handed.load(Ordering::Relaxed) >= damaged, "all of them went through the proxy");
        assert!(sides[1].adapter.link().connections_made() > damaged, "{operation}: what was damaged came again");
    }
}

#[test]
fn a_damaged_payload_comes_again() {
    over(1);
}

#[test]
fn damaged_parts_on_several_connections_come_again() {
    over(3);
}
