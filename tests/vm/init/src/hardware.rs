//! The collector's hardware source with the stand-in driver. Its bundles are decoded on the host.

use crate::child::{self, Waiting};
use crate::feed::{Cut, Feed, recording};
use crate::raw;
use crate::{Outcome, Report, Test};
use backtrail_bundle::manifest::{Manifest, Meta, Source};
use backtrail_bundle::{Overwrite, Writer};
use backtrail_collector::hardware::{Frozen, Hardware, HardwareOptions};
use backtrail_collector::probe::{Probe, ProbeOptions};
use backtrail_pt::{Cpu, Pid};
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

pub const TESTS: &[Test] = &[
    Test {
        name: "hardware/plain",
        run: plain,
    },
    Test {
        name: "hardware/wrapped",
        run: wrapped,
    },
    Test {
        name: "hardware/migrating",
        run: migrating,
    },
    Test {
        name: "hardware/neighbors",
        run: neighbors,
    },
    Test {
        name: "hardware/at-the-crash",
        run: at_the_crash,
    },
    Test {
        name: "hardware/busy",
        run: busy,
    },
    Test {
        name: "hardware/flags",
        run: flags,
    },
    Test {
        name: "hardware/unplugged",
        run: unplugged,
    },
    Test {
        name: "hardware/gone",
        run: gone,
    },
    Test {
        name: "hardware/recalibrated",
        run: recalibrated,
    },
    Test {
        name: "hardware/lost-sideband",
        run: lost_sideband,
    },
];

const PATIENCE: Duration = Duration::from_secs(60);
/// Larger than the recordings of `crash` and `migrate`, smaller than that of `long`.
const RING: usize = 128 << 10;

fn options() -> HardwareOptions {
    HardwareOptions {
        ring: RING,
        ..HardwareOptions::default()
    }
}

fn start() -> Result<Hardware, String> {
    Hardware::start(&options()).map_err(|error| format!("the hardware source does not start: {error}"))
}

/// A program crashes, and its whole history is in the bundle.
fn plain(report: &mut Report) -> Outcome {
    let mut hardware = start()?;
    let pid = play(&mut hardware, "crash", 0, Cut::Continuous)?;
    let frozen = freeze(&mut hardware);
    if frozen.cpus.iter().any(|cpu| cpu.wrapped) {
        return Err("a ring that was not full is taken for one that was written over".into());
    }
    hand_out(report, "hardware/plain", &hardware, &frozen, pid, "crash", false)
}

/// The ring is smaller than the trace, and has its end.
fn wrapped(report: &mut Report) -> Outcome {
    let mut hardware = start()?;
    let pid = play(&mut hardware, "long", 1, Cut::Continuous)?;
    let frozen = freeze(&mut hardware);
    let ring = frozen.cpus.iter().find(|cpu| cpu.cpu == Cpu(1));
    if !ring.is_some_and(|cpu| cpu.wrapped && cpu.bytes().len() == RING) {
        return Err("a ring that was written over is not taken for one".into());
    }
    hand_out(report, "hardware/wrapped", &hardware, &frozen, pid, "long", true)
}

/// The program alternates between both processors, and its history is merged.
fn migrating(report: &mut Report) -> Outcome {
    let mut hardware = start()?;
    let pid = play(&mut hardware, "migrate", 0, Cut::Independent)?;
    let frozen = freeze(&mut hardware);
    if frozen.cpus.iter().filter(|cpu| !cpu.bytes().is_empty()).count() != 2 {
        return Err("not both processors have a trace: the test shows nothing".into());
    }
    hand_out(
        report,
        "hardware/migrating",
        &hardware,
        &frozen,
        pid,
        "migrate",
        false,
    )
}

/// Two programs share a processor: each instruction is attributed to the right program.
fn neighbors(report: &mut Report) -> Outcome {
    let mut hardware = start()?;
    let mut feed = Feed::open()?;
    let mut children = Vec::new();
    for program in ["migrate", "crash"] {
        let waiting = Waiting::start(&format!("/recordings/{program}"), 0)?;
        feed.give(waiting.pid(), &recording(program, Cut::Independent)?)?;
        children.push(waiting);
    }
    let pid = children[1].pid();
    let running = children
        .into_iter()
        .map(Waiting::begin)
        .collect::<Result<Vec<Child>, String>>()?;
    for child in running {
        until_dead(&mut hardware, child)?;
    }
    let frozen = freeze(&mut hardware);
    hand_out(
        report,
        "hardware/neighbors",
        &hardware,
        &frozen,
        pid,
        "crash",
        false,
    )
}

/// As in the daemon: the probe reports the crash, and the traces are frozen then.
fn at_the_crash(report: &mut Report) -> Outcome {
    let mut hardware = start()?;
    let freezer = hardware.freezer();
    let mut probe = Probe::attach(&ProbeOptions::default()).map_err(|error| error.to_string())?;
    let mut feed = Feed::open()?;
    let waiting = Waiting::start("/recordings/crash", 1)?;
    let pid = waiting.pid();
    feed.give(pid, &recording("crash", Cut::Continuous)?)?;
    let child = waiting.begin()?;
    let begin = Instant::now();
    let mut seen = None;
    while seen.is_none() && begin.elapsed() < PATIENCE {
        hardware.drain();
        probe.drain(&mut |crash| seen = Some(crash));
    }
    let crash = seen.ok_or("the probe does not tell of the crash")?;
    let frozen = freezer.freeze(Some(crash.cpu), Some(crash.at));
    hardware.drain();
    until_dead(&mut hardware, child)?;
    let first = frozen.cpus.first().map(|cpu| (cpu.cpu, cpu.paused_at));
    match first {
        Some((Cpu(1), paused)) if paused > crash.at => report.note(&format!(
            "hardware/at-the-crash: paused {} µs after the crash, in emulation",
            (paused - crash.at) / 1000
        ))?,
        other => return Err(format!("frozen first was {other:?}, crashed at {}", crash.at)),
    }
    hand_out(
        report,
        "hardware/at-the-crash",
        &hardware,
        &frozen,
        pid,
        "crash",
        false,
    )
}

/// Another user of the PMU: the error says so and what to do, and afterwards tracing works.
fn busy(_: &mut Report) -> Outcome {
    let other = raw::open(-1, 0, 1 << 0 | 1 << 10 | 1 << 13)
        .map_err(|error| format!("the other user cannot open its event: {error}"))?;
    let Err(error) = Hardware::start(&options()) else {
        return Err("it starts although somebody else uses the PMU".into());
    };
    let told = error.to_string();
    if !told.contains("it is in use") || told.contains('\n') {
        return Err(format!("it is told as: {told}"));
    }
    drop(other);
    start().map(drop)
}

/// Lost trace that the kernel reports is counted, and noted in the bundle.
fn flags(_: &mut Report) -> Outcome {
    let mut hardware = start()?;
    let pid = play(&mut hardware, "crash", 0, Cut::Continuous)?;
    // PERF_AUX_FLAG_TRUNCATED and PERF_AUX_FLAG_PARTIAL, of the next piece that ends.
    let place = "/sys/module/intel_pt/parameters/flags";
    fs::write(place, "5").map_err(|error| format!("cannot write {place}: {error}"))?;
    let frozen = freeze(&mut hardware);
    let counters = hardware.counters();
    if (counters.truncated, counters.partial) != (1, 1) {
        return Err(format!("counted was {counters:?}"));
    }
    let (_, written) = write(&hardware, &frozen, pid, "flags")?;
    for part in ["was lost", "has gaps"] {
        if !written.iter().any(|note| note.contains(part)) {
            return Err(format!("no note of the bundle says '{part}': {written:?}"));
        }
    }
    Ok(())
}

/// A processor is unplugged: its trace is kept. Plugged in again, it is traced again.
fn unplugged(report: &mut Report) -> Outcome {
    let mut hardware = start()?;
    let pid = play(&mut hardware, "crash", 1, Cut::Continuous)?;
    set_online(1, false)?;
    let went = until(&mut hardware, |hardware| hardware.counters().cpus_offlined == 1);
    let frozen = freeze(&mut hardware);
    let written = hand_out(
        report,
        "hardware/unplugged",
        &hardware,
        &frozen,
        pid,
        "crash",
        false,
    );
    set_online(1, true)?;
    let came = until(&mut hardware, |hardware| hardware.counters().cpus_onlined == 1);
    if !went || !came {
        return Err(format!("it is not followed: {:?}", hardware.counters()));
    }
    written?;
    let again = play(&mut hardware, "crash", 1, Cut::Continuous)?;
    let frozen = freeze(&mut hardware);
    let name = "hardware/unplugged-and-back";
    hand_out(report, name, &hardware, &frozen, again, "crash", false)
}

/// A process without a waiting parent has no id at its last switch out: the history is still
/// attributed to it.
fn gone(report: &mut Report) -> Outcome {
    let mut hardware = start()?;
    let mut feed = Feed::open()?;
    let waiting = Waiting::start("/recordings/crash", 0)?;
    let pid = waiting.pid();
    feed.give(pid, &recording("crash", Cut::Continuous)?)?;
    let ended = child::unwaited(|| {
        // The process is no longer a child, and cannot be waited for.
        drop(waiting.begin()?);
        let process = Path::new("/proc").join(pid.to_string());
        Ok(until(&mut hardware, |_| !process.exists()))
    })?;
    if !ended {
        return Err("the program does not end".into());
    }
    let frozen = freeze(&mut hardware);
    hand_out(report, "hardware/gone", &hardware, &frozen, pid, "crash", false)
}

/// The kernel refines its clock rate. Times before and immediately after the change are right.
fn recalibrated(report: &mut Report) -> Outcome {
    let mut hardware = start()?;
    let before = play(&mut hardware, "crash", 0, Cut::Continuous)?;
    // An error of one percent is then 10 ms, longer than the program runs.
    std::thread::sleep(Duration::from_secs(1));
    hardware.drain();
    let clock = Clock::wrong()?;
    std::thread::sleep(Duration::from_millis(500));
    let after = play(&mut hardware, "crash", 0, Cut::Continuous)?;
    let frozen = freeze(&mut hardware);
    for (pid, name) in [
        (before, "hardware/recalibrated-before"),
        (after, "hardware/recalibrated-after"),
    ] {
        hand_out(report, name, &hardware, &frozen, pid, "crash", false)?;
    }
    drop(clock);
    Ok(())
}

/// The kernel's clock with a wrong rate, by less than one percent, which is Linux's limit for a
/// refinement.
struct Clock {
    khz: u64,
}

impl Clock {
    const PLACE: &str = "/sys/module/intel_pt/parameters/khz";

    fn wrong() -> Result<Self, String> {
        let text = fs::read_to_string(Self::PLACE).map_err(|error| format!("no {}: {error}", Self::PLACE))?;
        let khz = text
            .trim()
            .parse()
            .map_err(|error| format!("{text} kHz: {error}"))?;
        let clock = Self { khz };
        clock.set(khz + khz / 110)?;
        Ok(clock)
    }

    fn set(&self, khz: u64) -> Outcome {
        fs::write(Self::PLACE, khz.to_string())
            .map_err(|error| format!("cannot write {}: {error}", Self::PLACE))
    }
}

impl Drop for Clock {
    fn drop(&mut self) {
        self.set(self.khz).ok();
    }
}

/// More sideband than the rings hold: the loss is counted and reported, and the following trace is
/// complete.
fn lost_sideband(report: &mut Report) -> Outcome {
    let mut hardware = start()?;
    // Each name that a thread sets is a record.
    let begin = Instant::now();
    let mut names = 0u64;
    while hardware.counters().lost == 0 && begin.elapsed() < PATIENCE {
        for _ in 0..100_000 {
            names += 1;
            let name = if names.is_multiple_of(2) { c"one" } else { c"other" };
            nix::sys::prctl::set_name(name).map_err(|error| format!("cannot take a name: {error}"))?;
        }
        hardware.drain();
    }
    let lost = hardware.counters().lost;
    if lost == 0 {
        return Err(format!(
            "{names} records are not too many: the test shows nothing"
        ));
    }
    report.note(&format!(
        "hardware/lost-sideband: {lost} of {names} records were lost"
    ))?;
    let pid = play(&mut hardware, "crash", 0, Cut::Continuous)?;
    let frozen = freeze(&mut hardware);
    hand_out(
        report,
        "hardware/lost-sideband",
        &hardware,
        &frozen,
        pid,
        "crash",
        false,
    )
}

/// Runs a program on a processor to its crash while its pieces are fed, and returns its process id.
fn play(hardware: &mut Hardware, program: &str, processor: usize, cut: Cut) -> Result<u32, String> {
    let mut feed = Feed::open()?;
    let waiting = Waiting::start(&format!("/recordings/{program}"), processor)?;
    let pid = waiting.pid();
    let pieces = recording(program, cut)?;
    feed.give(pid, &pieces)?;
    until_dead(hardware, waiting.begin()?)?;
    let fed = feed.fed(pid)?;
    if fed.left != 0 || fed.lost != 0 || fed.pieces != pieces.len() as u64 {
        return Err(format!("of {} pieces were fed {fed:?}", pieces.len()));
    }
    Ok(pid)
}

/// Reads the sideband, as the daemon's loop does, until the program has crashed.
fn until_dead(hardware: &mut Hardware, mut child: Child) -> Outcome {
    let mut status = None;
    until(hardware, |_| {
        status = child.try_wait().ok().flatten();
        status.is_some()
    });
    match status.and_then(|status| status.signal()) {
        Some(libc::SIGSEGV) => Ok(()),
        _ => {
            child.kill().ok();
            Err(format!("the program did not crash: {status:?}"))
        }
    }
}

fn until(hardware: &mut Hardware, mut reached: impl FnMut(&Hardware) -> bool) -> bool {
    let begin = Instant::now();
    while begin.elapsed() < PATIENCE {
        hardware.drain();
        if reached(hardware) {
            return true;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    false
}

fn freeze(hardware: &mut Hardware) -> Frozen {
    let frozen = hardware.freezer().freeze(None, None);
    hardware.drain();
    frozen
}

/// Writes and packs a bundle, and sends it to the host.
fn hand_out(
    report: &mut Report,
    test: &str,
    hardware: &Hardware,
    frozen: &Frozen,
    pid: u32,
    recording: &str,
    tail: bool,
) -> Outcome {
    let (bundle, _) = write(hardware, frozen, pid, &test.replace('/', "-"))?;
    let packed = bundle.with_extension("btz");
    let output = Command::new("/usr/bin/backtrail")
        .arg("pack")
        .arg(&bundle)
        .arg("-o")
        .arg(&packed)
        .output()
        .map_err(|error| format!("cannot run backtrail: {error}"))?;
    if !output.status.success() {
        let told = String::from_utf8_lossy(&output.stderr);
        return Err(format!("its bundle cannot be packed: {told}"));
    }
    report.bundle(test, &packed, recording, tail)
}

/// Writes a bundle of one process, and returns its path and notes.
fn write(
    hardware: &Hardware,
    frozen: &Frozen,
    pid: u32,
    name: &str,
) -> Result<(PathBuf, Vec<String>), String> {
    let target = Path::new("/tmp").join(name);
    let failed = |error: &dyn std::fmt::Display| format!("the bundle cannot be written: {error}");
    let writer = Writer::create(&target, Overwrite::Never).map_err(|error| failed(&error))?;
    let written = hardware
        .collect(frozen, Some(Pid(pid)))
        .write(&writer)
        .map_err(|error| failed(&error))?;
    let manifest = Manifest {
        cpu: written.machine.cpu,
        timing: written.machine.timing,
        tsc: Some(written.machine.tsc),
        filters: Vec::new(),
        processes: written.processes,
        cpus: written.cpus,
        core: None,
        meta: Meta {
            source: Source::Hardware,
            notes: written.notes.clone(),
            ..Meta::default()
        },
    };
    writer.finish(&manifest).map_err(|error| failed(&error))?;
    Ok((target, written.notes))
}

fn set_online(processor: usize, online: bool) -> Outcome {
    let path = format!("/sys/devices/system/cpu/cpu{processor}/online");
    fs::write(&path, if online { "1" } else { "0" }).map_err(|error| format!("cannot write {path}: {error}"))
}
