//! All-to-all by Bruck's method: blocks hop towards their goal by powers of two, many in a message.
//!
//! ```text
//! rank r holds, as block k, what goes to rank r + k:
//!
//! k = 0 1 2 3 4 5 6 7
//!       ^   ^   ^   ^      hop 1: k with bit 0 go to rank r + 1
//!         ^ ^     ^ ^      hop 2: k with bit 1 go to rank r + 2
//!             ^ ^ ^ ^      hop 4: k with bit 2 go to rank r + 4
//!
//! and in the end, as block k, what came from rank r - k.
//! ```
//!
//! Cost: `⌈log2 p⌉ (α + p/2 n β)`, with `n` bytes per block: for short blocks.
//!
//! Source: J. Bruck et al., IEEE TPDS 8(11), 1997, §3.

use crate::builder::Builder;
use crate::call::Alltoall;
use crate::schedule::{BufferId, Region, TypeSlot};
use crate::selection::Algorithm;

pub(crate) const ALGORITHM: Algorithm<Alltoall> = Algorithm {
    name: "bruck",
    summary: "blocks hop by powers of two, half of them in each message",
    cost: "ceil(log2 p) (a + p/2 n b)",
    fits: |_, _| true,
    build,
};

fn build(b: &mut Builder, call: &Alltoall) {
    let (rank, size) = (b.rank(), b.size());
    let block_bytes = call.recv.len_bytes();
    if block_bytes == 0 {
        return;
    }
    let blocks_len_bytes = |blocks: u32| u64::from(blocks) * block_bytes;
    let held = b.temp_bytes(blocks_len_bytes(size));
    let run = |first: u32, blocks: u32| Region::bytes(held, blocks_len_bytes(first), blocks_len_bytes(blocks));
    let (input, buffer, slot) = match call.in_place {
        true => (&call.recv, BufferId::Recv, TypeSlot::Recv),
        false => (&call.send, BufferId::Send, TypeSlot::Send),
    };
    b.copy(input.blocks(buffer, slot, rank, size - rank), run(0, size - rank));
    b.copy(input.blocks(buffer, slot, 0, rank), run(size - rank, rank));

    let most = size.next_power_of_two() / 2;
    let (leaving, arriving) = (b.temp_bytes(blocks_len_bytes(most)), b.temp_bytes(blocks_len_bytes(most)));
    let mut hop = 1;
    while hop < size {
        // Runs of blocks that hop, and where they begin in the message.
        let runs = || (hop..size).step_by(2 * hop as usize).map(move |first| (first, hop.min(size - first)));
        let total: u32 = runs().map(|(_, blocks)| blocks).sum();
        let mut at = 0;
        for (first, blocks) in runs() {
            b.copy(run(first, blocks), Region::bytes(leaving, blocks_len_bytes(at), blocks_len_bytes(blocks)));
            at += blocks;
        }
        let (before, after) = (b.before(hop), b.after(hop));
        b.recv(before, Region::bytes(arriving, 0, blocks_len_bytes(total)));
        b.send(after, Region::bytes(leaving, 0, blocks_len_bytes(total)));
        b.wait_all();
        let mut at = 0;
        for (first, blocks) in runs() {
            b.copy(Region::bytes(arriving, blocks_len_bytes(at), blocks_len_bytes(blocks)), run(first, blocks));
            at += blocks;
        }
        hop *= 2;
    }
    for distance in 0..size {
        let from = b.before(distance);
        b.copy(run(distance, 1), call.recv.blocks(BufferId::Recv, TypeSlot::Recv, from, 1));
    }
}
