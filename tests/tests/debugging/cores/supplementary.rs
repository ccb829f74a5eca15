//! Supplementary debug files of dwz: found where the program names them, and copied into bundles.

use super::{Place, build_id, debug, run};
use backtrail_tests::bundle::Bundle;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A program with a type and a variable that another program has too.
const SHARED: &str = r#"
#include <stdlib.h>
struct shared_by_both { int first_of_many_members; long second_of_many_members; char third[16]; };
static struct shared_by_both known = {11, 22, "third"};
__attribute__((noinline)) int crash_with(struct shared_by_both *given, int *hole)
{
    return given->first_of_many_members + *hole;
}
int main(int argc, char **argv)
{
    (void)argv;
    return crash_with(&known, argc > 5 ? &argc : NULL);
}
"#;

/// Builds two programs whose common debug entries dwz moves to a third file. `path` is how the
/// programs name it.
#[track_caller]
fn shared(place: &Place, options: &[&str], flags: &[&str]) -> Option<PathBuf> {
    if Command::new("dwz").arg("--version").output().is_err() {
        eprintln!("skipped: no dwz");
        return None;
    }
    fs::create_dir_all(place.at("bin")).unwrap();
    fs::create_dir_all(place.at("lib/deep")).unwrap();
    place.compile("program", SHARED, flags);
    let program = place.at("bin/program");
    fs::rename(place.at("program"), &program).unwrap();
    fs::copy(&program, place.at("bin/second")).unwrap();
    let common = place.at("lib/deep/common.debug");
    let mut command = Command::new("dwz");
    command
        .current_dir(place.at(""))
        .args(options)
        .arg("-m")
        .arg(&common);
    run(command.args(["bin/program", "bin/second"]));
    let sections = run(Command::new("readelf").args(["-S", "-W"]).arg(&program));
    let names_it = sections.contains(".gnu_debugaltlink") || sections.contains(".debug_sup");
    assert!(common.is_file() && names_it, "{sections}");
    Some(program)
}

#[track_caller]
fn values_are_shown(bundle: &Path) {
    let run = debug(bundle, &[], &["p known", "p *given", "info sharedlibrary"]).exited(0);
    let value = "{first_of_many_members = 11, second_of_many_members = 22, third = \"third";
    assert_eq!(run.stdout.matches(value).count(), 2, "{}", run.stdout);
    assert!(!run.stdout.contains("supplementary"), "{}", run.stdout);
}

#[test]
fn recorded_bundle_has_the_supplementary_file() {
    // By an absolute path, by a relative one, and by the section of DWARF 5.
    for (options, flags) in [
        (&[][..], "-gdwarf-4"),
        (&["-r"], "-gdwarf-4"),
        (&["-5"], "-gdwarf-5"),
    ] {
        let place = Place::new();
        let Some(program) = shared(&place, options, &[flags]) else {
            return;
        };
        let (bundle, _) = Bundle::made(&["record"], &["--".as_ref(), program.as_ref()]);
        fs::remove_dir_all(place.at("lib")).unwrap();
        values_are_shown(&bundle.path);
        // The packed bundle has it, too.
        let packed = place.at("packed.btz");
        let arguments = [
            "pack".as_ref(),
            bundle.path.as_os_str(),
            "-o".as_ref(),
            packed.as_os_str(),
        ];
        let _ = backtrail_tests::backtrail::backtrail(arguments)
            .unwrap()
            .exited(0);
        values_are_shown(&packed);
    }
}

#[test]
fn core_finds_the_file_that_the_program_names() {
    if !crate::gdb_answers::have_gdb() {
        return;
    }
    for options in [&[][..], &["-r"]] {
        let place = Place::new();
        let Some(program) = shared(&place, options, &["-gdwarf-4"]) else {
            return;
        };
        let core = place.crash(&program, &[]);
        values_are_shown(&core);
        // A file of another build at that path is not used.
        fs::copy("/proc/self/exe", place.at("lib/deep/common.debug")).unwrap();
        let run = debug(&core, &[], &["info sharedlibrary"]).exited(0);
        assert!(
            run.stdout.contains("the supplementary debug file"),
            "{}",
            run.stdout
        );
    }
}

/// Adds a `.gnu_debugaltlink` section to a file: it names `target`, by its build id.
#[track_caller]
fn add_link(place: &Place, file: &Path, target: &Path) {
    let digits = build_id(target);
    let bytes = digits.as_bytes().chunks(2).map(|pair| {
        let pair = std::str::from_utf8(pair).unwrap();
        u8::from_str_radix(pair, 16).unwrap()
    });
    let mut link = target.display().to_string().into_bytes();
    link.push(0);
    link.extend(bytes);
    let section = place.at("link");
    fs::write(&section, link).unwrap();
    let added = format!(".gnu_debugaltlink={}", section.display());
    run(Command::new("objcopy").args(["--add-section", &added]).arg(file));
}

#[test]
fn circular_links_are_followed_once() {
    if !crate::gdb_answers::have_gdb() {
        return;
    }
    let place = Place::new();
    let Some(program) = shared(&place, &[], &["-gdwarf-4"]) else {
        return;
    };
    // The supplementary file names the program, or itself.
    let common = place.at("lib/deep/common.debug");
    let core = place.crash(&program, &[]);
    let plain = fs::read(&common).unwrap();
    for target in [&program, &common] {
        fs::write(&common, &plain).unwrap();
        add_link(&place, &common, target);
        values_are_shown(&core);
    }
    // A program that names itself, without any entry in another file.
    let program = place.compile("alone", SHARED, &["-gdwarf-4"]);
    add_link(&place, &program, &program.clone());
    let core = place.crash(&program, &[]);
    values_are_shown(&core);
}

#[test]
fn separate_debug_file_names_the_supplementary_file() {
    if !crate::gdb_answers::have_gdb() || Command::new("dwz").arg("--version").output().is_err() {
        return;
    }
    let place = Place::new();
    let program = place.compile("program", SHARED, &["-gdwarf-4"]);
    fs::create_dir_all(place.at(".debug")).unwrap();
    fs::create_dir_all(place.at("lib")).unwrap();
    let debug_file = place.at(".debug/program.debug");
    run(Command::new("objcopy")
        .arg("--only-keep-debug")
        .arg(&program)
        .arg(&debug_file));
    fs::copy(&debug_file, place.at(".debug/second.debug")).unwrap();
    // The path is relative to the debug file, not to the program.
    let mut dwz = Command::new("dwz");
    dwz.current_dir(place.at("")).args([
        "-r",
        "-m",
        "lib/common.debug",
        ".debug/program.debug",
        ".debug/second.debug",
    ]);
    run(&mut dwz);
    run(Command::new("strip").arg("-g").arg(&program));
    let link = format!("--add-gnu-debuglink={}", debug_file.display());
    run(Command::new("objcopy").arg(link).arg(&program));
    let core = place.crash(&program, &[]);
    values_are_shown(&core);
    fs::remove_file(place.at("lib/common.debug")).unwrap();
    let run = debug(&core, &[], &["info sharedlibrary"]).exited(0);
    assert!(
        run.stdout.contains("the supplementary debug file"),
        "{}",
        run.stdout
    );
}
