//! The client against our own server, against scripted foreign ones, and against liars.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use pmi::{Client, Event, Job, PmiError, Server, Timeouts};

/// Serves a job on threadless polling of one socket a rank until all have hung up.
fn serve(rank_count: u32) -> (Vec<OwnedFd>, JoinHandle<Vec<Event>>) {
    let pairs: Vec<_> = (0..rank_count).map(|_| UnixStream::pair().unwrap()).collect();
    let (mine, theirs): (Vec<_>, Vec<_>) = pairs.into_iter().unzip();
    let server = thread::spawn(move || {
        let server = std::sync::Mutex::new(Server::new(Job::on_one_node("job", &vec![0; mine.len()])));
        let odd_events = std::sync::Mutex::new(Vec::new());
        thread::scope(|scope| {
            for (rank, socket) in (0..).zip(&mine) {
                let (server, odd_events, mine) = (&server, &odd_events, &mine);
                scope.spawn(move || {
                    let mut bytes = [0; 4096];
                    while let Ok(count @ 1..) = (&mut &*socket).read(&mut bytes) {
                        let mut events = Vec::new();
                        let mut server = server.lock().unwrap();
                        server.receive(rank, &bytes[..count], &mut events).unwrap();
                        for event in events {
                            match event {
                                Event::Reply { rank, line } => {
                                    (&mut &mine[rank as usize]).write_all(line.as_bytes()).unwrap();
                                }
                                other => odd_events.lock().unwrap().push(other),
                            }
                        }
                    }
                });
            }
        });
        odd_events.into_inner().unwrap()
    });
    (theirs.into_iter().map(OwnedFd::from).collect(), server)
}

/// A launcher that answers line by line from a script.
fn scripted(answers: Vec<&'static str>) -> (OwnedFd, JoinHandle<Vec<String>>) {
    let (mine, theirs) = UnixStream::pair().unwrap();
    let script = thread::spawn(move || {
        let mut questions = Vec::new();
        let mut reader = BufReader::new(mine.try_clone().unwrap());
        let mut writer = mine;
        for answer in answers {
            let mut question = String::new();
            if reader.read_line(&mut question).unwrap() == 0 {
                break;
            }
            questions.push(question.trim_end().to_owned());
            writer.write_all(answer.as_bytes()).unwrap();
        }
        questions
    });
    (theirs.into(), script)
}

#[test]
fn ranks_exchange_addresses() {
    let rank_count = 5;
    let (sockets, server) = serve(rank_count);
    thread::scope(|scope| {
        for (rank, socket) in (0..).zip(sockets) {
            scope.spawn(move || {
                let mut client = Client::over(socket, rank, rank_count, Timeouts::default()).unwrap();
                assert_eq!(client.world().node_local_ranks().unwrap(), [0, 1, 2, 3, 4]);
                assert_eq!((client.world().job.as_str(), client.world().universe_size), ("job", Some(rank_count)));
                for round in 0..3 {
                    for item in 0..40 {
                        client.put(&format!("k{round}.{rank}.{item}"), &format!("v{rank}={item}")).unwrap();
                    }
                    client.barrier().unwrap();
                    for other in 0..rank_count {
                        let keys: Vec<_> = (0..40).map(|item| format!("k{round}.{other}.{item}")).collect();
                        let expected: Vec<_> = (0..40).map(|item| format!("v{other}={item}")).collect();
                        assert_eq!(client.get_all(&keys).unwrap(), expected);
                    }
                }
                assert!(matches!(client.get("nobody"), Err(PmiError::KeyMissing { .. })));
                assert_eq!(client.get("k0.0.0").unwrap(), "v0=0");
                client.finalize().unwrap();
            });
        }
    });
    assert!(server.join().unwrap().is_empty());
}

#[test]
fn abort_reaches_the_launcher() {
    let (mut sockets, server) = serve(1);
    let mut client = Client::over(sockets.remove(0), 0, 1, Timeouts::default()).unwrap();
    client.abort(17, "a message\nof two lines").unwrap();
    drop(client);
    let expected = Event::Abort { rank: 0, code: 17, message: "a message of two lines".to_owned() };
    assert_eq!(server.join().unwrap(), [expected]);
}

#[test]
fn a_plain_launcher_is_asked_step_by_step() {
    let (socket, script) = scripted(vec![
        "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n",
        "cmd=maxes rc=0 kvsname_max=256 keylen_max=64 vallen_max=1024\n",
        "cmd=my_kvsname rc=0 kvsname=kvs_1_0\n",
        "cmd=appnum rc=0 appnum=0\n",
        "cmd=universe_size rc=0 size=8\n",
        "cmd=get_result rc=0 msg=success value=(vector,(0,2,1))\n",
        "cmd=put_result rc=0 msg=success\n",
        "cmd=barrier_out rc=0\n",
        "cmd=get_result rc=-1 msg=key_b_not_found value=unknown\n",
        "cmd=finalize_ack rc=0\n",
    ]);
    let mut client = Client::over(socket, 1, 2, Timeouts::default()).unwrap();
    assert_eq!(client.world().node_local_ranks().unwrap(), [1]);
    assert_eq!(client.world().limits.value_bytes_max, 1023);
    client.put("a", "1").unwrap();
    client.barrier().unwrap();
    assert!(matches!(client.get("b"), Err(PmiError::KeyMissing { .. })));
    client.finalize().unwrap();
    let questions = script.join().unwrap();
    assert_eq!(questions[6], "cmd=put kvsname=kvs_1_0 key=a value=1");
    assert_eq!(questions[8], "cmd=get kvsname=kvs_1_0 key=b");
}

#[test]
fn a_port_is_connected_to() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let launcher = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut question = String::new();
        BufReader::new(stream.try_clone().unwrap()).read_line(&mut question).unwrap();
        stream.write_all(b"cmd=initack rc=0\ncmd=set size=3\ncmd=set rank=2\ncmd=set debug=0\n").unwrap();
        stream
            .write_all(
                b"cmd=response_to_init pmi_version=1 rc=0 ferrovia=1 kvsname=j appnum=1 \
                universe_size=3 keylen_max=9 vallen_max=9\n",
            )
            .unwrap();
        question
    });
    let env = |name: &str| match name {
        "PMI_PORT" => Some(address.clone()),
        "PMI_ID" => Some("2".to_owned()),
        _ => None,
    };
    let client = Client::from_env(env).unwrap().unwrap();
    assert_eq!((client.world().rank, client.world().size, client.world().appnum), (2, 3, 1));
    assert_eq!(client.world().node_local_ranks(), None);
    assert_eq!(launcher.join().unwrap(), "cmd=initack pmiid=2\n");
}

#[test]
fn what_cannot_be_published_is_refused_before_it_is_sent() {
    let (mut sockets, _server) = serve(1);
    let mut client = Client::over(sockets.remove(0), 0, 1, Timeouts::default()).unwrap();
    for (key, value) in [("", "v"), ("a b", "v"), ("k", "two\nlines"), ("k", ""), ("ü", "v"), ("k", &"x".repeat(1024))]
    {
        assert!(matches!(client.put(key, value), Err(PmiError::Unprintable { .. })), "{key:?} {value:?}");
    }
    client.put("k", &"x".repeat(1023)).unwrap();
    client.barrier().unwrap();
    assert_eq!(client.get("k").unwrap().len(), 1023);
}

#[test]
fn liars_and_the_silent() {
    let check = |answers: Vec<&'static str>, expected: &str| {
        let (socket, script) = scripted(answers.clone());
        let error =
            Client::over(socket, 0, 1, Timeouts::with_reply(Duration::from_millis(50))).unwrap_err().to_string();
        assert!(error.contains(expected) && !error.contains('\n'), "{answers:?} gave {error:?}");
        script.join().unwrap();
    };
    check(vec![], "closed the connection");
    check(vec!["login: \n"], "garbled");
    check(vec!["cmd=welcome\n"], "expected response_to_init");
    check(vec!["cmd=response_to_init rc=-1 msg=go away\n"], "go away");
    check(vec!["cmd=response_to_init rc=0 pmi_version=2\n"], "expected pmi_version=1");
    check(vec!["cmd=response_to_init rc=0\n", "cmd=maxes rc=0 keylen_max=many\n"], "number");
    check(vec!["cmd=response_to_init rc=0 ferrovia=1\n"], "number");

    let (_silent, socket) = UnixStream::pair().unwrap();
    let error = Client::over(socket.into(), 0, 1, Timeouts::with_reply(Duration::from_millis(50))).unwrap_err();
    assert!(matches!(error, PmiError::Timeout { .. }), "{error}");
}

#[test]
fn a_descriptor_without_a_launcher_behind_it() {
    let env = |name: &str| match name {
        "PMI_FD" => Some("9".to_owned()),
        "PMI_RANK" => Some("0".to_owned()),
        "PMI_SIZE" => Some("1".to_owned()),
        _ => None,
    };
    let file = |_| std::fs::File::open("/dev/null").map(OwnedFd::from);
    let error = Client::from_env_with(env, file, Timeouts::default()).unwrap_err().to_string();
    assert!(error.contains("not a socket"), "{error}");
    let closed = |_| Err(std::io::Error::from_raw_os_error(9));
    let error = Client::from_env_with(env, closed, Timeouts::default()).unwrap_err().to_string();
    assert!(error.contains("not open"), "{error}");
}
