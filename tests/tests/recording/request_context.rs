//! The context that a program publishes for OpenTelemetry, in the bundle of its crash.

use backtrail_tests::bundle::Bundle;
use backtrail_tests::programs::{Variant, find};
use serde_json::{Value, json};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

const FIXTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/programs");
/// The request of the example programs.
const REQUEST: &str = "trace id 4bf92f74726163652d6f662d63617274, span id 017370616e2d6964, route.id /cart";

/// Returns the context of a bundle.
fn context(bundle: &Bundle) -> Value {
    let info = bundle.run(&["info"], &["--json"]);
    let info: Value = serde_json::from_str(&info.stdout).unwrap();
    info["context"].clone()
}

/// Checks that a bundle has the context of the example programs.
#[track_caller]
pub(crate) fn assert_has_context(bundle: &Bundle, what: &str) {
    let context = context(bundle);
    assert_eq!(context["resource"], json!({"service.name": "shop"}), "{what}");
    let threads = context["threads"].as_array().unwrap();
    assert_eq!(threads.len(), 1, "{what}: {context}");
    let expected = json!({
        "tid": threads[0]["tid"],
        "trace_id": "4bf92f74726163652d6f662d63617274",
        "span_id": "017370616e2d6964",
        "trace_flags": 1,
        "attributes": {"route.id": "/cart"},
    });
    assert_eq!(threads[0], expected, "{what}");
}

/// Compiles a source with `cc`, in a folder with the fixtures as include path.
fn compiled(folder: &Path, name: &str, source: &str, flags: &[&str]) -> PathBuf {
    compiled_by("cc", folder, name, source, flags)
}

/// Compiles a source with some compiler.
pub(crate) fn compiled_by(
    compiler: &str,
    folder: &Path,
    name: &str,
    source: &str,
    flags: &[&str],
) -> PathBuf {
    let (path, output) = (folder.join(format!("{name}.c")), folder.join(name));
    std::fs::write(&path, source).unwrap();
    let built = Command::new(compiler)
        .args(["-O1", "-g", "-I", FIXTURES, "-o"])
        .args([&output, &path])
        .args(flags)
        .status()
        .unwrap();
    assert!(built.success(), "{name}");
    output
}

/// Returns the source of the example in C.
pub(crate) fn example() -> String {
    std::fs::read_to_string(Path::new(FIXTURES).join("request_context.c")).unwrap()
}

/// Records a program with its arguments.
pub(crate) fn recorded(command: &[&OsStr]) -> Bundle {
    Bundle::made(&["record"], &[&["--".as_ref()], command].concat()).0
}

/// The option that puts the variable into the dynamic symbols of an executable.
pub(crate) const EXPORT: &str = "-Wl,--export-dynamic-symbol=otel_thread_ctx_v1";

#[test]
fn crash_of_each_example_has_its_request() {
    for name in ["request_context", "request_context_rust"] {
        let program = find(name).unwrap();
        for variant in program.variants {
            for engine in ["translate", "step"] {
                if engine == "step" && *variant != Variant::Pie {
                    continue;
                }
                let (bundle, _) = Bundle::recorded(program, *variant, &["--engine", engine]);
                assert_has_context(&bundle, &format!("{name}, {}, {engine}", variant.name()));
            }
        }
    }
    let (bundle, _) = Bundle::recorded(find("request_context").unwrap(), Variant::Pie, &["--full"]);
    let info = bundle.run(&["info"], &[]).stdout;
    assert!(info.contains(&format!("\n  request   {REQUEST}\n")), "{info}");
    assert!(info.contains("\n  resource  service.name shop\n"), "{info}");
    let crash = bundle.run(&["debug"], &["-e", "crash"]).stdout;
    assert!(crash.contains(&format!("\nrequest: {REQUEST}\n")), "{crash}");
}

/// A program that runs the `main` of a library.
pub(crate) const LOADER: &str = "
#include <dlfcn.h>
int main(int count, char **words)
{
	void *library = dlopen(words[1], RTLD_NOW);
	int (*run)(void) = library ? (int (*)(void))dlsym(library, \"main\") : 0;
	return run ? run() : 99;
}";

#[test]
fn variable_of_a_library_is_found_in_each_access_model() {
    let folder = tempfile::tempdir().unwrap();
    let loader = compiled(folder.path(), "loader", LOADER, &[]);
    for (name, flags) in [
        ("gnu", &["-mtls-dialect=gnu"][..]),
        ("gnu2", &["-mtls-dialect=gnu2"]),
        ("initial-exec", &["-ftls-model=initial-exec"]),
        ("gnu2-local", &["-mtls-dialect=gnu2", "-Wl,-Bsymbolic"]),
        (
            "gnu2-hash",
            &["-mtls-dialect=gnu2", "-Wl,--hash-style=sysv", "-Wl,-z,lazy"],
        ),
    ] {
        let flags = [&["-shared", "-fPIC"], flags].concat();
        let library = compiled(folder.path(), name, &example(), &flags);
        let preload = format!("LD_PRELOAD={}", library.display());
        let (loader, library) = (loader.as_os_str(), library.as_os_str());
        assert_has_context(&recorded(&[loader, library]), &format!("{name}, loaded later"));
        let at_start = ["env".as_ref(), preload.as_ref(), loader, library];
        assert_has_context(&recorded(&at_start), &format!("{name}, loaded at the start"));
    }
}

#[test]
fn each_thread_has_its_own_request() {
    const THREADS: &str = "
#define main crash
#include \"request_context.c\"
#undef main
#include <pthread.h>
static void *wait_for_crash(void *ready)
{
	static struct record other = { .trace_id = \"0123456789abcdef\", .span_id = \"01234567\", .valid = 1 };
	if (ready)
		otel_thread_ctx_v1 = &other;
	static volatile int started;
	__atomic_fetch_add(&started, 1, __ATOMIC_SEQ_CST);
	while (started < 3)
		usleep(1000);
	if (!ready)
		crash();
	pause();
	return 0;
}
int main(void)
{
	pthread_t thread;
	pthread_create(&thread, 0, wait_for_crash, &thread);
	pthread_create(&thread, 0, wait_for_crash, 0);
	wait_for_crash(&thread);
}";
    let folder = tempfile::tempdir().unwrap();
    let program = compiled(folder.path(), "threads", THREADS, &["-pthread", EXPORT]);
    let bundle = recorded(&[program.as_os_str()]);
    let context = context(&bundle);
    let mut ids: Vec<&str> = context["threads"]
        .as_array()
        .unwrap()
        .iter()
        .map(|thread| thread["trace_id"].as_str().unwrap())
        .collect();
    ids.sort_unstable();
    let other = "30313233343536373839616263646566";
    assert_eq!(ids, [other, other, "4bf92f74726163652d6f662d63617274"]);
    let info = bundle.run(&["info"], &[]).stdout;
    assert!(info.contains(&format!("  request   {REQUEST}\n")), "{info}");
}

#[test]
fn context_that_is_not_valid_is_not_in_the_bundle() {
    let folder = tempfile::tempdir().unwrap();
    let context_of = |name: &str, from: &str, to: &str| {
        let source = example();
        assert!(source.contains(from), "{from}");
        let program = compiled(folder.path(), name, &source.replace(from, to), &[EXPORT]);
        context(&recorded(&[program.as_os_str()]))
    };
    let resource_alone = json!({"resource": {"service.name": "shop"}, "threads": []});
    for (name, from, to) in [
        ("updating", ".valid = 1", ".valid = 0"),
        ("reserved", ".valid = 1", ".valid = 2"),
        ("detached", "otel_thread_ctx_v1 = request;", ""),
        (
            "dangling",
            "otel_thread_ctx_v1 = request;",
            "otel_thread_ctx_v1 = (void *)16;",
        ),
        ("unknown-schema", "tlsdesc_v1_dev", "nodejs__v1_dev"),
    ] {
        assert_eq!(context_of(name, from, to), resource_alone, "{name}");
    }
    for (name, from, to) in [
        ("unpublished", "\tpublish();\n", ""),
        ("unsigned", "OTEL_CTX\", 8", "OTEL_CTY\", 8"),
        ("republishing", ".published_at = at", ".published_at = 0 * at"),
        (
            "truncated",
            ".size = sizeof payload - 1",
            ".size = sizeof payload - 3",
        ),
        ("huge", ".size = sizeof payload - 1", ".size = ~0u"),
        ("newer", ".version = 2", ".version = 3"),
    ] {
        assert_eq!(context_of(name, from, to), Value::Null, "{name}");
    }
}
