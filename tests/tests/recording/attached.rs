//! A process runs the same with an attached recorder as without.

use backtrail_tests::backtrail::{binary, command};
use backtrail_tests::build;
use backtrail_tests::programs::{Ending, Program, Variant};
use std::process::{Command, Stdio};

/// Existing threads have registered restartable sequences, and new threads must do so too. No
/// starting process may stay in the recorder's code after detach.
#[test]
fn process_that_starts_others_survives_attach() {
    const STARTS: Program = Program {
        name: "starts",
        source: "../killed/starts.c",
        flags: &["-O1", "-pthread"],
        variants: &[Variant::Pie],
        ending: Ending::Exit(0),
        deterministic: false,
    };
    const ATTACHED: usize = 15;
    let program = build(&STARTS, Variant::Pie).unwrap();
    // Builds the binary first, because the program runs only briefly.
    binary().unwrap();
    let folder = tempfile::tempdir().unwrap();
    for engine in ["translate", "step"] {
        let process = Command::new(&program)
            // Seconds, longer than all recordings take beside other tests.
            .arg("20")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let pid = process.id().to_string();
        for _ in 0..ATTACHED {
            let mut recorder = command().unwrap();
            recorder.args(["record", "--overwrite", "--engine", engine, "--for", "50ms"]);
            recorder
                .args(["--pid", &pid, "-o"])
                .arg(folder.path().join("bundle"));
            let output = recorder.output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{engine}: {said}");
        }
        let output = process.wait_with_output().unwrap();
        let said =
            String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{engine}: {}: {said}", output.status);
    }
}
