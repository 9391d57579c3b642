//! Factors of a number of processes, as close to each other as can be.
//!
//! MPI: §8.5.2

use std::collections::HashSet;

use crate::error::{ErrorClass, Result};

/// Fills the zeros of `dims` so that the product of all is `node_count`. The numbers filled in do not
/// increase; of all such choices the one with the smallest greatest number is taken, then with the
/// smallest second one, and so on.
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
    let mut search = Search { divisors: divisors(number), impossible: HashSet::new() };
    let mut found = Vec::with_capacity(count);
    // More factors than a number has prime ones are ones.
    let depth = count.min(i32::BITS as usize);
    let is_found = count == 0 || search.descend(number, depth, number, &mut found);
    debug_assert!(is_found, "the number itself and ones always do");
    found.resize(count, 1);
    found
}

struct Search {
    divisors: Vec<i32>,
    /// What cannot be written as so many factors up to a limit.
    impossible: HashSet<(i32, usize, i32)>,
}

impl Search {
    /// Appends `count` factors of `number`, each at most `limit` and the one before: the first found
    /// is the best, because small ones are tried first.
    fn descend(&mut self, number: i32, count: usize, limit: i32, found: &mut Vec<i32>) -> bool {
        if count == 1 {
            found.push(number);
            return number <= limit;
        }
        if !self.impossible.contains(&(number, count, limit)) {
            for at in 0..self.divisors.len() {
                let factor = self.divisors[at];
                if factor > limit {
                    break;
                }
                let is_large_enough =
                    i64::from(factor).checked_pow(count as u32).is_none_or(|p| p >= i64::from(number));
                if number % factor != 0 || !is_large_enough {
                    continue;
                }
                let len = found.len();
                found.push(factor);
                if self.descend(number / factor, count - 1, factor, found) {
                    return true;
                }
                found.truncate(len);
            }
            self.impossible.insert((number, count, limit));
        }
        false
    }
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
                let best = all(number, count, number).into_iter().min().unwrap();
                check(number, &vec![0; count], &best);
            }
        }
    }
}
