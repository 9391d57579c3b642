//! Factors of a number of processes, as close to each other as can be.
//!
//! MPI: §8.5.2

use std::cmp::Reverse;

use crate::error::{ErrorClass, Result};

/// Fills the zeros of `dims` so that the product of all is `node_count`. The numbers filled in do not
/// increase; of all such choices the one whose greatest and smallest number are closest is taken, then
/// the one with the smallest sum, then the one that begins with the greatest numbers.
///
/// # Errors
/// `Dims` for a negative number, or when the given ones do not divide `node_count`.
///
/// MPI: §8.5.2 `MPI_Dims_create`
pub fn dims_create(node_count: i32, dims: &mut [i32]) -> Result<()> {
    if node_count < 1 {
        return ErrorClass::Dims.fail(format!("nnodes = {node_count} is below 1"));
    }
    let mut rest = node_count;
    for (index, &given) in dims.iter().enumerate().filter(|(_, given)| **given != 0) {
        if given < 0 {
            return ErrorClass::Dims.fail(format!("dims[{index}] = {given} is negative"));
        }
        if rest % given != 0 {
            return ErrorClass::Dims.fail(format!(
                "the numbers given in dims = {dims:?} have no product that divides nnodes = {node_count}"
            ));
        }
        rest /= given;
    }
    let free_count = dims.iter().filter(|dim| **dim == 0).count();
    if free_count == 0 && rest > 1 {
        return ErrorClass::Dims.fail(format!("the product of dims = {dims:?} is not nnodes = {node_count}"));
    }
    let mut factors = factors(rest, free_count).into_iter();
    for dim in dims.iter_mut().filter(|dim| **dim == 0) {
        *dim = factors.next().expect("as many factors as zeros");
    }
    Ok(())
}

/// `count` factors of `number`, in descending order.
fn factors(number: i32, count: usize) -> Vec<i32> {
    // More factors than a number has prime ones are ones.
    let depth = count.min(i32::BITS as usize);
    let mut found = if depth == 0 { Vec::new() } else { closest(number, depth) };
    found.resize(count, 1);
    found
}

/// The `depth` factors of `number` that are closest: ranges of divisors are tried, shortest first, until one
/// holds factors that reach from its one end to the other.
fn closest(number: i32, depth: usize) -> Vec<i32> {
    let divisors = divisors(number);
    let prime = greatest_prime(number);
    let power = |divisor: i32| i64::from(divisor).saturating_pow(depth as u32);
    let is_low = |divisor: i32| power(divisor) <= i64::from(number);
    let is_high = |divisor: i32| power(divisor) >= i64::from(number) && divisor >= prime;
    let lows = (0..divisors.len()).filter(|at| is_low(divisors[*at]));
    let highs = || (0..divisors.len()).filter(|at| is_high(divisors[*at]));
    let mut ranges: Vec<(usize, usize)> = lows.flat_map(|low| highs().map(move |high| (low, high))).collect();
    let length = |(low, high): &(usize, usize)| divisors[*high] - divisors[*low];
    ranges.sort_unstable_by_key(length);
    for equally_long in ranges.chunk_by(|one, other| length(one) == length(other)) {
        let mut search = Search { divisors: &[], best: None, found: Vec::with_capacity(depth) };
        for &(low, high) in equally_long {
            search.divisors = &divisors[low..=high];
            search.look(number, depth);
        }
        if let Some((_, Reverse(best))) = search.best {
            return best;
        }
    }
    unreachable!("the number itself and ones are factors of it")
}

/// Looks through all lists of factors that lie in a range and touch both of its ends.
struct Search<'a> {
    /// Those that divide the number, in the range, ascending.
    divisors: &'a [i32],
    /// The best one so far, behind its sum: the least of all.
    best: Option<(i64, Reverse<Vec<i32>>)>,
    found: Vec<i32>,
}

impl Search<'_> {
    /// Judges all lists of `depth` factors of `number`.
    fn look(&mut self, number: i32, depth: usize) {
        let (low, high) = (self.divisors[0], self.divisors[self.divisors.len() - 1]);
        self.found.clear();
        self.found.push(high);
        if depth == 1 {
            if low == high {
                self.judge();
            }
            return;
        }
        let ends = i64::from(low) * i64::from(high);
        if i64::from(number) % ends == 0 {
            self.descend((i64::from(number) / ends) as i32, depth - 2, self.divisors.len());
        }
    }

    /// Completes what was found by `count` factors of `rest`, which are among the first `len` divisors, and
    /// the smallest of the range.
    fn descend(&mut self, rest: i32, count: usize, len: usize) {
        if count == 0 {
            if rest == 1 {
                self.found.push(self.divisors[0]);
                self.judge();
                self.found.pop();
            }
            return;
        }
        for at in (0..len).rev() {
            let factor = self.divisors[at];
            if i64::from(factor).saturating_pow(count as u32) < i64::from(rest) {
                break;
            }
            if rest % factor == 0 {
                self.found.push(factor);
                self.descend(rest / factor, count - 1, at + 1);
                self.found.pop();
            }
        }
    }

    fn judge(&mut self) {
        let sum = self.found.iter().copied().map(i64::from).sum();
        let found = (sum, Reverse(self.found.clone()));
        if self.best.as_ref().is_none_or(|best| found < *best) {
            self.best = Some(found);
        }
    }
}

/// The greatest prime number that divides it, 1 for 1.
fn greatest_prime(mut number: i32) -> i32 {
    let mut greatest = 1;
    let mut candidate = 2;
    while i64::from(candidate) * i64::from(candidate) <= i64::from(number) {
        if number % candidate == 0 {
            number /= candidate;
            greatest = candidate;
        } else {
            candidate += 1;
        }
    }
    greatest.max(number)
}

/// All divisors in ascending order.
fn divisors(number: i32) -> Vec<i32> {
    let small: Vec<i32> = (1..).take_while(|d| i64::from(*d) * i64::from(*d) <= i64::from(number)).collect();
    let small: Vec<i32> = small.into_iter().filter(|d| number % d == 0).collect();
    let large = small.iter().rev().map(|d| number / d).filter(|d| i64::from(*d) * i64::from(*d) > i64::from(number));
    small.iter().copied().chain(large).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(node_count: i32, dims: &[i32], expected: &[i32]) {
        let mut filled = dims.to_vec();
        dims_create(node_count, &mut filled).unwrap();
        assert_eq!(filled, expected, "{node_count} into {dims:?}");
    }

    #[test]
    fn the_examples_of_the_standard() {
        check(6, &[0, 0], &[3, 2]);
        check(7, &[0, 0], &[7, 1]);
        check(6, &[0, 3, 0], &[2, 3, 1]);
        let mut dims = [0, 3, 0];
        assert_eq!(dims_create(7, &mut dims).unwrap_err().class, ErrorClass::Dims);
        assert_eq!(dims, [0, 3, 0], "left as they were");
    }

    #[test]
    fn corners() {
        check(1, &[], &[]);
        check(1, &[0; 3], &[1, 1, 1]);
        check(12, &[12], &[12]);
        check(64, &[0; 3], &[4, 4, 4]);
        check(2 * 3 * 5 * 7 * 11, &[0; 3], &[15, 14, 11]);
        check(i32::MAX, &[0; 4], &[i32::MAX, 1, 1, 1]);
        // The closest, not those with the smallest greatest number: 45, 45, 17 and 24, 24, 13.
        check(34_425, &[0; 3], &[51, 27, 25]);
        check(7_488, &[0; 3], &[26, 18, 16]);
        // With many divisors, and with many small ones beside a great prime number.
        check(2_095_133_040, &[0; 2], &[46_189, 45_360]);
        check(2_095_133_040, &[0; 12], &[19, 17, 13, 11, 7, 5, 4, 4, 3, 3, 3, 3]);
        check((1 << 20) * 2039, &[0; 10], &[2039, 8, 8, 4, 4, 4, 4, 4, 4, 4]);
        let mut many = vec![0; 100];
        dims_create(1 << 30, &mut many).unwrap();
        assert!(many[..30].iter().all(|dim| *dim == 2) && many[30..].iter().all(|dim| *dim == 1));
        for (node_count, dims) in
            [(0, vec![0]), (-3, vec![0]), (4, vec![-2, 0]), (4, vec![2]), (4, vec![]), (6, vec![4, 0])]
        {
            let error = dims_create(node_count, &mut dims.clone()).unwrap_err();
            assert_eq!(error.class, ErrorClass::Dims, "{node_count} into {dims:?}");
        }
    }

    #[test]
    fn the_best_of_all_factorisations() {
        fn all(number: i32, count: usize, limit: i32) -> Vec<Vec<i32>> {
            if count == 1 {
                return if number <= limit { vec![vec![number]] } else { Vec::new() };
            }
            let firsts = (1..=limit.min(number)).filter(|f| number % f == 0);
            let lists = firsts
                .flat_map(|f| all(number / f, count - 1, f).into_iter().map(move |rest| [vec![f], rest].concat()));
            lists.collect()
        }
        for number in 1..=360 {
            for count in 1..=4 {
                let best = all(number, count, number)
                    .into_iter()
                    .min_by_key(|list| (list[0] - list[count - 1], list.iter().sum::<i32>(), Reverse(list.clone())))
                    .unwrap();
                check(number, &vec![0; count], &best);
            }
        }
    }
}
