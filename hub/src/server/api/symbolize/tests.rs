//! Requests of symbols, with an index of a small program.

use super::proto::{BatchMessage, RequestMessage, ResponseMessage};
use crate::access::Scope;
use crate::analysis::elf_file::{inspect, make_index};
use crate::clock;
use crate::config::Config;
use crate::database::blobs::FileKind;
use crate::database::jobs::{JobKind, JobQueue};
use crate::database::transact;
use crate::hub::Hub;
use crate::objects;
use crate::server::routes::router;
use crate::symbols::index_record::{IndexRecord, IndexSources};
use crate::symbols::store::{StoredFile, record};
use axum::body::Body;
use axum::http::{Request, StatusCode, header};
use http_body_util::BodyExt;
use prost::Message;
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;
use tempfile::TempDir;
use tower::ServiceExt;

const PROGRAM: &str = "struct item { int a; };\n\
                       __attribute__((noinline)) long work(struct item *item, char **names)\n\
                       { return item->a + names[0][0]; }\n\
                       int main(int argc, char **argv)\n\
                       { struct item item = {argc}; return (int)work(&item, argv); }\n";

struct Fixture {
    folder: TempDir,
    hub: Arc<Hub>,
    token: String,
}

impl Fixture {
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let config = Config {
            data: folder.path().join("hub"),
            ..Config::default()
        };
        let hub = Hub::open(config).await.unwrap();
        let (_, secret) = hub
            .database
            .create_token("t", &[Scope::Read], None)
            .await
            .unwrap();
        let token = secret.reveal().to_owned();
        Self { folder, hub, token }
    }

    async fn post(&self, media: &str, body: Vec<u8>) -> (StatusCode, Vec<u8>) {
        let request = Request::post("/api/v1/symbolize")
            .header(header::HOST, "127.0.0.1:7777")
            .header(header::AUTHORIZATION, format!("Bearer {}", self.token))
            .header(header::CONTENT_TYPE, media)
            .body(Body::from(body))
            .unwrap();
        let response = router(self.hub.clone()).oneshot(request).await.unwrap();
        let status = response.status();
        let body = axum::body::to_bytes(response.into_body(), usize::MAX)
            .await
            .unwrap();
        (status, body.to_vec())
    }

    /// Calls the method of gRPC. Returns its status, and the answer if there is one.
    async fn call(&self, message: &RequestMessage, token: &str) -> (String, Option<ResponseMessage>) {
        let message = message.encode_to_vec();
        let mut body = vec![0];
        body.extend_from_slice(&u32::try_from(message.len()).unwrap().to_be_bytes());
        body.extend_from_slice(&message);
        let request = Request::post("http://127.0.0.1:7777/backtrail.symbols.v1.SymbolService/Symbolize")
            .header(header::AUTHORIZATION, format!("Bearer {token}"))
            .header(header::CONTENT_TYPE, "application/grpc")
            .header("te", "trailers")
            .body(Body::from(body))
            .unwrap();
        let response = router(self.hub.clone()).oneshot(request).await.unwrap();
        let mut headers = response.headers().clone();
        let collected = response.into_body().collect().await.unwrap();
        headers.extend(collected.trailers().cloned().unwrap_or_default());
        let body = collected.to_bytes();
        let status = headers
            .get("grpc-status")
            .map_or("", |status| status.to_str().unwrap());
        let answer = (status == "0").then(|| ResponseMessage::decode(&body[5..]).unwrap());
        (status.to_owned(), answer)
    }

    async fn ask(&self, request: &Value) -> (StatusCode, Value) {
        let (status, body) = self
            .post("application/json", request.to_string().into_bytes())
            .await;
        (status, serde_json::from_slice(&body).unwrap())
    }

    /// Stores a file of a build, and returns its build id.
    async fn store(&self, path: &Path) -> String {
        let contents = inspect(path).unwrap();
        let build_id = contents.build_id.clone().unwrap();
        let (sha256, size) = self.hub.objects.put_file(path).await.unwrap();
        let file = StoredFile {
            build_id: build_id.clone(),
            contents,
            sha256,
            size,
            name: "program".to_owned(),
            origin: "upload".to_owned(),
            source: None,
        };
        let recorded = transact!(self.hub.database, connection => { record(connection, &file).await });
        recorded.unwrap();
        build_id
    }

    async fn sources(&self, build_id: &str) -> IndexSources {
        let file = async |kind| self.hub.database.build_file(build_id, &kind).await.unwrap();
        let (executable, debuginfo) = (file(FileKind::Executable).await, file(FileKind::Debuginfo).await);
        IndexSources::of(executable.as_ref(), debuginfo.as_ref(), None)
    }
}

/// Compiles the program. Returns `None` if there is no compiler.
fn compile(folder: &Path) -> Option<std::path::PathBuf> {
    let (source, program) = (folder.join("p.c"), folder.join("p"));
    std::fs::write(&source, PROGRAM).unwrap();
    let mut command = std::process::Command::new("cc");
    command
        .args(["-g", "-O1", "-Wl,--build-id"])
        .arg(&source)
        .arg("-o")
        .arg(&program);
    match command.status() {
        Ok(status) => assert!(status.success()),
        Err(_) => {
            println!("left out: there is no C compiler");
            return None;
        }
    }
    Some(program)
}

#[tokio::test(flavor = "multi_thread")]
async fn offsets_of_an_indexed_build_have_frames_and_types() {
    let fixture = Fixture::new().await;
    let Some(program) = compile(fixture.folder.path()) else {
        return;
    };
    let build_id = fixture.store(&program).await;
    let symbols =
        backtrail_symbolizer::SymbolFile::open(&program, &backtrail_symbolizer::DebugSearch::none());
    let symbols = symbols.unwrap();
    let entry = symbols.functions_named("work")[0].entry;
    let offset = symbols.offset_of(entry).unwrap().0;
    let request = json!({ "batches": [{ "build_id": build_id, "offsets": [offset, 1_u64 << 40], "addresses": [entry.0] }] });

    let (status, answer) = fixture.ask(&request).await;
    assert_eq!(
        (status, &answer["batches"][0]["state"]),
        (StatusCode::OK, &json!("pending"))
    );
    let job = fixture
        .hub
        .database
        .lease_job(JobQueue::Work)
        .await
        .unwrap()
        .unwrap();
    assert_eq!((job.kind, &job.subject), (JobKind::Index, &build_id));

    let (gsym, types) = (
        fixture.folder.path().join("gsym"),
        fixture.folder.path().join("types"),
    );
    make_index(&program, None, &gsym, &types).unwrap();
    let store = &fixture.hub.objects;
    store
        .put_copy(&objects::symbols(&build_id, "gsym"), &gsym)
        .await
        .unwrap();
    store
        .put_copy(&objects::symbols(&build_id, "types"), &types)
        .await
        .unwrap();
    let sources = fixture.sources(&build_id).await;
    IndexRecord::new(sources, None)
        .write(store, &build_id)
        .await
        .unwrap();

    for _ in 0..2 {
        let (_, answer) = fixture.ask(&request).await;
        let batch = &answer["batches"][0];
        assert_eq!(
            (&batch["state"], &batch["detail"]),
            (&json!("ok"), &json!("debug_information"))
        );
        let frame = &batch["frames"][0][0];
        assert_eq!((&frame["function"], &frame["line"]), (&json!("work"), &json!(3)));
        assert_eq!(
            (&frame["inlined"], &frame["language"]),
            (&json!(false), &json!("c"))
        );
        assert!(frame["file"].as_str().unwrap().ends_with("/p.c"));
        let types = json!({ "parameters": ["struct item *", "char **"], "result": "long int" });
        assert_eq!(frame["type"], types);
        assert_eq!((&batch["frames"][1], &batch["frames"][2][0]), (&json!([]), frame));
    }
    let counts = fixture.hub.indexes.counts();
    assert_eq!((counts.hits, counts.misses, counts.open), (1, 2, 1));

    let message = RequestMessage {
        batches: vec![BatchMessage {
            build_id: build_id.clone(),
            offsets: vec![offset, offset],
            addresses: vec![],
        }],
    };
    let (status, body) = fixture
        .post("application/x-protobuf", message.encode_to_vec())
        .await;
    let answer = ResponseMessage::decode(body.as_slice()).unwrap();
    assert_eq!((status, answer.batches[0].state.as_str()), (StatusCode::OK, "ok"));
    assert_eq!((&answer.batches[0].stacks, answer.stacks.len()), (&vec![0, 0], 1));
    // gRPC has the same answer.
    let (status, called) = fixture.call(&message, &fixture.token).await;
    assert_eq!((status.as_str(), called.as_ref()), ("0", Some(&answer)));
    let frame = &answer.stacks[0].frames[0];
    let function = &answer.functions[frame.function as usize];
    assert_eq!(
        (answer.strings[function.name as usize].as_str(), frame.line),
        ("work", 3)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn builds_without_an_index_have_a_state() {
    let fixture = Fixture::new().await;
    let (id, other) = ("00112233445566778899aabbccddeeff01234567", "ffff2233");
    let refused = |made| IndexRecord {
        sources: IndexSources::default(),
        made,
        used: None,
        refused: Some("the file names no function".to_owned()),
    };
    let now = clock::now();
    refused(now + clock::SECOND)
        .write(&fixture.hub.objects, other)
        .await
        .unwrap();
    let request =
        json!({ "batches": [{ "build_id": id, "offsets": [1] }, { "build_id": other, "offsets": [1] }] });
    let (_, answer) = fixture.ask(&request).await;
    let states = [&answer["batches"][0]["state"], &answer["batches"][1]["state"]];
    assert_eq!(
        states,
        [&json!("absent"), &json!("malformed: the file names no function")]
    );
    // A refusal from before the start of this hub is tried again.
    refused(now - clock::HOUR)
        .write(&fixture.hub.objects, other)
        .await
        .unwrap();
    let (_, answer) = fixture.ask(&request).await;
    assert_eq!(answer["batches"][1]["state"], "pending");
}

#[tokio::test(flavor = "multi_thread")]
async fn malformed_requests_get_one_sentence() {
    let fixture = Fixture::new().await;
    let many = json!({ "batches": [{ "build_id": "abcd", "offsets": vec![1; 100_001] }] });
    let batches = json!({ "batches": vec![json!({ "build_id": "abcd" }); 257] });
    for (request, status, text) in [
        (
            json!({ "batches": [{ "build_id": "XYZ" }] }),
            400,
            "build id of batch 0",
        ),
        (
            json!({ "batches": [{ "build": "abcd" }] }),
            400,
            "not as documented",
        ),
        (json!({}), 400, "not as documented"),
        (many, 413, "at most 100000 offsets"),
        (batches, 413, "at most 256 batches"),
    ] {
        let (found, answer) = fixture.ask(&request).await;
        let error = answer["error"].as_str().unwrap();
        assert_eq!(found.as_u16(), status, "{error}");
        assert!(error.contains(text), "{error}");
    }
    // 3 is an invalid argument of gRPC, and 8 an exhausted resource.
    let batch = |build_id: &str| BatchMessage {
        build_id: build_id.to_owned(),
        ..BatchMessage::default()
    };
    let wrong = RequestMessage {
        batches: vec![batch("XYZ")],
    };
    assert_eq!(fixture.call(&wrong, &fixture.token).await, ("3".to_owned(), None));
    let many = RequestMessage {
        batches: vec![batch("abcd"); 257],
    };
    assert_eq!(fixture.call(&many, &fixture.token).await, ("8".to_owned(), None));
    let (status, answer) = fixture.call(&wrong, "other").await;
    assert!(status != "0" && answer.is_none(), "{status}");
    let (status, body) = fixture.post("application/x-protobuf", vec![0xff; 40]).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert!(String::from_utf8_lossy(&body).contains("protobuf is not as documented"));
}
