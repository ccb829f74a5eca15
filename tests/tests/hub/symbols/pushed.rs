//! `push-symbols` sends files of a folder, with and without build ids.

use super::frames::wait_for_frames;
use super::{Hub, command, output, program};
use backtrail_profile::{Frame, Module, Profile, StackId, format};
use backtrail_pt::FileOffset;
use serde_json::{Value, json};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

const SOURCE: &str = "__attribute__((noinline)) long work(long n)\n{ return n * 3; }\n\
                      int main(int n, char **v)\n{ return work(n); }\n";

fn push(hub: &Hub, paths: &[&Path]) -> Output {
    command()
        .unwrap()
        .args(["push-symbols", "--json", "--hub", &hub.address])
        .args(paths)
        .env("BACKTRAIL_HUB_TOKEN", &hub.token)
        .env("HOME", hub.folder.path())
        .output()
        .unwrap()
}

/// Returns the objects that a command printed.
fn objects(output: &Output) -> Vec<Value> {
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// Returns the hash that OpenTelemetry defines for a file, from coreutils.
fn file_hash(path: &Path) -> String {
    let script = "{ head -c 4096 \"$1\"; tail -c 4096 \"$1\"; \
                  printf \"$(printf '%016x' \"$(stat -c %s \"$1\")\" | sed 's/../\\\\x&/g')\"; } | sha256sum";
    let arguments: [&OsStr; 4] = ["-c".as_ref(), script.as_ref(), "bash".as_ref(), path.as_ref()];
    output("bash", &arguments)[..32].to_owned()
}

#[test]
fn pushed_folder_names_functions_with_and_without_build_ids() {
    let Some(program) = program() else { return };
    let hub = Hub::start(&program, "");
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::create_dir(path("sub")).unwrap();
    let source = path("p.c");
    fs::write(&source, SOURCE).unwrap();
    let build = |name: &str, arguments: &[&str]| {
        let built = path(name);
        let mut all: Vec<&OsStr> = ["-g", "-O1", "-o"].map(OsStr::new).to_vec();
        all.extend([built.as_os_str(), source.as_os_str()]);
        all.extend(arguments.iter().map(OsStr::new));
        let _ = output("cc", &all);
        built
    };
    let with_id = build("server", &["-Wl,--build-id"]);
    let without = build("sub/worker", &["-Wl,--build-id=none"]);
    build("object.o", &["-c"]);
    std::os::unix::fs::symlink(&with_id, path("sub/link")).unwrap();

    let pushed = push(&hub, &[folder.path()]);
    assert!(pushed.status.success(), "{pushed:?}");
    let files = objects(&pushed);
    let notes = output("readelf", &["-n".as_ref(), with_id.as_os_str()]);
    let noted = notes.split("Build ID: ").nth(1).unwrap().lines().next().unwrap();
    let hashed = format!("68746c3a{}", file_hash(&without));
    let expected = |file: &Path, build_id: &str| {
        let bytes = fs::metadata(file).unwrap().len();
        json!({ "schema": "backtrail-push-symbols/1", "file": file, "build_id": build_id, "bytes": bytes })
    };
    assert_eq!(files, [expected(&with_id, noted), expected(&without, &hashed)]);
    for (file, build_id) in [(&with_id, noted), (&without, &hashed)] {
        let symbols = output("nm", &[file.as_os_str()]);
        let work = symbols.lines().find(|line| line.ends_with(" T work")).unwrap();
        let work = u64::from_str_radix(work.split(' ').next().unwrap(), 16).unwrap();
        let request = json!({ "batches": [{ "build_id": build_id, "offsets": [work] }] });
        let named = wait_for_frames(&hub, &request, |batch| batch["state"] == "ok");
        let frame = &named["frames"][0][0];
        assert_eq!(
            (&frame["function"], &frame["line"]),
            (&json!("work"), &json!(2)),
            "{named}"
        );
    }
    // Equal files are taken again.
    assert!(push(&hub, &[&without]).status.success());
}

/// Returns an OTLP request with a sample at an offset of a build.
fn otlp(build_id: &str, offset: u64) -> Vec<u8> {
    let mut profile = Profile::default();
    let event = profile.event("cpu", "nanoseconds", 1).unwrap();
    let path = profile.string("/srv/server").unwrap();
    let build_id = Some(build_id.parse().unwrap());
    let module = profile.modules.intern(Module { build_id, path }).unwrap();
    let offset = FileOffset(offset);
    let frame = profile.frames.intern(Frame::Code { module, offset }).unwrap();
    let stack = profile.stacks.push(StackId::EMPTY, frame).unwrap();
    profile.add(event, 7, stack).unwrap();
    let mut bytes = Vec::new();
    format::otlp::write(&profile, &mut bytes).unwrap();
    bytes
}

#[test]
fn names_of_code_and_times_reach_queries_in_sql() {
    let Some(program) = program() else { return };
    let scripts = tempfile::tempdir().unwrap();
    let (engine, input) = (scripts.path().join("engine"), scripts.path().join("input"));
    let script = format!(
        "#!/bin/sh\ncat >{}\necho '{{\"coverage\":{{}}}}' >&2\n",
        input.display()
    );
    fs::write(&engine, script).unwrap();
    fs::set_permissions(&engine, fs::Permissions::from_mode(0o755)).unwrap();
    let hub = Hub::start(&program, &format!("[query]\nprogram = \"{}\"", engine.display()));
    let folder = tempfile::tempdir().unwrap();
    let (source, file) = (folder.path().join("p.c"), folder.path().join("server"));
    fs::write(&source, SOURCE).unwrap();
    let options = ["-g", "-O1", "-Wl,--build-id", "-o"].map(OsStr::new);
    let _ = output(
        "cc",
        &[&options[..], &[file.as_os_str(), source.as_os_str()]].concat(),
    );
    let pushed = push(&hub, &[&file]);
    assert!(pushed.status.success(), "{pushed:?}");
    let build_id = objects(&pushed)[0]["build_id"].as_str().unwrap().to_owned();
    let symbols = output("nm", &[file.as_os_str()]);
    let work = symbols.lines().find(|line| line.ends_with(" T work")).unwrap();
    let work = u64::from_str_radix(work.split(' ').next().unwrap(), 16).unwrap();
    let request = json!({ "batches": [{ "build_id": build_id, "offsets": [work] }] });
    let _ = wait_for_frames(&hub, &request, |batch| batch["state"] == "ok");

    let head = |kind: &str| [hub.authorization(), format!("Content-Type: {kind}")];
    let profile = otlp(&build_id, work);
    let kind = head("application/x-protobuf");
    let stored = hub.request("POST", "/v1development/profiles", &kind, &profile);
    assert_eq!(stored.status, 200, "{}", hub.log());
    let ask = |sql: &str| {
        let body = json!({ "sql": sql, "from": "5m" }).to_string();
        let answer = hub.request(
            "POST",
            "/api/v1/profiles/sql",
            &head("application/json"),
            body.as_bytes(),
        );
        assert_eq!(answer.status, 200, "{}", hub.log());
        let input: Value = serde_json::from_slice(&fs::read(&input).unwrap()).unwrap();
        (answer.json(), input)
    };
    let (answer, input) = ask("SELECT sum(weight) FROM samples WHERE matches(stack, '^work$')");
    let named = json!([{ "build_id": build_id, "offset": work, "functions": ["work"] }]);
    assert_eq!(input["symbols"], named);
    let length = input["times"]["end"].as_u64().unwrap() - input["times"]["start"].as_u64().unwrap();
    assert_eq!(length, 300_000_000_000);
    assert!(
        answer["coverage"]["from"].as_str().unwrap().starts_with("20"),
        "{answer}"
    );
    // A query that needs no names gets none.
    let (_, input) = ask("SELECT sum(weight) FROM samples");
    assert_eq!(input["symbols"], json!([]));
}

#[test]
fn refused_file_does_not_stop_the_others() {
    let Some(program) = program() else { return };
    let hub = Hub::start(&program, "");
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::write(path("p.c"), SOURCE).unwrap();
    let (source, debug, good) = (path("p.c"), path("a.debug"), path("b"));
    let options = ["-g", "-Wl,--build-id=none", "-o"].map(OsStr::new);
    let _ = output(
        "cc",
        &[&options[..], &[good.as_os_str(), source.as_os_str()]].concat(),
    );
    let arguments: [&OsStr; 3] = ["--only-keep-debug".as_ref(), good.as_ref(), debug.as_ref()];
    let _ = output("objcopy", &arguments);
    let pushed = push(&hub, &[folder.path()]);
    let problems = String::from_utf8_lossy(&pushed.stderr).into_owned();
    assert_eq!(pushed.status.code(), Some(3), "{problems}");
    assert!(
        problems.contains("a.debug: 400") && problems.contains("neither a build id nor code"),
        "{problems}"
    );
    assert!(problems.contains("some files were not sent"), "{problems}");
    assert_eq!(objects(&pushed).len(), 1, "{pushed:?}");

    let text = push(&hub, &[&source]);
    let problem = String::from_utf8_lossy(&text.stderr).into_owned();
    assert_eq!(text.status.code(), Some(3), "{problem}");
    assert!(problem.contains("p.c"), "{problem}");
    let empty = tempfile::tempdir().unwrap();
    let nothing = push(&hub, &[empty.path()]);
    let problem = String::from_utf8_lossy(&nothing.stderr).into_owned();
    assert!(problem.contains("no linked ELF file"), "{problem}");
}

#[test]
fn package_of_split_dwarf_has_inlined_calls() {
    let Some(program) = program() else { return };
    let tools = ["llvm-dwp", "llvm-dwp-19", "llvm-dwp-14", "dwp"];
    let exists = |tool: &&&str| Command::new(tool).arg("--version").output().is_ok();
    let Some(dwp) = tools.iter().find(exists) else {
        eprintln!("left out: no dwp");
        return;
    };
    let hub = Hub::start(&program, "");
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let source = "static inline __attribute__((always_inline)) long twice(long n)\n{ return n * 2; }\n\
                  __attribute__((noinline)) long work(volatile long *n)\n{ return twice(*n); }\n\
                  int main(int n, char **v)\n{ long k = n; return work(&k); }\n";
    fs::write(path("p.c"), source).unwrap();
    let (source, built, package) = (path("p.c"), path("p"), path("p.dwp"));
    let options = ["-gdwarf-4", "-gsplit-dwarf", "-O1", "-Wl,--build-id", "-o"].map(OsStr::new);
    let _ = output(
        "cc",
        &[&options[..], &[built.as_os_str(), source.as_os_str()]].concat(),
    );
    let [build_id] = &objects(&push(&hub, &[&built]))[..] else {
        panic!("one file is sent");
    };
    let build_id = build_id["build_id"].as_str().unwrap().to_owned();
    let symbols = output("nm", &[built.as_os_str()]);
    let work = symbols.lines().find(|line| line.ends_with(" T work")).unwrap();
    let work = u64::from_str_radix(work.split(' ').next().unwrap(), 16).unwrap();
    let offsets: Vec<u64> = (work..work + 8).collect();
    let request = json!({ "batches": [{ "build_id": build_id, "offsets": offsets }] });
    let without = wait_for_frames(&hub, &request, |batch| batch["state"] == "ok");
    assert_eq!(without["detail"], "split_debug_information", "{without}");

    let arguments: [&OsStr; 4] = ["-e".as_ref(), built.as_ref(), "-o".as_ref(), package.as_ref()];
    let _ = output(dwp, &arguments);
    assert_eq!(objects(&push(&hub, &[&built])).len(), 2);
    let with = wait_for_frames(&hub, &request, |batch| batch["detail"] == "debug_information");
    let chains: Vec<Vec<&Value>> = with["frames"]
        .as_array()
        .unwrap()
        .iter()
        .map(|frames| {
            frames
                .as_array()
                .unwrap()
                .iter()
                .map(|frame| &frame["function"])
                .collect()
        })
        .collect();
    assert!(chains.iter().any(|chain| *chain == ["twice", "work"]), "{with}");
}
