//! How long a message takes: two ranks throw vectors of growing size to and fro: `mpiexec -n 2 ping_pong`.

use std::time::Instant;

const ROUNDS: u32 = 200;

fn main() -> ferrovia::Result<()> {
    let universe = ferrovia::initialize()?;
    // Ranks beyond the second only watch.
    let Some(pair) = universe.world().split((universe.world().rank() < 2).then_some(0), 0)? else { return Ok(()) };
    if pair.size() < 2 {
        println!("ping-pong takes two ranks; this is a world of one");
        return Ok(());
    }
    if pair.rank() == 0 {
        println!("{:>10} {:>14} {:>14}", "bytes", "one way, µs", "MB/s");
    }
    for len in (0..=20).step_by(4).map(|power| 1_usize << power) {
        let mut ball = vec![0_u8; len];
        pair.barrier()?;
        let start = Instant::now();
        for _ in 0..ROUNDS {
            if pair.rank() == 0 {
                pair.send(&ball, 1, 0)?;
                pair.recv(&mut ball, 1, 0)?;
            } else {
                pair.recv(&mut ball, 0, 0)?;
                pair.send(&ball, 0, 0)?;
            }
        }
        let one_way_us = start.elapsed().as_secs_f64() * 1e6 / f64::from(2 * ROUNDS);
        if pair.rank() == 0 {
            println!("{len:>10} {one_way_us:>14.2} {:>14.1}", len as f64 / one_way_us);
        }
    }
    Ok(())
}
