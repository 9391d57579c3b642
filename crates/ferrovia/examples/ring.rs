//! A token goes once round all ranks, and each adds its number: `mpiexec -n 4 ring`.

fn main() -> ferrovia::Result<()> {
    let universe = ferrovia::initialize()?;
    let world = universe.world();
    let (rank, size) = (world.rank(), world.size());
    let (left, right) = ((rank + size - 1) % size, (rank + 1) % size);

    if size == 1 {
        println!("a ring needs two ranks; this is a world of one");
        return Ok(());
    }
    let mut token = [0_u32];
    if rank > 0 {
        world.recv(&mut token, left, 0)?;
    }
    token[0] += rank;
    world.send(&token, right, 0)?;
    if rank == 0 {
        world.recv(&mut token, left, 0)?;
        println!("the token came back with {} from {size} ranks", token[0]);
        assert_eq!(token[0], size * (size - 1) / 2);
    }
    Ok(())
}
