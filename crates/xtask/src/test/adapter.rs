//! What `FERROVIA_VERBS_*` choose where there is an adapter, and what `ferrovia info --fabric` says of it: asked in a
//! virtual machine, whose adapter is known.

use super::{Workshop, blocks};
use anyhow::{Context, Result, anyhow, bail};
use serde_json::Value;
use std::path::Path;

/// The machine's adapter by itself.
const PORT: &str = "rxe0:1, RoCE v2, GID 1 10.77.0.1";
const XRC_NOTE: &str = "XRC: the adapter has none of its own, an ordinary connection for each queue stands in for it";
const ETHERNET_NOTE: &str = "is on Ethernet, where nothing says that the hosts reach each other over it";
/// What Soft-RoCE offers, and with it we.
const ABILITIES: [&str; 8] = [
    "asynchronous",
    "atomics",
    "completion_descriptor",
    "datagrams",
    "multicast",
    "reliable_connections",
    "single_copy",
    "xrc",
];
/// Limits that are the driver's own, and how `ibv_devinfo` calls them.
const LIMITS: [(&str, &str); 5] = [
    ("address_handles_max", "max_ah"),
    ("completion_depth_max", "max_cqe"),
    ("completion_queues_max", "max_cq"),
    ("memory_regions_max", "max_mr"),
    ("protection_domains_max", "max_pd"),
];

/// Where the driver counts packets, and how long they are by themselves.
const PACKETS: &str = "/sys/class/infiniband/rxe0/ports/1/hw_counters/sent_pkts";
const MTU_BYTES: u64 = 4096;

/// Settings that are granted: the beginning of the description of the port, and its longest packet.
const GRANTED: [(&str, &str, u64); 3] = [
    ("FERROVIA_VERBS_DEVICE=rxe0:1 FERROVIA_VERBS_GID=1 FERROVIA_VERBS_PARTITION=0x7fff", PORT, MTU_BYTES),
    ("FERROVIA_VERBS_GID=0", "rxe0:1, RoCE v2, GID 0 fe80::", MTU_BYTES),
    ("FERROVIA_VERBS_DEVICE=rxe0 FERROVIA_VERBS_MTU=256", PORT, 256),
];

/// Settings that cannot be granted, and what is said of them.
const REFUSED: [(&str, &str); 3] = [
    ("FERROVIA_VERBS_GID=99", "rxe0:1: no GID at index 99 (FERROVIA_VERBS_GID)"),
    ("FERROVIA_VERBS_PARTITION=0x8001", "rxe0:1: not a member of partition 0x8001 (FERROVIA_VERBS_PARTITION)"),
    ("FERROVIA_VERBS_DEVICE=rxe0:2", "rxe0:1: FERROVIA_VERBS_DEVICE asks for another"),
];

/// The commands, for `sh`.
pub fn script(workshop: &Workshop) -> Result<String> {
    let programs = workshop.installation()?.join("bin");
    let (hello, long) = (workshop.program("hello")?, workshop.program("types_transfer")?);
    let info =
        |settings: &str, how: &str| format!("env {settings} '{}/ferrovia' info --fabric {how}", programs.display());
    // Neither a job that goes on nor one that hangs may keep the others from being tried.
    let job = |settings: &str, program: &Path| {
        let (mpiexec, program) = (programs.join("mpiexec"), program.display());
        format!("timeout 60 env FERROVIA_DEVICE=verbs {settings} '{}' -n 2 '{program}'", mpiexec.display())
    };
    let mut commands = vec!["ibv_devinfo -v -d rxe0".to_owned(), info("", ""), info("", "--json")];
    for (settings, ..) in GRANTED {
        let counted = format!("before=$(cat {PACKETS}); {}", job(settings, &long));
        commands.push(info(settings, "--json"));
        commands.push(format!("( {counted} && echo packets $(( $(cat {PACKETS}) - before )) )"));
    }
    for (settings, _) in REFUSED {
        commands.extend([info(settings, ""), job(settings, &hello)]);
    }
    let one = |gid: u32| format!("-n 1 env FERROVIA_VERBS_GID={gid} '{}'", hello.display());
    let apart = format!("'{}' {} : {}", programs.join("mpiexec").display(), one(0), one(1));
    commands.push(format!("timeout 60 env FERROVIA_DEVICE=verbs {apart}"));
    Ok(blocks::script(commands))
}

/// What the commands have said.
struct Said<'a> {
    text: &'a str,
    next: usize,
}

impl Said<'_> {
    /// The status and words of the next command.
    fn next(&mut self) -> Result<(Option<i32>, String)> {
        let index = self.next;
        self.next += 1;
        let block = blocks::block(self.text, index);
        block.map(|block| (block.code, block.output.to_owned())).map_err(|why| anyhow!("command {index} {why}"))
    }

    /// The words of the next command, which must have ended well.
    fn next_good(&mut self) -> Result<String> {
        match self.next()? {
            (Some(0), output) => Ok(output),
            (code, output) => bail!("command {} ended with {code:?}, saying\n{output}", self.next - 1),
        }
    }

    /// The block `verbs` of the next command's list of devices.
    fn next_device(&mut self) -> Result<Value> {
        let output = self.next_good()?;
        let devices: Value = serde_json::from_str(output.trim()).with_context(|| output.clone())?;
        let verbs = devices.as_array().into_iter().flatten().find(|device| device["name"] == "verbs");
        verbs.cloned().with_context(|| format!("no device verbs in {devices}"))
    }
}

/// Whether the commands have said what they should.
pub fn check(text: &str) -> Result<()> {
    let mut said = Said { text, next: 0 };
    let driver = said.next_good()?;
    let shown = said.next_good()?;
    let device = said.next_device()?;
    described(&device, &driver)?;
    printed(&shown, &device)?;
    let mut packets = Vec::new();
    for (settings, description, longest_bytes) in GRANTED {
        let device = said.next_device()?;
        let is_so = device["description"].as_str().is_some_and(|text| text.starts_with(description));
        if !is_so || device["limits"]["datagram_max_bytes"] != longest_bytes {
            bail!("with {settings} it should be {description}..., packets of {longest_bytes}: {device}");
        }
        let output = said.next_good()?;
        let count = output.lines().find_map(|line| line.strip_prefix("packets ")?.parse::<u64>().ok());
        match count.filter(|_| output.contains("No Errors")) {
            Some(count) => packets.push((longest_bytes, count)),
            None => bail!("with {settings} the job said\n{output}"),
        }
    }
    let of = |is_long: bool| packets.iter().filter(move |(bytes, _)| (*bytes == MTU_BYTES) == is_long);
    let (most, fewest) = (of(true).map(|(_, count)| *count).max(), of(false).map(|(_, count)| *count).min());
    // Sixteen times as many for long messages; short ones and acknowledgements are as many as ever.
    if most.map(|most| 3 * most) > fewest {
        bail!("the same data in shorter packets should take more of them: (longest packet, packets) {packets:?}");
    }
    for (settings, reason) in REFUSED {
        let shown = said.next_good()?;
        if !shown.contains(&format!("verbs  not used: {reason}\n")) {
            bail!("with {settings} it should say {reason:?}:\n{shown}");
        }
        refused(said.next()?, settings, reason)?;
    }
    refused(said.next()?, "a GID of IPv6 and one of IPv4", "there is no network on which all processes have a port")
}

/// A job without an adapter ends by itself, saying why, before anything runs.
fn refused((code, output): (Option<i32>, String), settings: &str, reason: &str) -> Result<()> {
    // 124: `timeout` had to end it.
    if matches!(code, None | Some(0 | 124)) || !output.contains(reason) || output.contains("No Errors") {
        bail!("with {settings} the job should end, saying {reason:?}; it ended with {code:?} and said\n{output}");
    }
    Ok(())
}

/// The adapter's abilities, limits and notes, the limits beside what the driver's own tool says.
fn described(device: &Value, driver: &str) -> Result<()> {
    if device["available"] != true || device["description"] != PORT {
        bail!("it should be available as {PORT}: {device}");
    }
    let abilities = device["capabilities"].as_object().context("capabilities")?;
    match abilities.iter().find(|(name, has)| has.as_bool() != Some(ABILITIES.contains(&name.as_str()))) {
        Some((name, has)) => bail!("the ability {name} is {has}"),
        None if ABILITIES.iter().any(|name| !abilities.contains_key(*name)) => bail!("an ability is missing: {device}"),
        None => {}
    }
    for (name, theirs) in LIMITS {
        let line = driver.lines().find_map(|line| line.trim().strip_prefix(theirs)?.strip_prefix(':'));
        let theirs: u64 = line.with_context(|| format!("ibv_devinfo without {theirs}: {driver}"))?.trim().parse()?;
        if device["limits"][name] != theirs {
            bail!("{name} should be the driver's {theirs}: {device}");
        }
    }
    let notes: Vec<&str> = device["notes"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    match [XRC_NOTE, ETHERNET_NOTE].iter().find(|note| !notes.iter().any(|text| text.starts_with(**note))) {
        Some(note) => bail!("no note {note:?} in {notes:?}"),
        None => Ok(()),
    }
}

/// For people the same is printed.
fn printed(shown: &str, device: &Value) -> Result<()> {
    let (_, block) = shown.split_once("verbs  ").with_context(|| format!("no block of verbs in\n{shown}"))?;
    let lines: Vec<Vec<&str>> = block.lines().map(|line| line.split_whitespace().collect()).collect();
    let has = |text: &str| lines.contains(&text.split_whitespace().collect());
    let limits = device["limits"].as_object().context("limits")?;
    let notes = device["notes"].as_array().context("notes")?.iter().filter_map(Value::as_str);
    let wanted = [PORT.to_owned(), format!("can {}", ABILITIES.join(", "))].into_iter();
    let wanted = wanted.chain(limits.iter().map(|(name, value)| format!("{name} {value}")));
    match wanted.chain(notes.map(str::to_owned)).find(|text| !has(text)) {
        Some(text) => bail!("{text:?} is not printed:\n{block}"),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_refusal_is_an_end_with_a_reason() {
        let reason = REFUSED[0].1;
        let end = |code, output: &str| refused((code, output.to_owned()), REFUSED[0].0, reason);
        assert!(end(Some(16), &format!("ferrovia: MPI_Init: {reason}\n")).is_ok());
        for (code, output) in [(Some(0), reason), (Some(124), reason), (None, reason), (Some(16), "something else")] {
            assert!(end(code, output).is_err(), "{code:?} {output}");
        }
    }

    #[test]
    fn what_is_said_of_an_adapter_is_looked_at_closely() {
        let driver = LIMITS.map(|(_, theirs)| format!("\t{theirs}:\t\t\t7\n")).concat();
        let abilities = ABILITIES.map(|name| (name.to_owned(), json!(true)));
        let good = json!({
            "available": true,
            "description": PORT,
            "capabilities": abilities.into_iter().chain([("mapped_memory".into(), json!(false))]).collect::<Value>(),
            "limits": LIMITS.map(|(ours, _)| (ours.to_owned(), json!(7))).into_iter().collect::<Value>(),
            "notes": [ETHERNET_NOTE, XRC_NOTE],
        });
        assert!(described(&good, &driver).is_ok());
        let mut shown = format!("verbs  {PORT}\n    can      {}\n", ABILITIES.join(", "));
        LIMITS.iter().for_each(|(ours, _)| shown.push_str(&format!("    {ours:<26} 7\n")));
        shown.push_str(&format!("    {ETHERNET_NOTE}\n    {XRC_NOTE}\n"));
        assert!(printed(&shown, &good).is_ok());
        for wrong in [PORT, "multicast, ", "completion_depth_max", XRC_NOTE] {
            assert!(printed(&shown.replace(wrong, ""), &good).is_err(), "{wrong}");
        }
        for (part, value) in [
            ("available", json!(false)),
            ("description", json!("rxe0:1, RoCE v2, GID 0 fe80::1")),
            ("notes", json!([ETHERNET_NOTE])),
            ("capabilities", json!({ "xrc": true })),
            ("limits", json!({ "address_handles_max": 8 })),
        ] {
            let mut wrong = good.clone();
            wrong[part] = value;
            assert!(described(&wrong, &driver).is_err(), "{part}");
        }
        let mut wrong = good;
        wrong["capabilities"]["mapped_memory"] = json!(true);
        assert!(described(&wrong, &driver).is_err());
    }
}
