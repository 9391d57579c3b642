//! Work goes on while messages travel; the scope answers for the buffers: `mpiexec -n 4 nonblocking`.

fn main() -> ferrovia::Result<()> {
    let universe = ferrovia::initialize()?;
    let world = universe.world();
    let (rank, size) = (world.rank(), world.size());
    let mine = vec![f64::from(rank); 100_000];
    let mut theirs = vec![vec![0.0; mine.len()]; size as usize];

    let squares: f64 = world.scope(|scope| {
        let mut requests = Vec::new();
        for (from, room) in theirs.iter_mut().enumerate() {
            requests.push(scope.irecv(room, from as u32, 0)?);
        }
        for to in 0..size {
            // Nobody waits for this one; the scope will.
            scope.isend(&mine, to, 0)?;
        }
        let squares = (0..1_000_000).map(|n| f64::from(n).powi(2)).sum();
        while let Some((_, (numbers, status))) = ferrovia::wait_any(&mut requests)? {
            assert!(numbers.iter().all(|number| *number == f64::from(status.source)));
        }
        Ok(squares)
    })?;

    // Outside of the scope the buffers are ours again.
    let total: f64 = theirs.iter().flatten().sum();
    println!("rank {rank}: {total} from {size} ranks, {squares:.3e} meanwhile");
    Ok(())
}
