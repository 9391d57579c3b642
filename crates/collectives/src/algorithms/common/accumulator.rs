//! The running value of a reduction and the buffers it moves through.
//!
//! A reduction step writes its right operand, so keeping operands in rank order means that the value
//! now stays where it is and now moves to the buffer that a message arrived in. That costs no copy:
//! the schedule just goes on with the other buffer.

use smallvec::SmallVec;

use crate::builder::Builder;
use crate::data::Data;
use crate::schedule::{BufferId, Region, TypeSlot};

/// Which operand stands left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// `arrived op value`: the message covers lower ranks.
    ArrivedFirst,
    /// `value op arrived`: the message covers higher ranks.
    ValueFirst,
    /// Whatever is cheapest; for commutative operations.
    Any,
}

impl Order {
    /// The order that rank order asks for.
    pub(crate) fn of_ranks(arrived_is_lower: bool) -> Order {
        if arrived_is_lower { Order::ArrivedFirst } else { Order::ValueFirst }
    }
}

/// The value so far, or a range of its elements.
#[derive(Clone, Debug)]
pub(crate) struct Accumulator {
    data: Data,
    here: BufferId,
    /// Where the input stands, if it must not be written.
    kept: Option<BufferId>,
    free: SmallVec<[BufferId; 4]>,
}

impl Accumulator {
    /// This rank's input. `result` says that the receive buffer may be used; otherwise an input that
    /// stands there is kept as it is.
    pub(crate) fn new(data: Data, in_place: bool, result: bool) -> Accumulator {
        let here = if in_place { BufferId::Recv } else { BufferId::Send };
        let free = (result && !in_place).then_some(BufferId::Recv).into_iter().collect();
        let kept = if in_place && result { None } else { Some(here) };
        Accumulator { data, here, kept, free }
    }

    /// What is reduced.
    pub(crate) fn data(&self) -> &Data {
        &self.data
    }

    /// Elements `first..first + count` of the value.
    pub(crate) fn range(&self, first: u64, count: u64) -> Region {
        element_range(&self.data, self.here, first, count)
    }

    /// The whole value.
    pub(crate) fn whole(&self) -> Region {
        self.range(0, self.data.count())
    }

    /// A buffer to receive into, until it is combined.
    pub(crate) fn take(&mut self, b: &mut Builder) -> BufferId {
        match self.free.pop() {
            Some(buffer) => buffer,
            None => b.temp_elements(self.data.count()),
        }
    }

    /// Arranges that combining whole values in these orders, one message at a time, ends in the
    /// receive buffer where it can.
    pub(crate) fn aim_at_result(&mut self, b: &mut Builder, orders: impl IntoIterator<Item = Order>) {
        let mut orders = orders.into_iter();
        let Some(first) = orders.next().filter(|_| self.here == BufferId::Send) else {
            return;
        };
        // The value leaves the input for the buffer of the first message or for one beside it; from
        // then on it changes between these two whenever it stands left.
        let mut in_first_taken = first != Order::ArrivedFirst;
        for order in orders {
            in_first_taken ^= order == Order::ValueFirst;
        }
        if !in_first_taken {
            let temp = b.temp_elements(self.data.count());
            self.free.push(temp);
        }
    }

    /// Combines elements `first..first + count` with what arrived at the same place of `arrived`.
    /// Elements outside the range are lost to the value.
    pub(crate) fn combine_range(&mut self, b: &mut Builder, arrived: BufferId, first: u64, count: u64, order: Order) {
        let message = element_range(&self.data, arrived, first, count);
        let value_is_input = self.kept == Some(self.here);
        let value_moves = match order {
            Order::ArrivedFirst => false,
            Order::ValueFirst => true,
            Order::Any => value_is_input,
        };
        if value_moves {
            b.reduce(self.range(first, count), message);
            if !value_is_input {
                self.free.push(self.here);
            }
            self.here = arrived;
            return;
        }
        if value_is_input {
            let own = self.take(b);
            b.copy(self.range(first, count), element_range(&self.data, own, first, count));
            self.here = own;
        }
        b.reduce(message, self.range(first, count));
        self.free.push(arrived);
    }

    /// Combines the whole value.
    pub(crate) fn combine(&mut self, b: &mut Builder, arrived: BufferId, order: Order) {
        self.combine_range(b, arrived, 0, self.data.count(), order);
    }

    /// Brings elements `first..first + count` to the receive buffer.
    pub(crate) fn settle_range(&mut self, b: &mut Builder, first: u64, count: u64) {
        let result = element_range(&self.data, BufferId::Recv, first, count);
        b.copy(self.range(first, count), result);
    }

    /// From here on the value is what stands in the receive buffer.
    pub(crate) fn continue_in_result(&mut self) {
        self.here = BufferId::Recv;
    }

    /// Brings the value to the receive buffer.
    pub(crate) fn settle(&mut self, b: &mut Builder) {
        self.settle_range(b, 0, self.data.count());
        self.here = BufferId::Recv;
    }
}

/// Elements of the receive type, in any buffer laid out by it.
pub(crate) fn element_range(data: &Data, buffer: BufferId, first: u64, count: u64) -> Region {
    data.elements(buffer, TypeSlot::Recv, first, count)
}
