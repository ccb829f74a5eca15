//! The virtual machine: qemu in software emulation, two serial lines out, and a time limit.

use super::cannot;
use super::kernel::Kernel;
use super::report::Report;
use crate::Failure;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// How many of the console's last lines tell what went wrong.
const LAST_LINES: usize = 40;

/// Boots `kernel` with the archive `disk` and waits until the machine has ended itself.
///
/// The console goes to `RELEASE.console` in `folder`, what the tests report to `RELEASE.report`.
pub fn run(kernel: &Kernel, disk: &Path, folder: &Path, limit: Duration) -> Result<Report, Failure> {
    let console = folder.join(format!("{}.console", kernel.release));
    let reported = folder.join(format!("{}.report", kernel.release));
    let mut machine = command(kernel, disk, &console, &reported)
        .spawn()
        .map_err(|error| format!("cannot run qemu-system-x86_64: {error}"))?;
    let status = wait(&mut machine, limit)?;

    let bytes = fs::read(&reported).map_err(|error| cannot("read", &reported, &error))?;
    let report = Report::parse(&bytes);
    let complete = report.complete();
    match status {
        Some(status) if status.success() && complete.is_ok() => {}
        _ => {
            let why = match status {
                None => format!("was not through after {} s, and was ended", limit.as_secs()),
                Some(status) => format!("ended: {status}"),
            };
            println!(
                "Linux {}: the machine {why}. The end of its console:",
                kernel.release
            );
            let text = fs::read(&console).map_err(|error| cannot("read", &console, &error))?;
            println!("{}", last_lines(&String::from_utf8_lossy(&text), LAST_LINES));
        }
    }
    Ok(report)
}

fn command(kernel: &Kernel, disk: &Path, console: &Path, reported: &Path) -> Command {
    let mut command = Command::new("qemu-system-x86_64");
    command
        // KVM would be faster where it is, and would not be the same machine everywhere.
        .args(["-machine", "q35", "-accel", "tcg,thread=multi"])
        // Intel's processors of this family have a time-stamp counter of constant rate: perf then tells how its clock
        // follows from it (`cap_user_time_zero`).
        .args(["-cpu", "max,vendor=GenuineIntel,family=6,model=94,stepping=3"])
        .args(["-m", "1536", "-smp", "2", "-nodefaults", "-no-user-config"])
        .args(["-display", "none", "-no-reboot"])
        .arg("-serial")
        .arg(format!("file:{}", console.display()))
        .arg("-serial")
        .arg(format!("file:{}", reported.display()))
        .arg("-kernel")
        .arg(kernel.image())
        .arg("-initrd")
        .arg(disk)
        .args([
            "-append",
            "console=ttyS0 panic=-1 loglevel=4 tsc=reliable nowatchdog",
        ])
        .stdin(Stdio::null());
    command
}

/// `None`: it took too long, and was ended.
fn wait(machine: &mut Child, limit: Duration) -> Result<Option<ExitStatus>, Failure> {
    let begin = Instant::now();
    loop {
        let failed = |error| format!("cannot wait for qemu: {error}");
        if let Some(status) = machine.try_wait().map_err(failed)? {
            return Ok(Some(status));
        }
        if begin.elapsed() > limit {
            machine.kill().map_err(failed)?;
            machine.wait().map_err(failed)?;
            return Ok(None);
        }
        thread::sleep(Duration::from_millis(100));
    }
}

fn last_lines(text: &str, count: usize) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_that_hangs_is_ended() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        assert_eq!(wait(&mut child, Duration::from_millis(200)).unwrap(), None);
        let mut child = Command::new("true").spawn().unwrap();
        assert!(
            wait(&mut child, Duration::from_secs(20))
                .unwrap()
                .unwrap()
                .success()
        );
    }

    #[test]
    fn the_end_of_a_console() {
        assert_eq!(last_lines("a\nb\nc\n", 2), "b\nc");
        assert_eq!(last_lines("a\n", 2), "a");
    }
}
