//! π as the area under 4 / (1 + x²), each rank adding up its share: `mpiexec -n 4 pi`.

use ferrovia::Sum;

const INTERVALS: u32 = 10_000_000;

fn main() -> ferrovia::Result<()> {
    let universe = ferrovia::initialize()?;
    let world = universe.world();
    let width = 1.0 / f64::from(INTERVALS);
    let heights = (world.rank()..INTERVALS).step_by(world.size() as usize).map(|interval| {
        let x = (f64::from(interval) + 0.5) * width;
        4.0 / (1.0 + x * x)
    });
    let area = width * heights.sum::<f64>();
    let pi = world.all_reduce_value(area, Sum)?;
    if world.rank() == 0 {
        println!("π is about {pi:.12}, {:.1e} off", (pi - std::f64::consts::PI).abs());
    }
    assert!((pi - std::f64::consts::PI).abs() < 1e-9);
    Ok(())
}
