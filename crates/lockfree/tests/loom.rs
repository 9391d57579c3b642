//! The shared structures under every interleaving and every legal reordering:
//! `RUSTFLAGS="--cfg loom" cargo test -p lockfree --test loom --release`.

#![cfg(loom)]

use base::sync::Ordering;
use lockfree::{
    Barrier, BlockReceiver, BlockSender, Board, ClaimCell, Doorbell, Engagement, PublishedTable, Record, SharedMemory,
};
use loom::thread;

/// A model with at most two forced switches of thread: enough for every known kind of ordering bug, and finite.
fn model(body: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(body);
}

#[test]
fn records_are_seen_whole_or_not_at_all() {
    model(|| {
        let memory = SharedMemory::private(BlockSender::footprint(1024));
        let mut sender = BlockSender::new(memory.clone(), 1024);
        let mut receiver = BlockReceiver::new(memory, 1024);
        let writer = thread::spawn(move || {
            for number in 1..=2u8 {
                let record = Record { kind: number, short: 0, long: number.into() };
                assert!(sender.push(record, 2, |space| space.fill(number)));
            }
        });
        let mut next = 1u8;
        for _ in 0..3 {
            receiver.pop(|record, payload| {
                assert_eq!((record.kind, record.long, payload), (next, next.into(), &[next; 2][..]));
                next += 1;
            });
            thread::yield_now();
        }
        writer.join().unwrap();
    });
}

#[test]
fn lines_are_not_reused_while_they_are_read() {
    model(|| {
        let memory = SharedMemory::private(BlockSender::footprint(1024));
        let mut sender = BlockSender::new(memory.clone(), 1024);
        let mut receiver = BlockReceiver::new(memory, 1024);
        // Fill the block before the threads start: only the reuse is of interest.
        while sender.push(Record { kind: 1, ..Record::default() }, 1, |space| space.fill(1)) {}
        let writer = thread::spawn(move || {
            for _ in 0..2 {
                sender.push(Record { kind: 2, ..Record::default() }, 1, |space| space.fill(2));
                thread::yield_now();
            }
        });
        for _ in 0..5 {
            receiver.pop(|record, payload| assert_eq!(payload, [record.kind]));
            receiver.return_credits();
        }
        writer.join().unwrap();
    });
}

#[test]
fn nobody_sleeps_through_work() {
    model(|| {
        let memory = SharedMemory::private(Doorbell::FOOTPRINT + 64);
        let doorbell = Doorbell::new(memory.part(0, Doorbell::FOOTPRINT).unwrap(), Barrier::Own);
        let work = memory.part(Doorbell::FOOTPRINT, 64).unwrap();
        let (bell, job) = (doorbell.clone(), work.clone());
        let bringer = thread::spawn(move || {
            job.word(0).store(1, Ordering::Release);
            bell.must_ring()
        });
        let ticket = doorbell.announce();
        let seen = work.word(0).load(Ordering::Acquire) == 1;
        let rang = bringer.join().unwrap();
        assert!(seen || rang, "the last poll missed the work and the bringer missed the sleeper");
        assert!(seen || doorbell.rang(ticket), "the futex would not have let us sleep on");
        doorbell.withdraw();
    });
}

#[test]
fn chunks_are_claimed_once_and_counted() {
    model(|| {
        let cell = ClaimCell::new(SharedMemory::private(ClaimCell::FOOTPRINT));
        let generation = cell.open();
        let helper = cell.clone();
        let other = thread::spawn(move || {
            let mut claimed = 0u64;
            while helper.claim(generation, 2).is_some() {
                claimed += 1;
                helper.finish();
            }
            claimed
        });
        let mut claimed = 0;
        while cell.claim(generation, 2).is_some() {
            claimed += 1;
            cell.finish();
        }
        assert_eq!(claimed + other.join().unwrap(), 2);
        assert_eq!(cell.done(), 2);
    });
}

#[test]
fn nobody_acts_on_an_entry_whose_owner_found_nobody_engaged() {
    model(|| {
        let table = PublishedTable::new(SharedMemory::private(PublishedTable::footprint(2)), 2);
        let engagement = Engagement::new(SharedMemory::private(Engagement::FOOTPRINT));
        // Stands for the memory the entry is about: 0 while it is registered, 1 once its owner has it back.
        let owned = SharedMemory::private(64);
        table.publish(1, 1, [10, 20, 30]);
        let peer = {
            let (table, engagement, owned) = (table.clone(), engagement.clone(), owned.clone());
            thread::spawn(move || {
                engagement.engage(9);
                if let Some(words) = table.look(1, 1) {
                    assert_eq!(words, [10, 20, 30], "never a mixture with the next entry");
                    assert_eq!(owned.word(0).load(Ordering::SeqCst), 0, "the memory is its owner's again");
                }
                engagement.release();
            })
        };
        table.withdraw(1);
        if !engagement.is_with(9) {
            owned.word(0).store(1, Ordering::SeqCst);
            table.publish(1, 2, [11, 21, 31]);
        }
        peer.join().unwrap();
    });
}

#[test]
fn a_step_on_a_board_is_read_before_it_is_overwritten() {
    model(|| {
        let [owner, reader] = [(); 2].map(|()| Board::new(SharedMemory::private(Board::FOOTPRINT)));
        let (shown, finished) = (owner.clone(), reader.clone());
        let reading = thread::spawn(move || {
            // The ninth step stands where the first stood.
            for step in [1u64, 9] {
                while !shown.is_shown(step) {
                    thread::yield_now();
                }
                assert!(shown.read(step, 0, 8, |bytes| assert_eq!(bytes, [step as u8; 8])));
                finished.finish(step);
            }
        });
        for step in [1u64, 9] {
            while reader.finished() < Board::finished_before(step, 8) {
                thread::yield_now();
            }
            owner.show(step, 8, reader.finished(), |space| space.fill(step as u8));
        }
        reading.join().unwrap();
    });
}
