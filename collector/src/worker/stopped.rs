//! Stops a running process, reads its registers and lets it continue (ptrace(2)).

use backtrail_bundle::core::{CoreContents, CoreThread, Registers};
use backtrail_process::{RawTid, core_dump, status};
use backtrail_pt::Tid;
use nix::errno::Errno;
use nix::sys::ptrace::{self, Options};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use std::collections::HashSet;
use std::time::{Duration, Instant};

/// How long threads may take to stop.
const STOP_TIMEOUT: Duration = Duration::from_secs(2);

/// A process whose threads are stopped until this is dropped. Only the thread that created it may
/// drop it.
pub(super) struct StoppedProcess {
    pid: RawTid,
    threads: Vec<RawTid>,
    /// Number of threads that did not stop in time.
    pub(super) running: usize,
}

impl StoppedProcess {
    /// Stops all threads of a process, including those that start at the same time.
    pub(super) fn stop(pid: RawTid) -> Result<Self, String> {
        let mut stopped = Self {
            pid,
            threads: Vec::new(),
            running: 0,
        };
        let deadline = Instant::now() + STOP_TIMEOUT;
        let mut known: HashSet<RawTid> = HashSet::new();
        loop {
            let new: Vec<RawTid> = status::threads(pid)
                .into_iter()
                .filter(|tid| !known.contains(tid))
                .collect();
            known.extend(&new);
            if new.is_empty() {
                break;
            }
            let before = stopped.threads.len();
            for tid in new {
                match seize(tid) {
                    Ok(()) => stopped.threads.push(tid),
                    // The thread has just ended.
                    Err(Errno::ESRCH) => {}
                    Err(error) => {
                        return Err(format!(
                            "process {pid} cannot be stopped ({error}); does a debugger have it?"
                        ));
                    }
                }
            }
            let begun = stopped.threads.get(before..).unwrap_or_default();
            stopped.running += begun.iter().filter(|tid| !await_stop(**tid, deadline)).count();
            if Instant::now() >= deadline {
                break;
            }
        }
        if stopped.threads.is_empty() {
            return Err(format!("there is no process {pid}"));
        }
        Ok(stopped)
    }

    /// Returns the contents for its core.
    pub(super) fn contents(&self) -> CoreContents {
        let thread = |tid: &RawTid| {
            let registers = ptrace::getregs(Pid::from_raw(*tid)).ok()?;
            Some(CoreThread {
                tid: Tid(*tid as u32),
                registers: to_registers(&registers),
                ..CoreThread::default()
            })
        };
        CoreContents {
            threads: self.threads.iter().filter_map(thread).collect(),
            ..core_dump::describe(self.pid, &[])
        }
    }
}

impl Drop for StoppedProcess {
    fn drop(&mut self) {
        let deadline = Instant::now() + STOP_TIMEOUT;
        for tid in &self.threads {
            let tid = Pid::from_raw(*tid);
            // A thread that was killed since then stays until its tracer has waited for it. Its
            // parent would wait for as long as this process runs.
            while ptrace::detach(tid, None).is_err() && Instant::now() < deadline {
                match waitpid(tid, Some(WaitPidFlag::__WALL | WaitPidFlag::WNOHANG)) {
                    Ok(WaitStatus::Exited(..) | WaitStatus::Signaled(..)) | Err(_) => break,
                    _ => std::thread::sleep(Duration::from_micros(200)),
                }
            }
        }
    }
}

fn seize(tid: RawTid) -> nix::Result<()> {
    let tid = Pid::from_raw(tid);
    ptrace::seize(tid, Options::empty())?;
    ptrace::interrupt(tid)
}

/// Waits until the thread stops. Returns `false` at the deadline. An earlier signal is passed on.
fn await_stop(tid: RawTid, deadline: Instant) -> bool {
    let tid = Pid::from_raw(tid);
    if ptrace::getregs(tid).is_ok() {
        return true;
    }
    loop {
        match waitpid(tid, Some(WaitPidFlag::__WALL | WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::PtraceEvent(..)) => return true,
            Ok(WaitStatus::Stopped(_, signal)) => {
                let _ = ptrace::cont(tid, signal);
                let _ = ptrace::interrupt(tid);
            }
            Ok(WaitStatus::StillAlive) if Instant::now() < deadline => {
                std::thread::sleep(Duration::from_micros(200));
            }
            Ok(WaitStatus::StillAlive) => return false,
            // The thread has ended.
            _ => return true,
        }
    }
}

fn to_registers(from: &libc::user_regs_struct) -> Registers {
    Registers {
        r15: from.r15,
        r14: from.r14,
        r13: from.r13,
        r12: from.r12,
        rbp: from.rbp,
        rbx: from.rbx,
        r11: from.r11,
        r10: from.r10,
        r9: from.r9,
        r8: from.r8,
        rax: from.rax,
        rcx: from.rcx,
        rdx: from.rdx,
        rsi: from.rsi,
        rdi: from.rdi,
        orig_rax: from.orig_rax,
        rip: from.rip,
        cs: from.cs,
        rflags: from.eflags,
        rsp: from.rsp,
        ss: from.ss,
        fs_base: from.fs_base,
        gs_base: from.gs_base,
        ds: from.ds,
        es: from.es,
        fs: from.fs,
        gs: from.gs,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::signal::{Signal, kill};
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};

    #[test]
    fn killed_process_can_be_reaped_by_its_parent() {
        let mut parent = Command::new("sh")
            .args(["-c", "sleep 60 & echo $!; wait"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut said = BufReader::new(parent.stdout.take().unwrap());
        said.read_line(&mut line).unwrap();
        let pid: RawTid = line.trim().parse().unwrap();
        let stopped = StoppedProcess::stop(pid).unwrap();
        kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap();
        drop(stopped);
        // This thread continues. If it still traced the process, the parent would wait forever.
        let begin = Instant::now();
        while parent.try_wait().unwrap().is_none() {
            assert!(
                begin.elapsed() < Duration::from_secs(20),
                "it cannot be waited for"
            );
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn process_is_read_and_continues() {
        let mut child = Command::new("sleep").arg("0.3").spawn().unwrap();
        std::thread::sleep(Duration::from_millis(50));
        let stopped = StoppedProcess::stop(child.id() as RawTid).unwrap();
        let contents = stopped.contents();
        assert_eq!((contents.threads.len(), stopped.running), (1, 0));
        assert!(contents.threads[0].registers.rip != 0 && !contents.segments.is_empty());
        drop(stopped);
        assert!(child.wait().unwrap().success());
        assert!(StoppedProcess::stop(child.id() as RawTid).is_err());
    }
}
