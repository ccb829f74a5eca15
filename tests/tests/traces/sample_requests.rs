//! The requests of sampled threads, as labels of their samples.

use crate::ebpf_stacks::no_ebpf;
use crate::profile_recordings::{build, build_by, record, report, share};
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Stdio};
use tempfile::TempDir;

const EXAMPLE: &str = include_str!("../../fixtures/programs/request_context.c");

/// Works in turn on two requests, on a request whose record is not valid, and on none. The main
/// function of the example becomes another one.
const WORK: &str = "
#include <stdio.h>
static uint64_t now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec * 1000000000ull + t.tv_nsec; }
#define WORK(name) __attribute__((noinline)) void name(void) { uint64_t end = now() + 5000000; \\
	for (volatile long i = 0; now() < end; i++) for (volatile int j = 0; j < 10000; j++); }
WORK(cart) WORK(payment) WORK(between) WORK(updating)
static struct record first = { .trace_id = \"0123456789abcdef\", .span_id = \"01234567\", .valid = 1, .size = 7, .attributes = \"\\0\\5/cart\" };
static struct record second = { .trace_id = \"fedcba9876543210\", .span_id = \"76543210\", .valid = 1 };
int main(void)
{
	publish();
	for (int i = 0; i < 150; i++) {
		otel_thread_ctx_v1 = &first;
		cart();
		otel_thread_ctx_v1 = &second;
		payment();
		second.valid = 0;
		updating();
		second.valid = 1;
		otel_thread_ctx_v1 = 0;
		between();
	}
	return 0;
}
";

const FIRST: &str = "30313233343536373839616263646566";
const SECOND: &str = "66656463626139383736353433323130";

/// The option that puts the variable into the dynamic symbols of an executable.
const EXPORT: &str = "-Wl,--export-dynamic-symbol=otel_thread_ctx_v1";

/// A program that runs the `main` of a library.
const LOADER: &str = "
#include <dlfcn.h>
int main(int count, char **words)
{
	void *library = dlopen(words[1], RTLD_NOW);
	int (*run)(void) = library ? (int (*)(void))dlsym(library, \"main\") : 0;
	return run ? run() : 99;
}";

fn source() -> String {
    format!("{}{WORK}", EXAMPLE.replace("int main", "int example"))
}

/// Returns a report of the samples with some label.
fn labeled(output: &Path, label: &str) -> Value {
    report(output, &["--label", label])
}

fn total(report: &Value) -> f64 {
    report["total"].as_f64().unwrap()
}

/// Records a program, and checks the labels of its samples.
#[track_caller]
fn assert_samples_have_requests(folder: &TempDir, what: &str, program: &[&str]) {
    let output = folder.path().join("recording");
    let recorded = record(&output, &["--freq", "499"], program);
    assert!(recorded["walked_in_kernel"].as_u64().unwrap() > 0, "{recorded}");
    let all = report(&output, &[]);
    let (cart, payment) = (
        labeled(&output, &format!("trace_id=^{FIRST}$")),
        labeled(&output, &format!("trace_id=^{SECOND}$")),
    );
    // A sample may be at the border of two functions.
    assert!(share(&cart, "cart") > 0.97, "{what}: {cart}");
    assert!(share(&payment, "payment") > 0.97, "{what}: {payment}");
    // The first samples have no labels: the process is not known yet.
    for (name, labeled) in [("cart", &cart), ("payment", &payment)] {
        let part = total(labeled) / (total(&all) * share(&all, name));
        assert!(
            (0.7..1.03).contains(&part),
            "{what}: {part} of {name} have its label"
        );
    }
    let any = labeled(&output, "trace_id=.");
    assert!(
        share(&any, "between") + share(&any, "updating") < 0.02,
        "{what}: {any}"
    );
    let route = labeled(&output, "route.id=^/cart$");
    assert_eq!(total(&route), total(&cart), "{what}");
    let span = labeled(&output, "span_id=^3031323334353637$");
    assert_eq!(total(&span), total(&cart), "{what}");
    let service = labeled(&output, "service.name=^shop$");
    assert!(total(&service) / total(&all) > 0.7, "{what}: {service}");
}

#[test]
fn samples_have_the_requests_of_their_threads() {
    if no_ebpf().is_some() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let program = build(&folder, "static", &source(), &[EXPORT]);
    assert_samples_have_requests(&folder, "executable", &[program.to_str().unwrap()]);
    let loader = build(&folder, "loader", LOADER, &[]);
    for dialect in ["gnu", "gnu2"] {
        let flag = format!("-mtls-dialect={dialect}");
        let library = build(&folder, dialect, &source(), &["-shared", "-fPIC", &flag]);
        let command = [loader.to_str().unwrap(), library.to_str().unwrap()];
        assert_samples_have_requests(&folder, dialect, &command);
    }
}

#[test]
fn samples_of_programs_with_musl_have_requests() {
    let mut musl = Command::new("musl-gcc");
    if musl.arg("--version").stdout(Stdio::null()).status().is_err() {
        eprintln!("skipped: musl-gcc is missing");
        return;
    }
    if no_ebpf().is_some() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let build =
        |name: &str, source: &str, options: &[&str]| build_by("musl-gcc", &folder, name, source, options);
    for (name, options) in [("dynamic", &[EXPORT][..]), ("static", &[EXPORT, "-static"])] {
        let program = build(name, &source(), options);
        assert_samples_have_requests(&folder, name, &[program.to_str().unwrap()]);
    }
    let loader = build("loader", LOADER, &[]);
    for dialect in ["gnu", "gnu2"] {
        let flag = format!("-mtls-dialect={dialect}");
        let library = build(dialect, &source(), &["-shared", "-fPIC", &flag]);
        let command = [loader.to_str().unwrap(), library.to_str().unwrap()];
        assert_samples_have_requests(&folder, dialect, &command);
    }
}

#[test]
fn program_without_requests_has_no_labels() {
    if no_ebpf().is_some() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let source = source().replacen("\tpublish();\n\tfor", "\tfor", 1);
    let program = build(&folder, "unpublished", &source, &[]);
    let output = folder.path().join("recording");
    record(&output, &[], &[program.to_str().unwrap()]);
    assert!(total(&report(&output, &[])) > 0.0);
    assert_eq!(total(&labeled(&output, "trace_id=.")), 0.0);
    assert_eq!(total(&labeled(&output, "service.name=.")), 0.0);
}
