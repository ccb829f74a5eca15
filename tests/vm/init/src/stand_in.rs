//! The stand-in driver behaves as Intel PT's: sysfs, refused settings, AUX buffers in both modes.

use crate::child::{Waiting, killed_by};
use crate::feed::{Cut, Fed, Feed, Piece, recording};
use crate::raw::{Mode, Raw, open, pmu_type};
use crate::{Outcome, Report, Test};
use std::fs;
use std::io;
use std::time::Duration;

pub const TESTS: &[Test] = &[
    Test {
        name: "stand-in/sysfs",
        run: sysfs,
    },
    Test {
        name: "stand-in/refusals",
        run: refusals,
    },
    Test {
        name: "stand-in/exclusive",
        run: exclusive,
    },
    Test {
        name: "stand-in/snapshot",
        run: snapshot,
    },
    Test {
        name: "stand-in/snapshot-wraps",
        run: snapshot_wraps,
    },
    Test {
        name: "stand-in/full",
        run: full,
    },
    Test {
        name: "stand-in/truncated",
        run: truncated,
    },
    Test {
        name: "stand-in/migrating",
        run: migrating,
    },
    Test {
        name: "stand-in/unplugged",
        run: unplugged,
    },
];

const DEVICE: &str = "/sys/bus/event_source/devices/intel_pt";
/// The terms pt, tsc and branch.
const CONFIG: u64 = 1 << 0 | 1 << 10 | 1 << 13;
/// `PERF_RECORD_AUX` and its flags (`include/uapi/linux/perf_event.h`).
const RECORD_AUX: u32 = 11;
const FLAG_TRUNCATED: u64 = 1;
const FLAG_OVERWRITE: u64 = 2;
const PATIENCE: Duration = Duration::from_secs(30);

/// sysfs shows the same as `arch/x86/events/intel/pt.c`.
fn sysfs(_: &mut Report) -> Outcome {
    for (name, expected) in [
        ("format/pt", "config:0"),
        ("format/cyc", "config:1"),
        ("format/mtc", "config:9"),
        ("format/tsc", "config:10"),
        ("format/noretcomp", "config:11"),
        ("format/branch", "config:13"),
        ("format/mtc_period", "config:14-17"),
        ("format/cyc_thresh", "config:19-22"),
        ("format/psb_period", "config:24-27"),
        ("caps/psb_cyc", "1"),
        ("caps/mtc", "1"),
        ("caps/topa_output", "1"),
        ("caps/topa_multiple_entries", "1"),
        ("caps/num_address_ranges", "2"),
        ("caps/mtc_periods", "249"),
        ("caps/cycle_thresholds", "3fff"),
        ("caps/psb_periods", "3f"),
        ("nr_addr_filters", "2"),
    ] {
        let path = format!("{DEVICE}/{name}");
        let text = fs::read_to_string(&path).map_err(|error| format!("cannot read {path}: {error}"))?;
        if text.trim() != expected {
            return Err(format!("{path} is {}, not {expected}", text.trim()));
        }
    }
    for name in ["tsc_art_ratio", "max_nonturbo_ratio"] {
        let path = format!("{DEVICE}/{name}");
        let text = fs::read_to_string(&path).map_err(|error| format!("cannot read {path}: {error}"))?;
        if text.trim().trim_start_matches("0:").is_empty() || text.trim() == "0" {
            return Err(format!("{path} is {}", text.trim()));
        }
    }
    // A dynamic number, which is none of the numbers that the kernel has assigned permanently (0 to
    // 5).
    let number = pmu_type()?;
    if number <= 5 {
        return Err(format!("its type is {number}"));
    }
    Ok(())
}

/// Settings that the processor does not support are refused.
fn refusals(_: &mut Report) -> Outcome {
    for (what, config) in [
        ("PTWRITE", CONFIG | 1 << 12),
        ("an MTC period that there is none of", CONFIG | 1 << 9 | 1 << 14),
        ("a PSB period that there is none of", CONFIG | 9 << 24),
        ("branches without passing them through", 1 << 13),
        ("a bit without a meaning", CONFIG | 1 << 40),
    ] {
        refused(what, open(-1, 0, config), libc::EINVAL)?;
    }
    let filled = CONFIG | 1 << 1 | 1 << 9 | 3 << 14 | 1 << 19 | 5 << 24;
    open(-1, 0, filled)
        .map(drop)
        .map_err(|error| format!("what it can do is refused: {error}"))
}

/// One user per processor; no users of threads and of processors at the same time.
fn exclusive(_: &mut Report) -> Outcome {
    let first = open(-1, 0, CONFIG).map_err(|error| format!("the first user is refused: {error}"))?;
    refused("a second user", open(-1, 0, CONFIG), libc::EBUSY)?;
    refused("a user of a thread", open(0, -1, CONFIG), libc::EBUSY)?;
    let other = open(-1, 1, CONFIG).map_err(|error| format!("the other processor is refused: {error}"))?;
    drop((first, other));
    open(-1, 0, CONFIG)
        .map(drop)
        .map_err(|error| format!("the next user is refused: {error}"))
}

fn refused<T>(what: &str, result: io::Result<T>, expected: i32) -> Outcome {
    match result {
        Ok(_) => Err(format!("{what} is not refused")),
        Err(error) if error.raw_os_error() == Some(expected) => Ok(()),
        Err(error) => Err(format!("{what} is refused otherwise than it should: {error}")),
    }
}

/// The buffer has everything that was fed, the head is its end, and the times are this machine's.
fn snapshot(_: &mut Report) -> Outcome {
    let pieces = recording("crash", Cut::Continuous)?;
    let event = opened(Mode::Snapshot, 64 << 10)?;
    let (known, zero) = event.time_known();
    if !known || !zero {
        return Err(
            "this machine's perf does not tell how its clock follows from the time-stamp counter".into(),
        );
    }
    let fed = play(&event, "crash", &pieces)?;
    let expected = fed_bytes(&pieces);
    all_fed(fed, &pieces)?;
    if event.aux_head() != expected.len() as u64 {
        return Err(format!(
            "the head is {}, not {}",
            event.aux_head(),
            expected.len()
        ));
    }
    let aux = event.aux();
    same_but_time(&aux[..expected.len()], &expected, &pieces)?;
    if aux[expected.len()..].iter().any(|&byte| byte != 0) {
        return Err("something stands behind the head".into());
    }
    let flags = aux_flags(&event);
    if flags != [FLAG_OVERWRITE] {
        return Err(format!("the records of the buffer have the flags {flags:?}"));
    }
    Ok(())
}

/// The newest bytes are in the buffer, up to the head, which is an offset.
fn snapshot_wraps(_: &mut Report) -> Outcome {
    const SIZE: usize = 32 << 10;
    let pieces = recording("long", Cut::Continuous)?;
    let event = opened(Mode::Snapshot, SIZE)?;
    all_fed(play(&event, "long", &pieces)?, &pieces)?;
    let expected = fed_bytes(&pieces);
    let head = event.aux_head() as usize;
    if expected.len() < 2 * SIZE || head != expected.len() % SIZE {
        return Err(format!("the head is {head} after {} bytes", expected.len()));
    }
    let mut newest = event.aux();
    newest.rotate_left(head);
    // The last pieces; none is older than the buffer.
    let last = pieces.last().map_or(0, |piece| piece.bytes.len());
    let last = &pieces[pieces.len() - 1..][..usize::from(last <= SIZE)];
    let bytes = fed_bytes(last);
    if bytes.is_empty() {
        return Err("the last piece is longer than the buffer: the test shows nothing".into());
    }
    same_but_time(&newest[SIZE - bytes.len()..], &bytes, last)
}

/// Nothing is overwritten, and each half of the buffer is reported.
fn full(_: &mut Report) -> Outcome {
    let pieces = recording("crash", Cut::Continuous)?;
    let event = opened(Mode::Full, 64 << 10)?;
    all_fed(play(&event, "crash", &pieces)?, &pieces)?;
    let expected = fed_bytes(&pieces);
    if event.aux_head() != expected.len() as u64 {
        return Err(format!(
            "the head is {}, not {}",
            event.aux_head(),
            expected.len()
        ));
    }
    same_but_time(&event.aux()[..expected.len()], &expected, &pieces)?;
    match aux_flags(&event).as_slice() {
        [0] => Ok(()),
        flags => Err(format!("the records of the buffer have the flags {flags:?}")),
    }
}

/// Bytes without space are lost, and the kernel reports it.
fn truncated(_: &mut Report) -> Outcome {
    const SIZE: usize = 32 << 10;
    let pieces = recording("long", Cut::Continuous)?;
    let event = opened(Mode::Full, SIZE)?;
    let fed = play(&event, "long", &pieces)?;
    if fed.lost == 0 || fed.left != 0 {
        return Err(format!("nothing was lost: {fed:?}"));
    }
    if event.aux_head() != fed.bytes || fed.bytes > SIZE as u64 {
        return Err(format!(
            "the head is {} after {} bytes",
            event.aux_head(),
            fed.bytes
        ));
    }
    if !aux_flags(&event).iter().any(|flags| flags & FLAG_TRUNCATED != 0) {
        return Err("the kernel does not say that bytes were lost".into());
    }
    Ok(())
}

/// A piece goes to the buffer of the processor that the program is on when it leaves user code.
fn migrating(_: &mut Report) -> Outcome {
    let pieces = recording("migrate", Cut::Independent)?;
    let events = [
        opened(Mode::Snapshot, 64 << 10)?,
        opened_on(1, Mode::Snapshot, 64 << 10)?,
    ];
    let fed = play_on(&[&events[0], &events[1]], "migrate", &pieces)?;
    all_fed(fed, &pieces)?;
    // The program begins on processor 0, which it requests again; each turn ends with the request
    // for the other one.
    for (processor, event) in events.iter().enumerate() {
        let here: Vec<Piece> = pieces
            .iter()
            .enumerate()
            .filter(|(turn, _)| turn.saturating_sub(1) % 2 == processor)
            .map(|(_, piece)| piece.clone())
            .collect();
        let expected = fed_bytes(&here);
        if expected.is_empty() || event.aux_head() != expected.len() as u64 {
            return Err(format!(
                "the head of processor {processor} is {}, not {}",
                event.aux_head(),
                expected.len()
            ));
        }
        same_but_time(&event.aux()[..expected.len()], &expected, &here)?;
    }
    Ok(())
}

/// Unplugging a processor ends its event; after plugging in, it can be traced again.
fn unplugged(_: &mut Report) -> Outcome {
    let event = opened_on(1, Mode::Snapshot, 64 << 10)?;
    event
        .enable()
        .map_err(|error| format!("cannot enable the event: {error}"))?;
    set_online(1, false)?;
    let off = open(-1, 1, CONFIG);
    set_online(1, true)?;
    refused("an event of a processor that is off", off, libc::ENODEV)?;
    drop(event);
    opened_on(1, Mode::Snapshot, 64 << 10).map(drop)
}

/// Plugs a processor in or out.
fn set_online(processor: usize, online: bool) -> Outcome {
    let path = format!("/sys/devices/system/cpu/cpu{processor}/online");
    fs::write(&path, if online { "1" } else { "0" }).map_err(|error| format!("cannot write {path}: {error}"))
}

fn opened(mode: Mode, size: usize) -> Result<Raw, String> {
    opened_on(0, mode, size)
}

fn opened_on(processor: i32, mode: Mode, size: usize) -> Result<Raw, String> {
    Raw::open(processor, CONFIG, mode, size).map_err(|error| format!("cannot open the event: {error}"))
}

fn play(event: &Raw, program: &str, pieces: &[Piece]) -> Result<Fed, String> {
    play_on(&[event], program, pieces)
}

/// Runs the program, first on processor 0, while its pieces are fed, until it crashes.
fn play_on(events: &[&Raw], program: &str, pieces: &[Piece]) -> Result<Fed, String> {
    let mut feed = Feed::open()?;
    let waiting = Waiting::start(&format!("/recordings/{program}"), 0)?;
    let pid = waiting.pid();
    feed.give(pid, pieces)?;
    for event in events {
        event
            .enable()
            .map_err(|error| format!("cannot enable the event: {error}"))?;
    }
    let signal = killed_by(&mut waiting.begin()?, PATIENCE)?;
    for event in events {
        event
            .disable()
            .map_err(|error| format!("cannot disable the event: {error}"))?;
    }
    if signal != libc::SIGSEGV {
        return Err(format!("the program was killed by signal {signal}"));
    }
    feed.fed(pid)
}

fn all_fed(fed: Fed, pieces: &[Piece]) -> Outcome {
    let expected = Fed {
        pieces: pieces.len() as u64,
        bytes: fed_bytes(pieces).len() as u64,
        lost: 0,
        left: 0,
    };
    if fed != expected {
        return Err(format!("fed was {fed:?}, not {expected:?}"));
    }
    Ok(())
}

fn fed_bytes(pieces: &[Piece]) -> Vec<u8> {
    pieces
        .iter()
        .flat_map(|piece| piece.bytes.iter().copied())
        .collect()
}

/// Checks that the bytes are the pieces, with increasing times.
fn same_but_time(found: &[u8], expected: &[u8], pieces: &[Piece]) -> Outcome {
    let (mut found, mut base, mut last) = (found.to_vec(), 0, 0);
    for piece in pieces {
        for &at in &piece.times {
            let payload = base + at as usize..base + at as usize + 7;
            let mut time = [0; 8];
            time[..7].copy_from_slice(&found[payload.clone()]);
            let time = u64::from_le_bytes(time);
            if time <= last {
                return Err(format!(
                    "the time at byte {} is {time}, after {last}",
                    payload.start
                ));
            }
            last = time;
            found[payload].fill(0);
        }
        base += piece.bytes.len();
    }
    match found.iter().zip(expected).position(|(one, other)| one != other) {
        Some(at) => Err(format!("the buffer differs from what was fed at byte {at}")),
        None => Ok(()),
    }
}

/// Returns the flags of each record of the AUX buffer: the third of its fields.
fn aux_flags(event: &Raw) -> Vec<u64> {
    event
        .records()
        .into_iter()
        .filter(|(kind, _)| *kind == RECORD_AUX)
        .filter_map(|(_, body)| body.get(16..24)?.try_into().ok().map(u64::from_ne_bytes))
        .collect()
}
