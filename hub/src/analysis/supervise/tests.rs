//! Children that hang, eat memory, print garbage, crash, or refuse a bundle.

use super::*;
use crate::analysis::child::{AnalyzeArguments, analyze};
use crate::analysis::confine::{TaskFiles, confine};
use clap::Parser;
use std::time::Instant;

/// Arguments for the child of a test, one a line.
const ARGUMENTS: &str = "BACKTRAIL_TEST_ARGUMENTS";

fn limits() -> Limits {
    let mut limits = Limits {
        wall: Duration::from_secs(30),
        result: 1 << 20,
        ..Limits::default()
    };
    limits.child.memory_mib = 768;
    limits
}

/// A supervisor whose child is a shell script. `$5` is the file for the result.
fn script(text: &str, limits: Limits) -> Supervisor {
    Supervisor {
        program: "/bin/sh".into(),
        arguments: ["-c", text, "sh"].map(OsString::from).to_vec(),
        limits,
    }
}

/// A supervisor whose child is a test of this program that is ignored otherwise.
fn test_child(name: &str, limits: Limits) -> Supervisor {
    let program = std::env::current_exe().unwrap();
    let text = format!(
        "{ARGUMENTS}=$(printf '%s\\n' \"$@\") exec {} --ignored --exact {}::{name} --nocapture --test-threads 1",
        program.display(),
        module_path!().split_once("::").unwrap().1,
    );
    script(&text, limits)
}

async fn run(supervisor: &Supervisor, bundle: &str) -> (Result<Analysis, AnalysisError>, Progress) {
    let (sender, receiver) = watch::channel(Progress::default());
    let request = AnalysisRequest {
        bundle: bundle.into(),
        ..AnalysisRequest::default()
    };
    let result = supervisor.analyze(&request, &sender).await;
    let progress = receiver.borrow().clone();
    (result, progress)
}

async fn error(supervisor: &Supervisor) -> String {
    run(supervisor, "/nowhere").await.0.unwrap_err().to_string()
}

#[tokio::test]
async fn hanging_child_is_killed() {
    let mut limits = limits();
    limits.wall = Duration::from_millis(300);
    let start = Instant::now();
    let said = error(&script("exec sleep 60", limits)).await;
    assert!(said.contains("time limit"), "{said}");
    assert!(start.elapsed() < Duration::from_secs(10));
}

#[tokio::test]
async fn crash_of_the_child_is_one_sentence() {
    let said = error(&script("kill -SEGV $$", limits())).await;
    assert_eq!(said, "the analysis crashed by signal 11");
    let said = error(&script("kill -XCPU $$", limits())).await;
    assert_eq!(
        said,
        "the analysis was killed at its limit of 120 seconds of processor time"
    );
}

#[tokio::test]
async fn garbage_on_both_outputs_is_bounded() {
    let garbage = "head -c 300000 /dev/urandom; head -c 300000 /dev/urandom >&2; exit 7";
    let said = error(&script(garbage, limits())).await;
    assert!(said.starts_with("the analysis failed with status 7"), "{said}");
    assert!(said.chars().count() < 400 && !said.chars().any(char::is_control));
    let said = error(&script("exec yes", limits())).await;
    assert!(said.contains("wrote too much"), "{said}");
    let said = error(&script("yes >&2", limits())).await;
    assert!(said.starts_with("the analysis "), "{said}");
}

#[tokio::test]
async fn garbage_as_a_result_is_refused() {
    let said = error(&script("echo '{\"version\": 1' > \"$5\"", limits())).await;
    assert!(said.contains("unusable"), "{said}");
    let said = error(&script("exit 0", limits())).await;
    assert!(said.contains("no file was written"), "{said}");
    let said = error(&script("head -c 2000000 /dev/zero > \"$5\"", limits())).await;
    assert!(said.contains("more than 1048576 bytes"), "{said}");
}

#[tokio::test]
async fn reason_of_a_refusal_is_shown() {
    let said = error(&script(
        "echo 'trace.json: it describes no trace' >&2; exit 3",
        limits(),
    ))
    .await;
    assert_eq!(said, "the bundle is refused: trace.json: it describes no trace");
}

#[tokio::test]
async fn refusal_for_want_of_memory_is_no_fault_of_the_bundle() {
    for reason in [
        "the bundle: this is not a packed bundle (zstd could not allocate a decompression context)",
        "cannot write lean.btz: Allocation error : not enough memory",
        "cannot read core: Cannot allocate memory (os error 12)",
    ] {
        let said = error(&script(&format!("echo '{reason}' >&2; exit 3"), limits())).await;
        assert_eq!(said, "the analysis was killed at its memory limit of 768 MiB");
    }
}

#[tokio::test]
async fn progress_is_reported() {
    let lines = "echo noise; echo '{\"stage\":\"decoding\",\"done\":0.4}'; exit 1";
    let (_, progress) = run(&script(lines, limits()), "/nowhere").await;
    assert_eq!(progress.stage, "decoding");
    assert!((progress.done - 0.4).abs() < 1e-9);
}

#[tokio::test]
async fn child_that_eats_memory_ends_at_its_limit() {
    let said = error(&test_child("eats_memory", limits())).await;
    assert_eq!(said, "the analysis was killed at its memory limit of 768 MiB");
}

#[tokio::test]
async fn malformed_bundle_is_refused_by_a_confined_child() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("trace.json"), "{\"type\": 7}").unwrap();
    let supervisor = test_child("analyzes", limits());
    let (result, _) = run(&supervisor, folder.path().to_str().unwrap()).await;
    let said = result.unwrap_err().to_string();
    assert!(said.starts_with("the bundle is refused: "), "{said}");
    let (result, _) = run(&supervisor, "/nowhere/at/all").await;
    let said = result.unwrap_err().to_string();
    assert!(said.contains("/nowhere/at/all"), "{said}");
}

#[tokio::test]
async fn confined_child_has_its_own_files_and_no_network() {
    let folder = tempfile::tempdir().unwrap();
    let bundle = folder.path().join("bundle");
    std::fs::write(&bundle, "bundle").unwrap();
    let supervisor = test_child("is_confined", limits());
    let (result, _) = run(&supervisor, bundle.to_str().unwrap()).await;
    let said = result.unwrap_err().to_string();
    assert_eq!(said, "the bundle is refused: confined");
}

/// Decodes the bundle in `BACKTRAIL_TEST_BUNDLE`, and writes its analysis to
/// `BACKTRAIL_TEST_ANALYSIS`.
#[tokio::test]
#[ignore = "needs a recorded bundle"]
async fn recorded_bundle_is_analyzed() {
    let Some(bundle) = std::env::var_os("BACKTRAIL_TEST_BUNDLE") else {
        return;
    };
    let (sender, _) = watch::channel(Progress::default());
    let request = AnalysisRequest {
        bundle: bundle.into(),
        source_dirs: std::env::var_os("BACKTRAIL_TEST_SOURCES")
            .map(PathBuf::from)
            .into_iter()
            .collect(),
        ..AnalysisRequest::default()
    };
    let mut limits = limits();
    limits.child.memory_mib = 4096;
    limits.result = 64 << 20;
    let analysis = test_child("analyzes", limits)
        .analyze(&request, &sender)
        .await
        .unwrap();
    assert!(!analysis.crashed.frames.is_empty());
    if let Some(path) = std::env::var_os("BACKTRAIL_TEST_ANALYSIS") {
        std::fs::write(path, serde_json::to_vec_pretty(&analysis).unwrap()).unwrap();
    }
}

/// The command line of a test's child.
#[derive(Parser)]
struct ChildCommand {
    #[command(flatten)]
    arguments: AnalyzeArguments,
}

fn child_arguments() -> Option<AnalyzeArguments> {
    let lines = std::env::var(ARGUMENTS).ok()?;
    let command = ChildCommand::parse_from(std::iter::once("child").chain(lines.lines()));
    Some(command.arguments)
}

#[test]
#[ignore = "runs as the child of another test"]
fn analyzes() {
    let Some(arguments) = child_arguments() else {
        return;
    };
    if let Err((status, reason)) = analyze(&arguments) {
        eprintln!("{reason}");
        std::process::exit(status.into());
    }
    std::process::exit(0);
}

#[test]
#[ignore = "runs as the child of another test"]
fn eats_memory() {
    let Some(arguments) = child_arguments() else {
        return;
    };
    confine(&arguments.limits, &TaskFiles::default()).unwrap();
    let mut kept: Vec<Vec<u8>> = Vec::new();
    loop {
        kept.push(vec![1; 16 << 20]);
    }
}

#[test]
#[ignore = "runs as the child of another test"]
fn is_confined() {
    use std::net::{TcpListener, UdpSocket};
    let Some(arguments) = child_arguments() else {
        return;
    };
    let files = TaskFiles {
        readable: vec![arguments.bundle.as_path()],
        targets: vec![arguments.output.as_path()],
    };
    // The result of a list that permits all shows whether the kernel has Landlock.
    let root: &[&Path] = &[Path::new("/")];
    let limit = backtrail_sandbox::limit_files(root, root).unwrap();
    confine(&arguments.limits, &files).unwrap();
    if limit == backtrail_sandbox::FileLimit::Absent {
        println!("left out: the kernel has no Landlock");
    } else {
        for outside in [
            "/etc/passwd",
            "/proc/self/maps",
            "/proc/self/environ",
            "/dev/null",
        ] {
            let error = std::fs::File::open(outside).unwrap_err();
            assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied, "{outside}");
        }
        assert!(std::fs::read_dir("/").is_err());
        assert!(std::fs::write("/tmp/outside-of-the-task", "x").is_err());
        assert!(std::fs::write(&arguments.bundle, "x").is_err());
    }
    assert_eq!(std::fs::read_to_string(&arguments.bundle).unwrap(), "bundle");
    assert!(TcpListener::bind("127.0.0.1:0").is_err());
    assert!(UdpSocket::bind("127.0.0.1:0").is_err());
    assert!(std::os::unix::net::UnixStream::pair().is_err());
    assert!(std::process::Command::new("/bin/true").spawn().is_err());
    assert!(nix::sys::signal::kill(nix::unistd::getppid(), None).is_err());
    std::fs::write(&arguments.output, "x").unwrap();
    let output = arguments.output.clone();
    let thread = std::thread::spawn(move || std::fs::read_to_string(output).unwrap());
    assert_eq!(thread.join().unwrap(), "x", "a thread that reads files");
    eprintln!("confined");
    std::process::exit(EXIT_REFUSED.into());
}
