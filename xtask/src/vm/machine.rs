//! The virtual machine: qemu in software emulation, two serial lines out, and a time limit.

use super::cannot;
use super::kernel::Kernel;
use super::report::MachineReport;
use crate::Failure;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// The kernel's command line.
const PARAMETERS: &str = "console=ttyS0 panic=-1 loglevel=4 tsc=reliable nowatchdog";
/// The number of console lines in a failure message.
const LAST_LINES: usize = 40;

/// The configuration of a machine.
pub struct Start<'a> {
    pub kernel: &'a Kernel,
    /// Its first file system.
    pub archive: &'a Path,
    /// Where its console goes, to `NAME.console`, and what its tests report, to `NAME.report`.
    pub folder: &'a Path,
    pub name: &'a str,
    /// Words for its first process.
    pub words: &'a [&'a str],
    /// A disk, byte by byte.
    pub disk: Option<&'a Path>,
}

/// A machine that runs. Dropped, it is ended.
pub struct Machine {
    process: Child,
    release: String,
    console: PathBuf,
    reported: PathBuf,
}

impl Machine {
    pub fn start(start: &Start<'_>) -> Result<Self, Failure> {
        let file = |kind: &str| start.folder.join(format!("{}.{kind}", start.name));
        let (console, reported) = (file("console"), file("report"));
        // Removes the output of an earlier machine of this name.
        fs::write(&reported, "").map_err(|error| cannot("write", &reported, &error))?;
        let process = command(start, &console, &reported)
            .spawn()
            .map_err(|error| format!("cannot run qemu-system-x86_64: {error}"))?;
        Ok(Self {
            process,
            release: start.kernel.release.clone(),
            console,
            reported,
        })
    }

    /// Waits for the machine's end and returns its report. After a failure, shows the end of its
    /// console.
    pub fn finish(mut self, limit: Duration) -> Result<MachineReport, Failure> {
        let status = wait(&mut self.process, limit)?;
        let report = self.report()?;
        match status {
            Some(status) if status.success() && report.complete().is_ok() => {}
            Some(status) => self.show(&format!("ended: {status}"))?,
            None => self.show(&format!(
                "did not end within {} s, and was killed",
                limit.as_secs()
            ))?,
        }
        Ok(report)
    }

    /// Returns its report up to now.
    pub fn report(&self) -> Result<MachineReport, Failure> {
        let bytes = fs::read(&self.reported).map_err(|error| cannot("read", &self.reported, &error))?;
        Ok(MachineReport::parse(&bytes))
    }

    /// Whether it has ended itself.
    pub fn has_ended(&mut self) -> Result<bool, Failure> {
        let status = self.process.try_wait();
        Ok(status
            .map_err(|error| format!("cannot wait for qemu: {error}"))?
            .is_some())
    }

    /// Takes its power: what it has not written to its disk is gone.
    pub fn lose_power(mut self) -> Result<MachineReport, Failure> {
        let failed = |error| format!("cannot end qemu: {error}");
        self.process.kill().map_err(failed)?;
        self.process.wait().map_err(failed)?;
        self.report()
    }

    /// Returns a failure with its reason and the machine's last output.
    pub fn show(&self, why: &str) -> Result<(), Failure> {
        println!(
            "Linux {}: the machine {why}. The end of its console:",
            self.release
        );
        let text = fs::read(&self.console).map_err(|error| cannot("read", &self.console, &error))?;
        println!("{}", last_lines(&String::from_utf8_lossy(&text), LAST_LINES));
        Ok(())
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        if self.process.try_wait().ok().flatten().is_none() {
            let _ = self.process.kill();
            let _ = self.process.wait();
        }
    }
}

fn command(start: &Start<'_>, console: &Path, reported: &Path) -> Command {
    let mut command = Command::new("qemu-system-x86_64");
    command
        // KVM would be faster, but not the same machine everywhere. The two processors take turns
        // in one thread. With a thread each, qemu 7.2 can execute code that the kernel has just
        // patched. Then Linux panics at a breakpoint that it has removed (docs/vm.md).
        .args(["-machine", "q35", "-accel", "tcg,thread=single"])
        // Intel's processors of this family have a time-stamp counter of constant rate. So perf
        // reports the conversion to its clock (`cap_user_time_zero`).
        .args(["-cpu", "max,vendor=GenuineIntel,family=6,model=94,stepping=3"])
        .args(["-m", "1536", "-smp", "2", "-nodefaults", "-no-user-config"])
        .args(["-display", "none", "-no-reboot"])
        .arg("-serial")
        .arg(format!("file:{}", console.display()))
        .arg("-serial")
        .arg(format!("file:{}", reported.display()))
        .arg("-kernel")
        .arg(start.kernel.image())
        .arg("-initrd")
        .arg(start.archive)
        .arg("-append")
        .arg(format!("{PARAMETERS} -- {}", start.words.join(" ")))
        .stdin(Stdio::null());
    if let Some(disk) = start.disk {
        command.arg("-drive").arg(format!(
            "file={},format=raw,if=virtio,cache=writeback",
            disk.display()
        ));
    }
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
    fn hanging_machine_is_killed() {
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
    fn last_lines_of_a_console_are_returned() {
        assert_eq!(last_lines("a\nb\nc\n", 2), "b\nc");
        assert_eq!(last_lines("a\n", 2), "a");
    }
}
