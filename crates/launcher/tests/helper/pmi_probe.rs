//! A rank for the launcher's tests: speaks PMI, needs no MPI.

use std::io::Write;
use std::process::exit;
use std::time::Duration;

use pmi::{Client, PmiError};

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    if let Err(error) = play(&words) {
        eprintln!("pmi-probe: {error}");
        exit(99);
    }
}

fn play(words: &[&str]) -> Result<(), PmiError> {
    if let ["garbage", kind] = words {
        return garbage(kind);
    }
    let Some(mut client) = Client::from_env(|name| std::env::var(name).ok())? else {
        println!("a world of one");
        return Ok(());
    };
    let (rank, size) = (client.world().rank, client.world().size);
    match words {
        ["exchange", count] => {
            let count: u32 = count.parse().expect("the test gives a number");
            for item in 0..count {
                client.put(&format!("key-{rank}-{item}"), &format!("value={rank}+{item}"))?;
            }
            client.barrier()?;
            for other in 0..size {
                for item in 0..count {
                    let value = client.get(&format!("key-{other}-{item}"))?;
                    assert_eq!(value, format!("value={other}+{item}"));
                }
            }
            let local = client.world().node_local_ranks().map_or(0, |ranks| ranks.len());
            println!("rank {rank} of {size} appnum {} local {local}", client.world().appnum);
            client.finalize()?;
        }
        ["abort", code] => {
            client.barrier()?;
            if rank == 1 {
                client.abort(code.parse().expect("the test gives a number"), "told to")?;
            }
            sleep_for_ever();
        }
        // Rank 0 leaves without a word, the others wait for it.
        ["leave", "barrier"] if rank > 0 => client.barrier()?,
        ["leave", "sleep"] if rank > 0 => sleep_for_ever(),
        ["leave", _] => {}
        ["exit-after-finalize", code] => {
            client.barrier()?;
            client.finalize()?;
            if rank == 0 {
                exit(code.parse().expect("the test gives a number"));
            }
            std::thread::sleep(Duration::from_millis(300));
            println!("rank {rank} ended in peace");
        }
        ["barrier"] => {
            client.barrier()?;
            client.finalize()?;
        }
        _ => panic!("unknown part {words:?}"),
    }
    Ok(())
}

fn garbage(kind: &str) -> Result<(), PmiError> {
    let fd: i32 = std::env::var("PMI_FD").ok().and_then(|fd| fd.parse().ok()).expect("the launcher sets PMI_FD");
    let socket = pmi::adopt_inherited(fd).expect("the descriptor is open");
    let mut socket = std::os::unix::net::UnixStream::from(socket);
    let bytes = match kind {
        "binary" => vec![0xff; 100].into_iter().chain([b'\n']).collect(),
        "endless" => vec![b'a'; 1 << 20],
        "words" => b"hello, launcher\n".to_vec(),
        _ => b"cmd=no_such_command key=value\ncmd=finalize\n".to_vec(),
    };
    // The launcher may have hung up before it has read everything.
    let _ = socket.write_all(&bytes);
    if kind == "unknown" {
        return Ok(());
    }
    sleep_for_ever()
}

fn sleep_for_ever() -> ! {
    std::thread::sleep(Duration::from_secs(600));
    exit(98)
}
