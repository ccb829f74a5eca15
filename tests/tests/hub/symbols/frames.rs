//! Offsets of uploaded programs, as the symbol service answers them.

use super::{Hub, PATIENCE, output, program};
use serde_json::Value;
use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

/// Waits until the hub answers for a position as wanted, and returns the batch.
pub fn wait_for_frames(hub: &Hub, request: &Value, wanted: impl Fn(&Value) -> bool) -> Value {
    let start = Instant::now();
    loop {
        let head = [hub.authorization(), "Content-Type: application/json".to_owned()];
        let body = request.to_string();
        let answer = hub.request("POST", "/api/v1/symbolize", &head, body.as_bytes());
        let batch = answer.json()["batches"][0].take();
        if wanted(&batch) {
            return batch;
        }
        assert!(start.elapsed() < PATIENCE, "{batch}\n{}", hub.log());
        std::thread::sleep(Duration::from_millis(200));
    }
}

#[test]
fn better_debug_file_replaces_the_index_of_a_build() {
    let Some(program) = program() else { return };
    let hub = Hub::start(&program, "");
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).into_os_string();
    let (source, file, debug) = (path("p.c"), path("p"), path("p.debug"));
    let text = "struct item { int a; };\n__attribute__((noinline)) long work(struct item *item)\n\
                { return item->a * 3L; }\nint main(int n, char **v)\n{ struct item i = {n}; return work(&i); }\n";
    fs::write(&source, text).unwrap();
    let arguments: [&OsStr; 6] = [
        "-g".as_ref(),
        "-O1".as_ref(),
        "-Wl,--build-id".as_ref(),
        "-o".as_ref(),
        &file,
        &source,
    ];
    let _ = output("cc", &arguments);
    let symbols = output("nm", &[&file]);
    let work = symbols.lines().find(|line| line.ends_with(" T work")).unwrap();
    let work = u64::from_str_radix(work.split(' ').next().unwrap(), 16).unwrap();
    let notes = output("readelf", &["-n".as_ref(), &file]);
    let build_id = notes.split("Build ID: ").nth(1).unwrap();
    let build_id = build_id.split_whitespace().next().unwrap().to_owned();
    let _ = output("objcopy", &["--only-keep-debug".as_ref(), &file, &debug]);
    let _ = output("strip", &["--strip-debug".as_ref(), &file]);
    // The first segment with code is at its address in the file.
    let batch = serde_json::json!({ "build_id": build_id, "offsets": [work], "addresses": [work] });
    let request = serde_json::json!({ "batches": [batch] });
    let _ = wait_for_frames(&hub, &request, |batch| batch["state"] == "absent");
    assert_eq!(hub.upload(Path::new(&file), &build_id), 201);
    let named = wait_for_frames(&hub, &request, |batch| batch["state"] == "ok");
    assert_eq!(named["frames"][0][0]["function"], "work", "{named}");
    assert_eq!(named["frames"][0][0]["line"], 0, "{named}");
    assert_eq!(hub.upload(Path::new(&debug), &build_id), 201);
    let better = wait_for_frames(&hub, &request, |batch| batch["frames"][0][0]["line"] == 3);
    let types = serde_json::json!({ "parameters": ["struct item *"], "result": "long int" });
    assert_eq!(better["frames"][0][0]["type"], types, "{better}");
    assert_eq!(better["frames"][0], better["frames"][1], "{better}");
    let metrics = String::from_utf8(hub.get("/metrics").body).unwrap();
    assert!(metrics.contains("backtrail_hub_symbol_index_open 1"), "{metrics}");
}
