//! Values and names that compilers describe in less usual ways: location lists by index, and tags
//! of any width. Also numbers without arithmetic, arrays without a bound, and templates without
//! arguments.

use crate::gdb_answers::{by_gdb, have_gdb, ours};
use backtrail_tests::bundle::Bundle;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// clang by the names that distributions have for it; the first that exists is used.
const CLANG: &[&str] = &["clang-19", "clang-16", "clang"];
const CLANGXX: &[&str] = &["clang++-19", "clang++-16", "clang++"];

/// A program of `tests/fixtures/values`, in a folder of its own.
struct Program {
    _folder: TempDir,
    path: PathBuf,
}

impl Program {
    /// Compiles sources. Prints a line and returns `None` if there is none of the compilers.
    fn compiled(compilers: &[&str], sources: &[&str], flags: &[&str]) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/values");
        for source in sources {
            std::fs::copy(fixtures.join(source), folder.path().join(source)).unwrap();
        }
        let path = folder.path().join("program");
        for compiler in compilers {
            let output = Command::new(compiler)
                .current_dir(folder.path())
                .args(flags)
                .args(["-o", "program"])
                .args(sources)
                .output();
            let Ok(output) = output else { continue };
            let text = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{compiler} {flags:?}: {text}");
            return Some(Self {
                _folder: folder,
                path,
            });
        }
        eprintln!("skipped: no {} on this machine", compilers.join(" or "));
        None
    }

    fn recorded(&self) -> Bundle {
        Bundle::made(&["record", "--full"], &["--".as_ref(), self.path.as_ref()]).0
    }
}

/// Returns the text of each answer, for `print` without `$ = `.
fn values(bundle: &Bundle, commands: &[&str]) -> Vec<String> {
    let answers = ours(bundle, commands).into_iter();
    let value = |lines: Vec<String>| lines.join("\n").trim_start_matches("$ = ").to_owned();
    answers.map(|(_, lines)| value(lines)).collect()
}

#[track_caller]
fn check(bundle: &Bundle, first: &[&str], expected: &[(&str, &str)]) {
    let mut commands = first.to_vec();
    commands.extend(expected.iter().map(|(command, _)| command));
    let found = values(bundle, &commands).split_off(first.len());
    assert_eq!(found.len(), expected.len(), "{found:#?}");
    for ((command, expected), found) in expected.iter().zip(found) {
        assert_eq!(found, *expected, "{command}");
    }
}

#[test]
fn locations_in_lists_by_index_are_found() {
    let builds: [&[&str]; 4] = [
        &["-gdwarf-5"],
        &["-gdwarf-4"],
        &["-gdwarf-5", "-gsplit-dwarf"],
        &["-gdwarf-5", "-flto", "-fuse-ld=lld"],
    ];
    for (number, kind) in builds.iter().enumerate() {
        let flags = [&["-O2"], *kind].concat();
        if number == 3 && Command::new("ld.lld").arg("--version").output().is_err() {
            continue;
        }
        let Some(program) = Program::compiled(CLANG, &["locations.c"], &flags) else {
            return;
        };
        let bundle = program.recorded();
        let mut options = vec!["--batch", "-e", "info args", "-e", "info locals"];
        let folder = program.path.parent().unwrap().display().to_string();
        options.extend(["--symfs", &folder]);
        let text = bundle.run(&["debug"], &options).stdout;
        let lines: Vec<&str> = text.lines().collect();
        for wanted in ["n = 3", "from = 0x0", "i = 0", "sum = 9", "product = 6"] {
            assert!(lines.contains(&wanted), "{kind:?} {wanted}\n{text}");
        }
    }
}

#[test]
fn rust_locations_of_both_dwarf_versions_agree() {
    for version in ["4", "5"] {
        let dwarf = format!("dwarf-version={version}");
        let flags = ["--edition=2024", "-g", "-Copt-level=2", "-C", &dwarf];
        let Some(program) = Program::compiled(&["rustc"], &["tags.rs"], &flags) else {
            return;
        };
        let found = values(&program.recorded(), &["up", "print all.signed[1]", "print hole"]);
        assert_eq!(found[1], "tags::Signed::Minus(2)", "{version}");
        assert_eq!(found[2], "(*const u8) 0x0", "{version}");
    }
}

#[test]
fn tags_of_every_width_select_their_variants() {
    for dwarf in ["dwarf-version=4", "dwarf-version=5"] {
        let flags = ["--edition=2024", "-g", "-Copt-level=1", "-C", dwarf];
        let Some(program) = Program::compiled(&["rustc"], &["tags.rs"], &flags) else {
            return;
        };
        let option = "core::option::Option";
        let nonzero = format!("{option}<core::num::nonzero::NonZero<i128>>");
        let nest = format!("{option}<bool>");
        let expected = [
            (
                "print all.wide",
                "[tags::Wide::A(5), tags::Wide::B(-5), tags::Wide::C]",
            ),
            (
                "print all.nonzero",
                &format!("[{nonzero}::Some(-7), {nonzero}::None]"),
            ),
            (
                "print all.named",
                "[tags::Named::One, tags::Named::High, tags::Named::Last]",
            ),
            ("print all.below", "[tags::Below::Minus, tags::Below::Far]"),
            (
                "print all.byte",
                "[tags::Byte::A(1), tags::Byte::B, tags::Byte::C(9)]",
            ),
            ("print all.large", "[tags::Large::Big, tags::Large::Small]"),
            (
                "print all.signed",
                "[tags::Signed::Least(1), tags::Signed::Minus(2), tags::Signed::Seven]",
            ),
            (
                "print all.holes",
                "[tags::Holes::A(4), tags::Holes::C, tags::Holes::E(\"x\")]",
            ),
            (
                "print all.nest",
                &format!(
                    "[tags::Nest::A({nest}::None), tags::Nest::A({nest}::Some(true)), tags::Nest::B, tags::Nest::C]"
                ),
            ),
            ("print all.sure", "core::result::Result<u32, tags::Never>::Ok(3)"),
            ("print all.none", &format!("{option}<tags::Never>::None")),
            (
                "ptype Named",
                "type = enum tags::Named {\n    One = 1,\n    High = 170141183460469231731687303715884105728,\n    \
                 Last = 340282366920938463463374607431768211455,\n}",
            ),
        ];
        check(&program.recorded(), &["up"], &expected);
    }
}

#[test]
fn numbers_are_computed_or_refused() {
    let Some(program) = Program::compiled(&["gcc"], &["numbers.c"], &["-g", "-O0", "-w"]) else {
        return;
    };
    let bundle = program.recorded();
    let same_as_gdb = [
        "print all->cd",
        "print all->cd * 2",
        "print 1 - all->cd",
        "print -all->cd",
        "print ~all->cd",
        "print all->cd * all->cd",
        "print all->cd / 2",
        "print all->cf + all->cf",
        "print all->cf * 3",
        "print (double)all->cd",
        "print all->cd == all->cd",
        "print !all->cd",
        "print all->half",
        "print all->half * all->half",
        "whatis all->half + 1",
        "print all->huge",
        "print all->vec",
        "print (float)all->ld",
    ];
    if have_gdb() {
        let (our, their) = (
            ours(&bundle, &same_as_gdb),
            by_gdb(&program.path, &bundle, &same_as_gdb),
        );
        for ((command, our), (_, their)) in our.iter().zip(&their) {
            assert_eq!(our, their, "{command}");
        }
    }
    let unsupported = |ty: &str| format!("<unknown: numbers of type {ty} are not supported>");
    let big_endian = "<unknown: big-endian numbers are not supported>";
    let refused = |ty: &str, cast: &str| format!("error: arithmetic with \"{ty}\" is not supported{cast}");
    let expected = [
        ("print all->cd * 2", "-3 + 0.5i".to_owned()),
        ("whatis all->cd * 2", "type = complex double".to_owned()),
        // GDB 13 takes the bytes of the real part as an integer.
        ("print (int)all->cd", "-1".to_owned()),
        ("print all->big + 1", "1267650600228229401496703205377".to_owned()),
        ("print all->big >> 98", "4".to_owned()),
        ("print all->ld", "1".to_owned()),
        ("print all->ci", unsupported("complex int")),
        ("print all->ci + 1", unsupported("complex int")),
        ("print all->decimal", unsupported("_Decimal64")),
        ("print all->decimal * 2", unsupported("_Decimal64")),
        ("print all->quad", unsupported("_Float128")),
        ("print all->swapped.whole", big_endian.to_owned()),
        ("print all->swapped.whole + 1", big_endian.to_owned()),
        ("print all->swapped.part", big_endian.to_owned()),
        ("print all->cl + 1", refused("complex long double", "")),
        (
            "print all->ld + 1",
            refused("long double", "; cast it to double first"),
        ),
        ("print all->ld == 1", "1".to_owned()),
        (
            "print all->cd / all->cd",
            "error: division by a complex number is not supported".to_owned(),
        ),
        (
            "print all->cd < all->cd",
            "error: complex numbers have no order".to_owned(),
        ),
        (
            "print all->vec + all->vec",
            "error: \"vec4\" is not a number".to_owned(),
        ),
    ];
    let expected: Vec<(&str, &str)> = expected
        .iter()
        .map(|(command, value)| (*command, &**value))
        .collect();
    check_failing(&bundle, &expected);
}

/// The same as [`check`], of commands some of which fail.
#[track_caller]
fn check_failing(bundle: &Bundle, expected: &[(&str, &str)]) {
    for (command, expected) in expected {
        let arguments = [
            "debug",
            &bundle.path.display().to_string(),
            "--batch",
            "-e",
            command,
        ];
        let run = backtrail_tests::backtrail::backtrail(arguments).unwrap();
        let text = format!("{}{}", run.stdout, run.stderr);
        let mut lines = text.lines().skip_while(|line| !line.starts_with("(backtrail) "));
        let answer = lines.nth(1).unwrap_or_default();
        let unknown = format!("{} = ", command.trim_start_matches("print "));
        let answer = answer.strip_prefix("$1 = ").unwrap_or(answer);
        let answer = answer.strip_prefix(&unknown).unwrap_or(answer);
        assert_eq!(answer, *expected, "{command}\n{text}");
    }
}

#[test]
fn bits_that_do_not_count_are_not_shown() {
    let flags = ["-g", "-O0", "-std=c2x", "-ffixed-point", "-w"];
    let Some(program) = Program::compiled(&CLANG[1..], &["bits.c"], &flags) else {
        return;
    };
    let unsupported = |ty: &str| format!("<unknown: numbers of type {ty} are not supported>");
    // clang 16 does not state how many bits count.
    let expected = [
        ("print all->seven", unsupported("_BitInt")),
        ("print all->seven + 1", unsupported("_BitInt")),
        ("print all->wide", unsupported("unsigned _BitInt")),
        ("print all->accum", unsupported("_Accum")),
        ("print all->accum * 2", unsupported("_Accum")),
    ];
    let expected: Vec<(&str, &str)> = expected
        .iter()
        .map(|(command, value)| (*command, &**value))
        .collect();
    check_failing(&program.recorded(), &expected);
}

#[test]
fn arrays_without_a_bound_are_never_empty() {
    for compilers in [&["gcc"], CLANG] {
        let sources = ["arrays.c", "arrays_other.c"];
        let Some(program) = Program::compiled(compilers, &sources, &["-g", "-O0", "-w"]) else {
            continue;
        };
        let bundle = program.recorded();
        let expected = [
            ("print vla", "{0, 10, 20}"),
            ("print grid", "{{0, 1}, {100, 101}, {200, 201}}"),
            ("print grid[2]", "{200, 201}"),
            ("print sizeof(vla)", "12"),
            ("print sizeof(grid)", "24"),
            ("print sizeof(grid[0])", "8"),
            ("whatis vla", "type = int [3]"),
            ("print t->text@3", "\"hel\""),
            ("print z->v@2", "{7, 8}"),
            ("print f->v[0]@2", "{0.5, 1.5}"),
            ("print table", "{4, 5, 6}"),
            ("print sizeof table", "12"),
            ("print fixed", "{n = 2, v = {1.5, 2.5}}"),
        ];
        check(&bundle, &[], &expected);
        // An address, and the text there.
        let shown = values(
            &bundle,
            &[
                "print *t",
                "print t->text",
                "print &t->text[0]",
                "print *f",
                "print/x f->v",
                "print z->v",
                "print pair",
            ],
        );
        let address = shown[1].split(' ').next().unwrap();
        assert_eq!(shown[0], format!("{{n = 3, text = {address} \"hello\"}}"));
        assert_eq!(shown[1], format!("{address} \"hello\""));
        assert_eq!(shown[2], format!("{address} \"hello\""));
        assert_eq!(shown[3], format!("{{n = 3, v = {}}}", shown[4]));
        assert!(shown[5].starts_with("0x"), "{shown:#?}");
        // Elements of the same bytes have different addresses.
        let texts: Vec<&str> = shown[6]
            .match_indices("0x")
            .map(|(at, _)| &shown[6][at..at + 14])
            .collect();
        assert!(texts.len() == 2 && texts[0] != texts[1], "{shown:#?}");
        check_failing(
            &bundle,
            &[(
                "print sizeof(t->text)",
                "error: the size of \"char []\" is not known",
            )],
        );
    }
    if !have_gdb() {
        return;
    }
    let commands = [
        "info locals",
        "print *t",
        "print t->text",
        "print z->v",
        "print *f",
        "print rows[1]",
    ];
    let sources = ["arrays.c", "arrays_other.c"];
    if let Some(program) = Program::compiled(&["gcc"], &sources, &["-g", "-O0", "-w"]) {
        let bundle = program.recorded();
        let (our, their) = (
            ours(&bundle, &commands),
            by_gdb(&program.path, &bundle, &commands),
        );
        for ((command, our), (_, their)) in our.iter().zip(&their).take(5) {
            assert_eq!(our, their, "{command}");
        }
        // GDB computes no step of an array whose size depends on the frame.
        assert_eq!(our[5].1, ["$ = {3, 4}"]);
    }
}

#[test]
fn templates_are_recognized_without_their_arguments() {
    let commands = [
        "info args",
        "info locals",
        "whatis v",
        "whatis many",
        "whatis vk",
        "whatis rp",
        "whatis rr",
        "whatis mp",
        "whatis tm",
        "whatis p2",
        "ptype ring",
        "print m[\"a\"]",
        "print v.size()",
        "print ring.made",
    ];
    let mut all: Vec<(String, Vec<String>)> = Vec::new();
    for form in ["", "simple", "mangled"] {
        let option = format!("-gsimple-template-names={form}");
        let mut flags = vec!["-g", "-O0", "-std=c++20", "-w"];
        if !form.is_empty() {
            flags.extend(["-Xclang", &option]);
        }
        let Some(program) = Program::compiled(CLANGXX, &["templates.cpp"], &flags) else {
            return;
        };
        let bundle = program.recorded();
        let answers = values(&bundle, &commands);
        // Addresses are those of each run.
        let answers: Vec<String> = answers.iter().map(|answer| without_addresses(answer)).collect();
        let hits = values(
            &bundle,
            &[
                "break shop::Ring::push",
                "break twice",
                "break Ring<double, 3>::push",
            ],
        );
        all.push((form.to_owned(), answers));
        assert!(hits[0].contains("push"), "{form} {hits:#?}");
        assert!(
            hits[1].contains("2 locations") || hits[1].contains("twice"),
            "{form} {hits:#?}"
        );
        assert!(hits[2].contains("push"), "{form} {hits:#?}");
    }
    let (_, plain) = &all[0];
    assert!(plain[1].contains("std::vector of length 2"), "{plain:#?}");
    assert!(plain[1].contains("std::map with 1 element"), "{plain:#?}");
    for (form, answers) in &all[1..] {
        for ((command, plain), answer) in commands.iter().zip(plain).zip(answers) {
            assert_eq!(answer, plain, "{form} {command}");
        }
    }
}

/// Replaces each `0x…` by `0x`.
fn without_addresses(text: &str) -> String {
    let mut parts = text.split("0x");
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        out.push_str("0x");
        out.push_str(part.trim_start_matches(|c: char| c.is_ascii_hexdigit()));
    }
    out
}

#[test]
fn go_names_need_no_arguments() {
    let folder = tempfile::tempdir().unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/values/names.go");
    let program = folder.path().join("names");
    let output = Command::new("go")
        .args(["build", "-gcflags=-N -l", "-o"])
        .arg(&program)
        .arg(source)
        .env("HOME", folder.path())
        .env("GOCACHE", folder.path().join("cache"))
        .env("GOFLAGS", "-mod=mod")
        .output();
    let Ok(output) = output else {
        eprintln!("skipped: no go on this machine");
        return;
    };
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let (bundle, _) = Bundle::made(&["record", "--full"], &["--".as_ref(), program.as_ref()]);
    let places = |name: &str| values(&bundle, &[&format!("break {name}")]).remove(0);
    for name in [
        "main.(*Stack).Push",
        "Stack.Push",
        "(*Stack).Push",
        "main.Stack.Push",
    ] {
        let found = places(name);
        assert!(
            found.contains(" in main.(*Stack[") && found.contains("names.go"),
            "{name}: {found}"
        );
    }
    assert!(places("main.(*Plain).Add").contains(" in main.(*Plain).Add at"));
    for name in ["main.Sum", "main.Sum[...]"] {
        let found = places(name);
        assert!(
            found.contains("(2 places)") && found.contains(" in main.Sum["),
            "{name}: {found}"
        );
    }
    // A name of one type is not that of another.
    let none = "error: no symbol \"Plain.Push\" in the one module with symbols (";
    let path = program.display();
    check_failing(
        &bundle,
        &[(
            "break Plain.Push",
            &format!("{none}{path}); try `info functions Plain.Push`"),
        )],
    );
    // A call whose stack grows begins again.
    let calls = bundle.run(&["dump", "calls"], &[]).stdout;
    let is_push = |line: &&str| line.contains("  main.(*Stack[") && line.contains("returned]");
    assert_eq!(calls.lines().filter(is_push).count(), 3, "{calls}");
}
