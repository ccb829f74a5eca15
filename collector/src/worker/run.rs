//! The main function of a worker.

use super::confine;
use super::deposit::{self, Origin};
use super::open::{self, HostMachine, OpenedFiles};
use super::stopped::StoppedProcess;
use super::task::{Report, Task, TaskInput, Work};
use super::write::{BundleBuilder, KernelCore};
use crate::clock;
use crate::error::{Error, Result};
use crate::wire::Connection;
use backtrail_bundle::core::CoreContents;
use backtrail_process::RawTid;
use std::collections::HashMap;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};

/// Waits for one task from the daemon on standard input, and runs it. Returns without a task if the
/// daemon ends.
///
/// # Errors
/// When the daemon ends during the task. Other errors are reported to the daemon.
pub fn run() -> Result<()> {
    let failed = || Error::system("talk to the collector");
    let input = std::io::stdin().as_fd().try_clone_to_owned().map_err(failed())?;
    let daemon = Connection::of(input);
    let mut machine = HostMachine::read();
    let given = match ReceivedTask::receive(&daemon)? {
        Some(given) => given,
        None => return Ok(()),
    };
    machine.look_again();
    let report = match work(&daemon, given, machine) {
        Ok(complete) => Report::Finished { complete },
        Err(error) => Report::Failed {
            why: error.to_string(),
        },
    };
    daemon.send(&report, None).map_err(failed())
}

/// The task and its descriptors.
struct ReceivedTask {
    task: Task,
    files: HashMap<TaskInput, OwnedFd>,
}

impl ReceivedTask {
    /// Receives a task. `None`: the daemon has ended.
    fn receive(daemon: &Connection) -> Result<Option<Self>> {
        let failed = || Error::system("receive a task from the collector");
        let missing = || Error::Unable("only the collector starts this command".to_owned());
        let mut files = HashMap::new();
        loop {
            let (give, file) = match daemon.receive::<TaskInput>() {
                Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(None),
                received => received.map_err(failed())?,
            };
            match file {
                _ if give == TaskInput::Start => break,
                Some(file) => drop(files.insert(give, file)),
                None => return Err(missing()),
            }
        }
        let task = File::from(files.remove(&TaskInput::Task).ok_or_else(missing)?);
        let task = serde_json::from_reader(std::io::BufReader::new(task));
        Ok(Some(Self {
            task: task.map_err(|error| failed()(error.into()))?,
            files,
        }))
    }

    fn take(&mut self, give: TaskInput) -> Option<File> {
        self.files.remove(&give).map(File::from)
    }
}

/// Opens the files, enters the sandbox and writes the bundle. Returns whether it is complete.
fn work(daemon: &Connection, mut given: ReceivedTask, machine: HostMachine) -> Result<bool> {
    confine::limit()?;
    let missing = || Error::Unable("the collector gave no directory".to_owned());
    let draft = given.take(TaskInput::Draft).ok_or_else(missing)?;
    let history = given
        .take(TaskInput::History)
        .map(open::read_history)
        .transpose()?;
    let heap = given.take(TaskInput::Heap);
    let work = given.task.work.clone();
    let stopped = match work {
        Work::Snapshot { pid: Some(pid) } => {
            Some(StoppedProcess::stop(pid as RawTid).map_err(Error::Unable)?)
        }
        _ => None,
    };
    let modules = given.take(TaskInput::Modules);
    let mut opened = open::open(
        machine,
        &work,
        given.task.description.user,
        history.as_ref().map(|(recorded, _)| recorded),
        modules.as_ref().map(File::as_fd),
        draft.as_fd(),
    )?;
    let contents = stopped.as_ref().map(StoppedProcess::contents);
    drop(modules);
    confine::give_up(given.task.identity, draft.as_fd(), stopped.is_some())?;
    drop(draft);
    daemon
        .send(&Report::Confined, None)
        .map_err(Error::system("talk to the collector"))?;
    if let Work::Deposit {
        pid,
        user,
        program,
        service,
    } = &work
    {
        let packed = given.take(TaskInput::Packed).ok_or_else(missing)?;
        let origin = Origin {
            pid: *pid,
            user: *user,
            program: program.as_deref(),
            service: service.as_deref(),
        };
        deposit::take(&packed, &origin, given.task.allowance)?;
        return Ok(true);
    }
    write(
        daemon,
        &mut given,
        &mut opened,
        (history, heap),
        stopped.zip(contents),
    )
}

fn write(
    daemon: &Connection,
    given: &mut ReceivedTask,
    opened: &mut OpenedFiles,
    (history, heap): (Option<(crate::hardware::RecordedHistory, Vec<u8>)>, Option<File>),
    stopped: Option<(StoppedProcess, CoreContents)>,
) -> Result<bool> {
    let (head, rest) = (given.take(TaskInput::Head), given.take(TaskInput::Core));
    let begun = clock::monotonic();
    let mut draft = BundleBuilder::begin(&given.task, opened, history)?;
    let mut images = Vec::new();
    match &given.task.work {
        Work::Held { received, .. } => {
            draft.reading_begins();
            let bytes = head.map_or_else(|| Ok(Vec::new()), read_whole);
            let bytes = bytes.map_err(Error::system("read the core"))?;
            let mut want_rest = || {
                let _ = daemon.send(&Report::WantsCore, None);
            };
            draft.save_held(KernelCore {
                head: bytes.into(),
                rest,
                want_rest: &mut want_rest,
            })?;
            images = draft.save_code()?;
            draft.read_rest(*received);
        }
        Work::Unheld => draft.save_sample()?,
        Work::Snapshot { .. } => {
            if let Some((stopped, contents)) = stopped {
                if stopped.running != 0 {
                    draft.note_missing(format!("{} threads did not stop in time", stopped.running));
                }
                draft.save_core(contents, None)?;
                images = draft.save_code()?;
                drop(stopped);
                draft.read_rest(begun);
            }
        }
        Work::Deposit { .. } => {}
    }
    // The daemon releases the process at the deadline in any case.
    let _ = daemon.send(&Report::Read, None);
    let heap = heap.map(read_whole).transpose();
    if let Some(records) = heap.map_err(Error::system("read the heap records"))? {
        draft.add_heap_records(records)?;
    }
    draft.finish(images)
}

/// Reads a file without its position, which another process shares.
fn read_whole(file: File) -> std::io::Result<Vec<u8>> {
    use std::os::unix::fs::FileExt;
    let size = usize::try_from(file.metadata()?.len()).unwrap_or(usize::MAX);
    let mut bytes = vec![0; size];
    file.read_exact_at(&mut bytes, 0)?;
    Ok(bytes)
}
