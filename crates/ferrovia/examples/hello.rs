//! Every rank says who it is: `mpiexec -n 4 hello`.

fn main() -> ferrovia::Result<()> {
    let universe = ferrovia::initialize()?;
    let world = universe.world();
    println!("Hello from rank {} of {} on {}", world.rank(), world.size(), universe.processor_name());
    Ok(())
}
