//! Ends in processes of their own: this program once more, told by lines of JSON over its standard input what to do.
//!
//! ```text
//!   setup ──▶ opens the device
//!   ◀── its card    the measured end's card ──▶ connects    ◀── ready
//!   orders ──▶      ◀── how it ended
//! ```

use super::card::Card;
use super::end::{End, Shape, Source};
use super::helper::{self, Answer, Order, Role};
use super::places::Place;
use anyhow::{Context as _, Result, bail};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::channel;

/// What `ferrovia bench` is called with in such a process.
pub const TASK: &str = "fabric-end";

/// What such a process is told first.
#[derive(Debug, Deserialize, Serialize)]
pub struct Setup {
    /// To the device.
    pub invitation: String,
    /// Its number among those invited, from 1; also its side.
    pub place: u32,
    /// How many ends there are, itself among them.
    pub ends: usize,
    /// Settings of the device beside those of the environment.
    pub settings: Vec<(String, String)>,
    /// What its end is like.
    pub shape: Shape,
    /// What comes into its buffers.
    pub sources: Vec<Source>,
    /// The first of the measured end's connections that is for it.
    pub connection: usize,
    /// What it does.
    pub role: Role,
}

/// Such a process, seen from the measured end. Dropping it ends it: it reads that nobody writes to it any more.
pub struct Process {
    child: Child,
    orders: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Process {
    /// Starts one.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn start(setup: &Setup) -> Result<Self> {
        let program = std::env::current_exe().context("cannot tell where this program lies")?;
        let mut child = Command::new(&program)
            .args(["bench", TASK])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start {}", program.display()))?;
        let orders = child.stdin.take();
        let answers = child.stdout.take().context("the process has no output")?;
        let mut process = Self { child, orders, answers: BufReader::new(answers) };
        process.tell(setup)?;
        Ok(process)
    }

    /// Tells it something.
    ///
    /// # Errors
    /// If it has gone.
    pub fn tell(&mut self, what: &impl Serialize) -> Result<()> {
        let orders = self.orders.as_mut().context("the other end was told to finish")?;
        say(orders, what).context("the process of the other end has gone")
    }

    /// Waits for its card.
    ///
    /// # Errors
    /// Why there is none.
    pub fn card(&mut self) -> Result<Card> {
        self.hear()
    }

    /// Gives it the measured end's card and waits until it is ready.
    ///
    /// # Errors
    /// Why it is not.
    pub fn connect(&mut self, card: &Card) -> Result<()> {
        self.tell(card)?;
        self.hear()
    }

    /// What it says next, unless it says why it went no further.
    fn hear<T: DeserializeOwned>(&mut self) -> Result<T> {
        let heard: Result<T, String> = listen(&mut self.answers)?;
        heard.map_err(|why| anyhow::anyhow!(why).context("the other end"))
    }

    /// How it ended.
    ///
    /// # Errors
    /// If it did not say.
    pub fn end(mut self) -> Result<Answer> {
        self.orders = None;
        listen(&mut self.answers)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.orders = None;
        // It may be in the middle of a wait that nobody will end.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn say(to: &mut impl Write, what: &impl Serialize) -> Result<()> {
    writeln!(to, "{}", serde_json::to_string(what)?)?;
    Ok(to.flush()?)
}

fn listen<T: DeserializeOwned>(from: &mut impl BufRead) -> Result<T> {
    let mut line = String::new();
    if from.read_line(&mut line)? == 0 {
        bail!("the process of the other end has gone");
    }
    serde_json::from_str(&line).with_context(|| format!("not understood: {}", line.trim()))
}

/// The life of such a process.
///
/// # Errors
/// If it is not told what to do, or cannot say what came of it.
pub fn live() -> Result<()> {
    let (mut told, mut answers) = (std::io::stdin().lock(), std::io::stdout());
    let setup: Setup = listen(&mut told)?;
    let role = setup.role;
    let begun = begin(&setup, |card| {
        say(&mut answers, &Ok::<_, String>(card))?;
        listen(&mut told)
    });
    let mut end = match begun {
        Ok(end) => end,
        Err(error) => return say(&mut answers, &Err::<(), _>(format!("{error:#}"))),
    };
    let _place = Place::take(setup.place as usize, setup.ends);
    say(&mut answers, &Ok::<_, String>(()))?;
    drop(told);
    let (orders, ordered) = channel();
    std::thread::spawn(move || {
        let mut told = std::io::stdin().lock();
        // Until the measured end closes the pipe, or has gone.
        while let Ok(order) = listen::<Order>(&mut told) {
            if orders.send(order).is_err() {
                return;
            }
        }
    });
    say(&mut answers, &helper::serve(&mut end, role, &ordered))
}

fn begin(setup: &Setup, mut exchange: impl FnMut(&Card) -> Result<Card>) -> Result<End> {
    let config = boot::configuration_with(&setup.settings).context("the settings in the environment")?;
    let context = boot::accept(&setup.invitation, setup.place, &config).map_err(anyhow::Error::msg)?;
    let mut end = End::new(context, &setup.shape, u64::from(setup.place), setup.sources.clone())?;
    let theirs = exchange(&end.card()?)?;
    end.connect(&[theirs], setup.connection)?;
    Ok(end)
}
