//! Mean and variance of numbers spread over the ranks, in one pass, by an operation of our own: `mpiexec -n 4 user_op`.

use ferrovia::{Basic, Element, Op};

/// What is known of a sample.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
struct Moments {
    count: f64,
    mean: f64,
    /// Sum of the squared distances from the mean.
    spread: f64,
}

// SAFETY: three `f64` without gaps, for which all bytes are good.
unsafe impl Element for Moments {
    const LEAF: Basic = Basic::Double;
    const LEAVES: usize = 3;
}

impl Moments {
    fn of(number: f64) -> Self {
        Moments { count: 1.0, mean: number, spread: 0.0 }
    }

    /// Chan, Golub and LeVeque, 1979.
    fn join(self, other: Moments) -> Moments {
        let count = self.count + other.count;
        if count == 0.0 {
            return self;
        }
        let distance = other.mean - self.mean;
        Moments {
            count,
            mean: self.mean + distance * other.count / count,
            spread: self.spread + other.spread + distance * distance * self.count * other.count / count,
        }
    }
}

fn main() -> ferrovia::Result<()> {
    let universe = ferrovia::initialize()?;
    let world = universe.world();
    let numbers = (1..=1000_u32).filter(|number| number % world.size() == world.rank());
    let mine = numbers.map(|number| Moments::of(f64::from(number))).fold(Moments::default(), Moments::join);

    let all = world.all_reduce_value(mine, Op::elementwise(true, Moments::join))?;
    if world.rank() == 0 {
        println!("{} numbers, mean {:.2}, variance {:.2}", all.count, all.mean, all.spread / all.count);
    }
    assert!((all.mean - 500.5).abs() < 1e-9 && (all.spread / all.count - 83_333.25).abs() < 1e-6);
    Ok(())
}
