//! Allgather by recursive doubling: partners at distance 1, 2, 4, ... exchange all they have.
//!
//! ```text
//! rank        0       1       2       3
//!             a       b       c       d
//! distance 1  ab <--> ab      cd <--> cd
//! distance 2  abcd <--------> abcd
//!                     abcd <--------> abcd
//! ```
//!
//! For powers of two. Cost: `log2 p α + (p - 1) n β`, with `n` bytes per block.
//!
//! Source: Thakur, Rabenseifner, Gropp, IJHPCA 19(1), 2005, §4.1.

use crate::algorithms::common::gathered::Gathered;
use crate::algorithms::common::layout::Layout;
use crate::builder::Builder;
use crate::call::{Allgather, Allgatherv};
use crate::schedule::Region;
use crate::selection::Algorithm;

pub(crate) const ALGORITHM: Algorithm<Allgather> = Algorithm {
    name: "recursive_doubling",
    summary: "partners at distance 1, 2, 4, ... exchange all they have",
    cost: "log2 p a + (p - 1) n b",
    fits: |place, _| place.size.is_power_of_two(),
    build: |b, call| append(b, call.own(), call.blocks()),
};

pub(crate) const ALGORITHM_V: Algorithm<Allgatherv> = Algorithm {
    name: "recursive_doubling",
    summary: "partners at distance 1, 2, 4, ... exchange all they have",
    cost: "log2 p a + (p - 1) n b",
    fits: |place, _| place.size.is_power_of_two(),
    build: |b, call| append(b, call.own(), call.blocks()),
};

fn append(b: &mut Builder, own: Option<Region>, blocks: Layout<'_>) {
    let gathered = Gathered::open(b, blocks, own);
    let mut distance = 1;
    while distance < b.size() {
        let peer = b.rank() ^ distance;
        // Groups of `distance` ranks that begin at multiples of it.
        let (ours, theirs) = (b.rank() & !(distance - 1), peer & !(distance - 1));
        let arriving = b.recv(peer, gathered.run(theirs, theirs + distance));
        b.send(peer, gathered.run(ours, ours + distance));
        b.wait(arriving);
        distance *= 2;
    }
    gathered.close(b);
}
