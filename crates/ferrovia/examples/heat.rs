//! Heat spreading over a plate whose rows are shared by all ranks: `mpiexec -n 4 heat heat.png`.

use ferrovia::{Blocks, Communicator, Sum};
use std::error::Error;

const SIDE: usize = 360;
const STEPS: usize = 900;

/// The rows of `rank`, the last one excluded.
fn rows(rank: usize, size: usize) -> std::ops::Range<usize> {
    rank * SIDE / size..(rank + 1) * SIDE / size
}

/// Fills the first and the last row of `band` with those of the neighbours.
fn exchange_rims(world: &Communicator<'_>, band: &mut [f64]) -> ferrovia::Result<()> {
    let (upper_rim, rest) = band.split_at_mut(SIDE);
    let (own, lower_rim) = rest.split_at_mut(rest.len() - SIDE);
    let own = &*own;
    world.scope(|scope| {
        if let Some(above) = world.rank().checked_sub(1) {
            scope.irecv(upper_rim, above, 0)?;
            scope.isend(&own[..SIDE], above, 1)?;
        }
        if world.rank() + 1 < world.size() {
            scope.irecv(lower_rim, world.rank() + 1, 1)?;
            scope.isend(&own[own.len() - SIDE..], world.rank() + 1, 0)?;
        }
        Ok(())
    })
}

fn main() -> Result<(), Box<dyn Error>> {
    let universe = ferrovia::initialize()?;
    let world = universe.world();
    let (rank, size) = (world.rank() as usize, world.size() as usize);
    let mine = rows(rank, size);

    // A hot ring and a hot spot inside it; one row more at both ends for the neighbours' rims.
    let mut now = vec![0.0; (mine.len() + 2) * SIDE];
    for (y, row) in mine.clone().zip(now.chunks_exact_mut(SIDE).skip(1)) {
        for (x, cell) in row.iter_mut().enumerate() {
            let far = f64::hypot(x as f64 / SIDE as f64 - 0.5, y as f64 / SIDE as f64 - 0.5);
            *cell = f64::from(far < 0.1 || (0.2..0.32).contains(&far));
        }
    }
    let mut next = now.clone();
    for _ in 0..STEPS {
        exchange_rims(&world, &mut now)?;
        for at in SIDE..(mine.len() + 1) * SIDE {
            let west = if at % SIDE > 0 { now[at - 1] } else { 0.0 };
            let east = if at % SIDE < SIDE - 1 { now[at + 1] } else { 0.0 };
            next[at] = now[at] + 0.2 * (west + east + now[at - SIDE] + now[at + SIDE] - 4.0 * now[at]);
        }
        std::mem::swap(&mut now, &mut next);
    }

    let own = &now[SIDE..(mine.len() + 1) * SIDE];
    let total = world.all_reduce_value(own.iter().sum::<f64>(), Sum)?;
    let counts: Vec<usize> = (0..size).map(|rank| rows(rank, size).len() * SIDE).collect();
    let mut plate = vec![0.0; if rank == 0 { SIDE * SIDE } else { 0 }];
    world.gather_v(own, &mut plate, &Blocks::adjacent(&counts), 0)?;
    if rank == 0 {
        let path = std::env::args_os().nth(1).unwrap_or_else(|| "heat.png".into());
        let mut picture = png::Encoder::new(std::fs::File::create(path)?, SIDE as u32, SIDE as u32);
        picture.set_color(png::ColorType::Rgb);
        let pixels: Vec<u8> = plate.iter().flat_map(|heat| colour(*heat)).collect();
        picture.write_header()?.write_image_data(&pixels)?;
        println!("{STEPS} steps on {SIDE} x {SIDE} cells, {size} bands; {total:.1} units of heat");
    }
    Ok(())
}

/// From black through red and yellow to white.
fn colour(heat: f64) -> [u8; 3] {
    [0.0, 1.0, 2.0].map(|from| ((3.0 * heat - from).clamp(0.0, 1.0) * 255.0) as u8)
}
