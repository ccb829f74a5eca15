//! Translations that later recordings use.

use backtrail_tests::backtrail::{backtrail, command, repository};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

/// Checks that a bundle decodes without a gap, and that its values are those of the program.
fn check(bundle: &Path) {
    let check = backtrail(["check".as_ref(), bundle.as_os_str()]).unwrap();
    let clean = "no faults, 0 gap(s), 0 gap(s) of values, 0 unseen change(s)";
    assert!(check.stdout.contains(clean), "{check:?}");
}

/// Records a shell script with the cache directory `cache`, and checks the bundle.
fn recorded(folder: &Path, cache: &Path, options: &[&str]) {
    let bundle = folder.join("t.bundle");
    let script = "for i in 1 2 3; do x=$(/bin/echo $i | /usr/bin/wc -c); done; exit $((x + 40))";
    let output = command()
        .unwrap()
        .env("XDG_CACHE_HOME", cache)
        .args(["record", "--overwrite", "--full", "-o"])
        .arg(&bundle)
        .args(options)
        .args(["--", "/bin/sh", "-c", script])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(42), "{output:?}");
    check(&bundle);
}

/// Returns the files with translations.
fn files(cache: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(cache.join("backtrail/translations"));
    let paths = entries.into_iter().flatten().map(|entry| entry.unwrap().path());
    paths.collect()
}

#[test]
fn later_recordings_use_translations() {
    let folder = tempfile::tempdir().unwrap();
    let cache = folder.path().join("cache");
    for options in [&[][..], &["--values"]] {
        recorded(folder.path(), &cache, options);
        let kept = files(&cache);
        assert!(!kept.is_empty());
        // The next recording reads all files of its programs, and marks them as used.
        let old = SystemTime::now() - Duration::from_secs(1000);
        for file in &kept {
            File::options()
                .append(true)
                .open(file)
                .unwrap()
                .set_modified(old)
                .unwrap();
        }
        recorded(folder.path(), &cache, options);
        let is_used = |file: &&PathBuf| fs::metadata(file).unwrap().modified().unwrap() > old;
        let used = kept.iter().filter(is_used).count();
        assert!(used >= 4, "{used} of {}", kept.len());
    }
    // Damaged files are not used.
    for file in files(&cache) {
        let mut bytes = fs::read(&file).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        fs::write(&file, bytes).unwrap();
    }
    recorded(folder.path(), &cache, &[]);
    let none = folder.path().join("none");
    recorded(folder.path(), &none, &["--translations", "0"]);
    assert!(!none.exists());
}

#[test]
fn another_build_of_a_program_is_translated_again() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("worker");
    for options in [["-O1", "-DBUILD=1"], ["-O0", "-DBUILD=2"], ["-O1", "-DBUILD=1"]] {
        let mut compiler = Command::new("cc");
        // Without a build id, both builds have the same headers.
        compiler
            .args(options)
            .args(["-g", "-pthread", "-Wl,--build-id=none", "-o"]);
        compiler.arg(&program);
        compiler.arg(repository().join("tests/fixtures/processes/worker.c"));
        assert!(compiler.status().unwrap().success());
        let bundle = folder.path().join("worker.bundle");
        let output = command()
            .unwrap()
            .env("XDG_CACHE_HOME", folder.path().join("cache"))
            .args(["record", "--overwrite", "--exit-zero", "--full", "-o"])
            .arg(&bundle)
            .arg("--")
            .arg(&program)
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        check(&bundle);
    }
    assert!(!files(&folder.path().join("cache")).is_empty());
}
