//! Every algorithm against a naive oracle, in a simulated world.

mod blocks;
mod memory;
mod operations;
mod world;

mod all_to_all;
mod between_groups;
mod broadcast;
mod executor;
mod neighbourhoods;
mod reductions;
mod rooted;
mod selection;

use collectives::{Collective, Selection};

/// Communicator sizes every algorithm is run with.
const SIZES: [u32; 19] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 32, 33];

/// A selection per algorithm of a collective.
fn selections(collective: Collective) -> impl Iterator<Item = Selection> {
    let named = collectives::algorithms().filter(move |info| info.collective == collective);
    named.map(|info| {
        let mut selection = Selection::default();
        selection.prefer(info.collective, info.name).expect("the name is listed");
        selection
    })
}
