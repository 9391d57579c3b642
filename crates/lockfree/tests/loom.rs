//! The shared structures under every interleaving and every legal reordering:
//! `RUSTFLAGS="--cfg loom" cargo test -p lockfree --test loom --release`.

#![cfg(loom)]

use base::sync::Ordering;
use lockfree::board::{CommonPiece, Places, Turn};
use lockfree::fastpath::{
    Fill, FixedReceiver, FixedSender, RecordReceiver, RecordSender, VariableTopReceiver, VariableTopSender, fixed,
    variable_top,
};
use lockfree::meeting::{Content, Held, Offer, QUEUES_MAX, QueueName, Shown, SlotName};
use lockfree::{
    Aboard, Announcements, Barrier, BlockReceiver, BlockSender, Board, Bounds, Brought, ClaimCell, Doorbell,
    Engagement, MailboxReceiver, MailboxSender, Meeting, PublishedTable, Reader, Record, SharedMemory, Shuttle,
    Shuttles,
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
                let record = Record { kind: number, short: 0, long: number.into(), ..Record::default() };
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
            receiver.return_credits(false);
        }
        writer.join().unwrap();
    });
}

/// A block that is begun anew for a reader that shares a processor, whenever its sender happens to find it empty.
#[test]
fn a_block_is_begun_anew_behind_its_reader() {
    model(|| {
        let memory = SharedMemory::private(BlockSender::footprint(1024));
        let mut sender = BlockSender::new(memory.clone(), 1024);
        let mut receiver = BlockReceiver::new(memory, 1024);
        // The next one finds room before it, if these are known to be read.
        for _ in 0..3 {
            assert!(sender.push(Record { kind: 1, ..Record::default() }, 1, |space| space.fill(1)));
        }
        let writer = thread::spawn(move || {
            for kind in 2..4 {
                sender.prepare(1, Reader::Elsewhere);
                assert!(sender.push(Record { kind, ..Record::default() }, 1, |space| space.fill(kind)));
                thread::yield_now();
            }
        });
        let mut kinds = Vec::new();
        for _ in 0..6 {
            receiver.pop(|record, payload| {
                assert_eq!(payload, [record.kind]);
                kinds.push(record.kind);
            });
            receiver.return_credits(false);
        }
        writer.join().unwrap();
        while receiver.pop(|record, _| kinds.push(record.kind)) {}
        assert_eq!(kinds, [1, 1, 1, 2, 3]);
    });
}

/// Who has read a shuttle writes it, and the other reads what was written then.
#[test]
fn a_shuttle_is_written_by_one_at_a_time() {
    model(|| {
        let blocks = [(); 2].map(|()| SharedMemory::private(BlockSender::footprint(1024)));
        let homes = [(); 2].map(|()| SharedMemory::private(Shuttles::footprint(64)));
        let mut ends = [0, 1].map(|me: usize| {
            let shuttles = Some(Shuttles::new(homes[me].clone(), homes[1 - me].clone(), None));
            let mut sender = BlockSender::new(blocks[1 - me].clone(), 1024);
            sender.equip(shuttles.clone());
            (sender, BlockReceiver::new(blocks[me].clone(), 1024).equipped(shuttles))
        });
        let record = Record { kind: 1, ..Record::default() };
        fn push(sender: &mut BlockSender, record: Record, shuttle: Shuttle, value: u8) {
            let aboard = Aboard { shuttle, offset: 0, lead: 0, is_last: true };
            assert!(sender.push_aboard(record, 8, aboard, |space, _| space.fill(value)));
        }
        push(&mut ends[0].0, record, Shuttle::Here, 1);
        let [(_, mut first), (mut sender, mut second)] = ends;
        let answering = thread::spawn(move || {
            let mut came = None;
            assert!(second.pop(|record, payload| {
                assert_eq!(payload, [1; 8]);
                came = record.brings;
            }));
            push(&mut sender, record, came.expect("it was the last record").shuttle, 2);
        });
        let mut came = None;
        for _ in 0..3 {
            first.pop(|record, payload| {
                assert_eq!(payload, [2; 8]);
                came = record.brings;
            });
            thread::yield_now();
        }
        answering.join().unwrap();
        first.pop(|record, _| came = record.brings);
        assert_eq!(came, Some(Brought { shuttle: Shuttle::Here, len_bytes: 8 }));
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
        let engagement = Engagement::new(&SharedMemory::private(Engagement::FOOTPRINT));
        // Stands for the memory the entry is about: 0 while it is registered, 1 once its owner has it back.
        let owned = SharedMemory::private(64);
        table.publish(1, 1, [10, 20, 30]);
        let peer = {
            let (table, engagement, owned) = (table.clone(), engagement.clone(), owned.clone());
            thread::spawn(move || {
                engagement.engage(9);
                if let Some(look) = table.look(1, 1) {
                    assert_eq!(look.words, [10, 20, 30], "never a mixture with the next entry");
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
fn nobody_acts_on_an_entry_seen_before_whose_owner_found_nobody_engaged() {
    model(|| {
        let table = PublishedTable::new(SharedMemory::private(PublishedTable::footprint(2)), 2);
        let engagement = Engagement::new(&SharedMemory::private(Engagement::FOOTPRINT));
        let owned = SharedMemory::private(64);
        table.publish(1, 1, [10, 20, 30]);
        let sight = table.remember(&table.look(1, 1).expect("it is shown"));
        let peer = {
            let (engagement, owned) = (engagement.clone(), owned.clone());
            thread::spawn(move || {
                engagement.engage(9);
                if sight.stands() {
                    assert_eq!(owned.word(0).load(Ordering::SeqCst), 0, "the memory is its owner's again");
                }
                engagement.release();
            })
        };
        table.withdraw(1);
        if !engagement.is_with(9) {
            owned.word(0).store(1, Ordering::SeqCst);
            // The same key again: it is another entry all the same.
            table.publish(1, 1, [11, 21, 31]);
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
            let place = Places::in_turns().take(step, 8, false);
            owner.show(step, place, false, reader.finished(), |space| space.fill(step as u8));
        }
        reading.join().unwrap();
    });
}

#[test]
fn a_common_value_is_changed_in_turn_and_read_whole_before_the_next_one_stands_there() {
    let piece = |step| CommonPiece { step, index: 0, len_bytes: 8 };
    model(move || {
        let [first, last] = [(); 2].map(|()| Board::new(SharedMemory::private(Board::FOOTPRINT)));
        let (before, own) = (first.clone(), last.clone());
        let other = thread::spawn(move || {
            // The third step stands where the first stood.
            for step in [1u64, 3] {
                while !before.has_passed_on(piece(step)) {
                    thread::yield_now();
                }
                assert!(before.change_common(piece(step), Turn::After(&before), |value| value[7] += 1));
                own.pass_on(piece(step));
                own.finish(step);
            }
        });
        for step in [1u64, 3] {
            while last.finished() < Board::finished_before_common(step) {
                thread::yield_now();
            }
            let turn = Turn::First { finished: last.finished() };
            assert!(first.change_common(piece(step), turn, |value| value.fill(step as u8)));
            first.pass_on(piece(step));
            while !last.has_passed_on(piece(step)) {
                thread::yield_now();
            }
            let mut whole = [step as u8; 8];
            whole[7] += 1;
            assert!(first.read_common(piece(step), &last, |value| assert_eq!(value, whole)));
            first.finish(step);
        }
        other.join().unwrap();
    });
}

/// What a receive or a send says in the models of the meeting.
fn said(word: u64) -> Content {
    let ranges = [(64 * word, 8), (0, 0), (0, 0), (0, 0)];
    Content { len_bytes: 8, ranges, count: 1, words: [word, 0], patient: false }
}

/// As soon as nobody else holds the latch.
fn latched<T>(work: impl Fn() -> Result<T, Held>) -> T {
    loop {
        match work() {
            Ok(done) => return done,
            Err(_) => thread::yield_now(),
        }
    }
}

#[test]
fn a_receive_and_a_send_meet_once_and_see_what_the_other_said() {
    const QUEUE: QueueName = QueueName { owner: 0, index: 0, generation: 1 };
    model(|| {
        let parts: Vec<_> = (0..2).map(|_| SharedMemory::private(Meeting::FOOTPRINT)).collect();
        let [owner, sender] = [0, 1].map(|me| Meeting::new(parts.clone(), me));
        assert_eq!(owner.open(0, 1, 7), Ok(true));
        let sending = thread::spawn(move || {
            let offered = latched(|| sender.offer(QUEUE, 7, 0, &said(5)));
            match offered {
                Offer::Met(receive, content) => {
                    // A receive has no words for the other side.
                    let said = Content { words: [0; 2], ..said(3) };
                    assert_eq!((receive, content), (SlotName { process: 0, index: 0 }, said));
                    sender.fill(QUEUE, receive, [8, 5]);
                }
                Offer::Waits => {}
                refused => panic!("{refused:?}"),
            }
            (sender, offered)
        });
        let shown = latched(|| owner.show(0, 0, &said(3)));
        if let Shown::Met(send, content) = shown {
            assert_eq!((send, content), (SlotName { process: 1, index: 0 }, said(5)));
            owner.finish(send, [1, 3]);
        }
        let early = owner.filled(0);
        let (sender, offered) = sending.join().unwrap();
        match shown {
            Shown::Met(..) => {
                assert_eq!(offered, Offer::Waits);
                assert_eq!(sender.finished(0), Some([1, 3]));
            }
            _ => {
                assert!(matches!(offered, Offer::Met(..)), "{shown:?} {offered:?}");
                assert_eq!(early.or_else(|| owner.filled(0)), Some([8, 5]));
            }
        }
    });
}

#[test]
fn a_receive_whose_queue_is_told_is_filled() {
    const QUEUE: QueueName = QueueName { owner: 0, index: 0, generation: 1 };
    model(|| {
        let parts: Vec<_> = (0..2).map(|_| SharedMemory::private(Meeting::FOOTPRINT)).collect();
        let [owner, sender] = [0, 1].map(|me| Meeting::new(parts.clone(), me));
        assert_eq!(owner.open(0, 1, 7), Ok(true));
        assert_eq!(owner.show(0, 0, &said(3)), Ok(Shown::Waits));
        let sending = thread::spawn(move || {
            let Ok(Offer::Met(receive, _)) = sender.offer(QUEUE, 7, 0, &said(5)) else { panic!("it is shown") };
            sender.fill(QUEUE, receive, [8, 5]);
        });
        let mut told = 0;
        for _ in 0..2 {
            owner.take_filled(QUEUES_MAX, |_| {
                told += 1;
                assert_eq!(owner.filled(0), Some([8, 5]));
            });
            thread::yield_now();
        }
        sending.join().unwrap();
        owner.take_filled(QUEUES_MAX, |_| {
            told += 1;
            assert_eq!(owner.filled(0), Some([8, 5]));
        });
        assert_eq!(told, 1, "once");
    });
}

/// One sends records, the other takes them; each is seen whole, in order, or not at all, and places are not reused
/// while they are read.
fn passes(ends: impl Fn() -> (Box<dyn FnOnce() + Send>, Box<dyn FnMut(&mut u8)>)) {
    let (send, mut take) = ends();
    let writer = thread::spawn(send);
    let mut next = 1u8;
    for _ in 0..4 {
        take(&mut next);
        thread::yield_now();
    }
    writer.join().unwrap();
}

fn ends<S: RecordSender + Send + 'static, R: RecordReceiver + 'static>(
    mut sender: S,
    mut receiver: R,
    count: u8,
) -> (Box<dyn FnOnce() + Send>, Box<dyn FnMut(&mut u8)>) {
    let send = move || {
        for number in 1..=count {
            if !sender.push(Record { kind: number, short: 0, long: number.into(), ..Record::default() }, 2, |space| {
                space.fill(number)
            }) {
                return;
            }
        }
    };
    let take = move |next: &mut u8| {
        receiver.pop(|record, payload| {
            assert_eq!((record.kind, record.long, payload), (*next, (*next).into(), &[*next; 2][..]));
            *next += 1;
        });
        if receiver.credits_due() {
            receiver.return_credits(false);
        }
    };
    (Box::new(send), Box::new(take))
}

#[test]
fn fixed_slots_pass_records_whole() {
    for fill in [Fill::Top, Fill::Bottom] {
        // One slot, so that it is used again while the first record is being taken.
        model(move || {
            passes(|| {
                let memory = SharedMemory::private(fixed::footprint(1));
                let sender = FixedSender::mapped(memory.clone(), fill, 1);
                ends(sender, FixedReceiver::new(memory, fill, 1), 2)
            });
        });
    }
}

#[test]
fn a_variable_top_block_passes_records_whole() {
    model(|| {
        passes(|| {
            let memory = SharedMemory::private(variable_top::footprint(1024));
            let sender = VariableTopSender::mapped(memory.clone(), 1024);
            ends(sender, VariableTopReceiver::new(memory, 1024), 2)
        });
    });
}

#[test]
fn a_block_is_resized_when_both_are_through_with_it() {
    model(|| {
        let memory = SharedMemory::private(BlockSender::footprint(2048));
        let bounds = Bounds { min_bytes: 1024, max_bytes: 2048, ..Bounds::default() };
        let mut sender = BlockSender::resizable(memory.clone(), 1024, bounds);
        let mut receiver = BlockReceiver::new(memory, 1024);
        assert!(sender.push(Record { kind: 1, ..Record::default() }, 1, |space| space.fill(1)));
        let writer = thread::spawn(move || {
            // Longer than the block takes: asks for a longer one, and goes when that was answered.
            for _ in 0..3 {
                if sender.push(Record { kind: 2, ..Record::default() }, 500, |space| space.fill(2)) {
                    return;
                }
                thread::yield_now();
            }
        });
        let mut next = 1;
        for _ in 0..5 {
            receiver.pop(|record, payload| {
                assert_eq!((record.kind, payload[0]), (next, next));
                next += 1;
            });
            if receiver.credits_due() {
                receiver.return_credits(false);
            }
            thread::yield_now();
        }
        writer.join().unwrap();
    });
}

#[test]
fn two_senders_share_a_mailbox() {
    model(|| {
        let memory = SharedMemory::private(lockfree::mailbox::FOOTPRINT);
        let mut receiver = MailboxReceiver::new(memory.clone());
        let writers = [0u32, 1].map(|from| {
            let mut sender = MailboxSender::new(memory.clone(), from);
            thread::spawn(move || {
                let record = Record { kind: 1, short: 0, long: from.into(), ..Record::default() };
                assert!(sender.push(record, 1, |space| space.fill(from as u8)));
            })
        });
        let mut seen = [false; 2];
        for _ in 0..3 {
            receiver.pop(|from, record, payload| {
                assert_eq!((record.long, payload), (from.into(), &[from as u8][..]));
                assert!(!std::mem::replace(&mut seen[from as usize], true), "once");
            });
            thread::yield_now();
        }
        for writer in writers {
            writer.join().unwrap();
        }
        while receiver.pop(|from, _, _| assert!(!std::mem::replace(&mut seen[from as usize], true), "once")) {}
        assert_eq!(seen, [true; 2]);
    });
}

/// Either a sender finds the room that its receiver makes, or the receiver hears that room is awaited.
#[test]
fn whoever_finds_a_mailbox_full_is_heard() {
    model(|| {
        let memory = SharedMemory::private(lockfree::mailbox::FOOTPRINT);
        let mut receiver = MailboxReceiver::new(memory.clone());
        let mut sender = MailboxSender::new(memory, 0);
        let push = |sender: &mut MailboxSender| sender.push(Record { kind: 1, ..Record::default() }, 0, |_| ());
        while push(&mut sender) {}
        assert!(receiver.take_awaited());
        let writer = thread::spawn(move || push(&mut sender));
        assert!(receiver.pop(|_, _, _| ()));
        let is_awaited = receiver.take_awaited();
        assert!(writer.join().unwrap() || is_awaited, "it would sleep for ever");
    });
}

/// A receiver stops polling a channel; the sender, who sees that, announces what it brings.
#[test]
fn nothing_is_left_in_a_channel_that_is_not_polled() {
    model(|| {
        let memory = SharedMemory::private(BlockSender::footprint(1024));
        let announcements = Announcements::new(SharedMemory::private(Announcements::footprint(2)), 2);
        let mut sender = BlockSender::new(memory.clone(), 1024);
        let mut receiver = BlockReceiver::new(memory, 1024);
        let theirs = announcements.clone();
        let writer = thread::spawn(move || {
            assert!(sender.push(Record { kind: 1, ..Record::default() }, 1, |space| space.fill(1)));
            // In place of the barrier in, or imposed on, `Doorbell::must_ring`.
            loom::sync::atomic::fence(Ordering::SeqCst);
            if sender.hint() != 0 {
                theirs.announce(1);
            }
        });
        receiver.set_hint(1);
        loom::sync::atomic::fence(Ordering::SeqCst);
        let mut found = receiver.pop(|_, _| ());
        writer.join().unwrap();
        if !found {
            announcements.take(|place| found |= place == 1 && receiver.pop(|_, _| ()));
        }
        assert!(found, "the last look missed it and so did the sender");
    });
}
