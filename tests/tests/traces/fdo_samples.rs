//! The samples of LLVM's own tests, without their call chains, as profiles for the next build.

use crate::fdo_contexts::{PROFGEN, by_llvm, fdo, is_installed};
use backtrail_tests::captures;

/// The line before the sample of a set whose innermost frame is in the prologue of its function.
const PROLOGUE: &str = "// Test for leaf frame ending up in prolog";

#[test]
fn samples_without_call_chains_count_as_in_llvm_profgen() {
    let Some(folder) = captures::folder().filter(|_| is_installed(PROFGEN)) else {
        return;
    };
    let folder = folder.join("lbr/llvm-profgen");
    for (name, options) in [
        ("inline-noprobe", &[][..]),
        ("inline-noprobe2", &[]),
        ("inline-cs-noprobe", &["--ignore-stack-samples"]),
        ("inline-cs-pseudoprobe", &["--ignore-stack-samples"]),
        ("recursion-compression-noprobe", &["--ignore-stack-samples"]),
    ] {
        let binary = folder.join(format!("{name}.perfbin"));
        let script = folder.join(format!("{name}.perfscript"));
        let found = fdo("autofdo", &[], &binary, &script).stdout;
        assert!(found.lines().count() > 10, "{name}: {found}");
        assert_eq!(found, by_llvm(&binary, &script, options), "{name}");
    }
}

/// `llvm-profgen` drops the sample also without call chains.
#[test]
fn sample_in_a_prologue_is_counted() {
    let Some(folder) = captures::folder().filter(|_| is_installed(PROFGEN)) else {
        return;
    };
    let folder = folder.join("lbr/llvm-profgen");
    let binary = folder.join("noinline-cs-noprobe.perfbin");
    let script = folder.join("noinline-cs-noprobe.perfscript");
    let text = std::fs::read_to_string(&script).unwrap();
    let (first, _) = text.split_once(PROLOGUE).unwrap();
    let own = tempfile::tempdir().unwrap();
    let one = own.path().join("one");
    std::fs::write(&one, first).unwrap();
    let options = ["--ignore-stack-samples"];
    let of_one = fdo("autofdo", &[], &binary, &one).stdout;
    assert_eq!(of_one, by_llvm(&binary, &one, &options));
    assert_eq!(of_one, by_llvm(&binary, &script, &options));
    let of_both = fdo("autofdo", &[], &binary, &script).stdout;
    assert!(of_one.contains("\nbar:142:3\n"), "{of_one}");
    assert!(of_both.contains("\nbar:284:7\n"), "{of_both}");
}
