//! Tests of source files that are found by rules.

use super::*;

#[test]
fn files_are_found_by_substitution_and_by_the_end_of_their_path() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("src")).unwrap();
    std::fs::write(dir.path().join("src/a.c"), "one\ntwo\n").unwrap();
    let mut finder = SourceFinder::default();
    assert_eq!(finder.line("/gone/src/a.c", 2), None);
    finder.directories.push(dir.path().to_owned());
    assert_eq!(finder.line("/gone/src/a.c", 2).as_deref(), Some("two"));
    finder.directories.clear();
    finder
        .substitutions
        .push(("/gone".into(), dir.path().display().to_string()));
    assert_eq!(finder.line("/gone/src/a.c", 1).as_deref(), Some("one"));
    assert_eq!(finder.line("/goner/src/a.c", 1), None);
}

#[test]
fn found_paths_are_those_of_editors() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap();
    for folder in ["src", "build/sub", "deep/er"] {
        std::fs::create_dir_all(root.join(folder)).unwrap();
    }
    std::fs::write(root.join("src/a.c"), "one\n").unwrap();
    std::fs::write(root.join("deep/b.c"), "two\n").unwrap();
    std::os::unix::fs::symlink(root.join("deep/er"), root.join("link")).unwrap();
    std::os::unix::fs::symlink(root.join("src"), root.join("other")).unwrap();
    let finder = SourceFinder::default();
    let find = |path: &str| finder.find(&format!("{}/{path}", root.display()));
    for (path, expected) in [
        ("build/../src/a.c", "src/a.c"),
        ("build/sub/../../src/./a.c", "src/a.c"),
        ("src//a.c", "src/a.c"),
        // A link stays, unless `..` follows it.
        ("build/../other/a.c", "other/a.c"),
        ("link/../b.c", "deep/b.c"),
    ] {
        assert_eq!(find(path), Some(root.join(expected)), "{path}");
    }
}

#[test]
fn rules_and_directories_see_the_path_without_dots() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap();
    std::fs::create_dir_all(root.join("src")).unwrap();
    std::fs::create_dir_all(root.join("build/src")).unwrap();
    std::fs::write(root.join("src/a.c"), "right\n").unwrap();
    std::fs::write(root.join("build/src/a.c"), "wrong\n").unwrap();
    let mut finder = SourceFinder {
        substitutions: vec![("/gone/src".into(), root.join("src").display().to_string())],
        ..SourceFinder::default()
    };
    let wanted = Some(root.join("src/a.c"));
    assert_eq!(finder.find("/gone/build/../src/a.c"), wanted);
    finder.substitutions.clear();
    finder.directories.push(root.clone());
    assert_eq!(finder.find("/gone/build/../src/a.c"), wanted);
    assert_eq!(finder.find("./build/../src/a.c"), wanted);
}

#[test]
fn text_is_read_below_the_readable_folders_alone() {
    let dir = tempfile::tempdir().unwrap();
    let (work, home) = (dir.path().join("work"), dir.path().join("home"));
    for (folder, text) in [(&work, "code\n"), (&home, "secret\n")] {
        std::fs::create_dir(folder).unwrap();
        std::fs::write(folder.join("a.c"), text).unwrap();
    }
    std::os::unix::fs::symlink(home.join("a.c"), work.join("link.c")).unwrap();
    std::os::unix::fs::symlink(&home, work.join("folder")).unwrap();
    let named = |path: PathBuf| path.display().to_string();
    let mut finder = SourceFinder {
        readable: Some(vec![work.clone()]),
        ..SourceFinder::default()
    };
    assert_eq!(finder.line(&named(work.join("a.c")), 1).as_deref(), Some("code"));
    for outside in [
        home.join("a.c"),
        work.join("link.c"),
        work.join("folder/a.c"),
        work.join("../home/a.c"),
    ] {
        assert!(finder.find(&named(outside.clone())).is_some());
        assert_eq!(
            finder.line(&named(outside.clone()), 1),
            None,
            "{}",
            outside.display()
        );
    }
    // A file of the same name in a readable folder is used instead.
    finder.directories.push(work.clone());
    assert_eq!(finder.line(&named(home.join("a.c")), 1).as_deref(), Some("code"));
    finder.directories.clear();
    finder
        .substitutions
        .push((named(home.clone()), named(home.clone())));
    assert_eq!(
        finder.line(&named(home.join("a.c")), 1).as_deref(),
        Some("secret")
    );
}

/// Returns a finder with one bundled file, and the root of the bundle.
fn with_bundled(dir: &Path, entry: &BundledSource, text: &str) -> SourceFinder {
    let root = dir.join("a.bundle");
    let copy = root.join(&entry.file);
    std::fs::create_dir_all(copy.parent().unwrap()).unwrap();
    std::fs::write(copy, text).unwrap();
    SourceFinder {
        directories: vec![root.clone(), root.join("sources")],
        bundled: BundledSources::new(&root, vec![entry.clone()]),
        ..SourceFinder::default()
    }
}

fn entry(path: &Path, text: &str, verified: bool) -> BundledSource {
    BundledSource {
        path: path.display().to_string(),
        file: "sources/src/a.c".to_owned(),
        md5: md5_of(text.as_bytes()),
        verified,
        lines: None,
    }
}

#[test]
fn bundled_text_replaces_a_missing_or_another_version() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().canonicalize().unwrap();
    let local = dir.join("a.c");
    let name = local.display().to_string();
    for verified in [false, true] {
        let finder = with_bundled(&dir, &entry(&local, "built\n", verified), "built\n");
        let line = || finder.line(&name, 1).unwrap();
        let is_bundled = || finder.bundled_source(&name).is_some();
        let _ = std::fs::remove_file(&local);
        assert_eq!((line().as_str(), is_bundled()), ("built", true));
        std::fs::write(&local, "built\n").unwrap();
        assert_eq!((line().as_str(), is_bundled()), ("built", false));
        std::fs::write(&local, "edited later\n").unwrap();
        let text = if verified { "built" } else { "edited later" };
        assert_eq!((line().as_str(), is_bundled()), (text, verified));
    }
}

#[test]
fn bundled_text_is_found_by_its_whole_path_alone() {
    let dir = tempfile::tempdir().unwrap();
    let finder = with_bundled(dir.path(), &entry(Path::new("/src/x/../a.c"), "", false), "own\n");
    assert_eq!(finder.line("/src/a.c", 1).as_deref(), Some("own"));
    for other in ["/other/src/a.c", "src/a.c", "a.c", "/sources/src/a.c"] {
        assert_eq!(finder.find(other), None, "{other}");
    }
}

#[test]
fn lines_that_are_not_in_the_bundle_have_no_text() {
    let dir = tempfile::tempdir().unwrap();
    let whole = entry(Path::new("/src/a.c"), "", false);
    let entry = BundledSource {
        lines: Some(vec![(2, 3), (6, 6)]),
        ..whole
    };
    let finder = with_bundled(dir.path(), &entry, "\ntwo\n\n\n\nsix\n");
    let lines = finder.lines("/src/a.c", 1, 9).unwrap();
    let texts: Vec<_> = lines.iter().map(Option::as_deref).collect();
    assert_eq!(texts, [None, Some("two"), Some(""), None, None, Some("six")]);
    assert_eq!(finder.line("/src/a.c", 4), None);
    let shown = SourceLines::new("/src/a.c", 1, Some(lines), None);
    let marked: Vec<_> = shown.marked_lines().unwrap().collect();
    let not_kept = SourceLines::NOT_KEPT;
    assert_eq!(marked, [not_kept, "two", "", not_kept, not_kept, "six"]);
    let text = finder.text("/src/a.c").unwrap().unwrap();
    assert_eq!(text, format!("{not_kept}\ntwo\n\n{not_kept}\n\nsix\n"));
}

#[test]
fn copy_that_leads_out_of_the_bundle_is_not_read() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("secret"), "secret\n").unwrap();
    let entry = entry(Path::new("/src/a.c"), "", false);
    let finder = with_bundled(dir.path(), &entry, "own\n");
    let copy = dir.path().join("a.bundle/sources/src/a.c");
    std::fs::remove_file(&copy).unwrap();
    std::os::unix::fs::symlink(dir.path().join("secret"), &copy).unwrap();
    assert_eq!(finder.line("/src/a.c", 1), None);
}
