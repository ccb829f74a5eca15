//! Sums of recordings whose rate was lowered to stay within the budget of processor time.

use crate::ebpf_stacks::no_ebpf;
use crate::profile_recordings::{build, record, report};
use std::path::Path;

/// Two threads use processor time until each has the seconds of the argument, and start others
/// all the time. Prints the nanoseconds of all.
const THREADS: &str = "
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
static double seconds;
static double used(clockid_t clock) { struct timespec t; clock_gettime(clock, &t); return t.tv_sec + t.tv_nsec / 1e9; }
static void *brief(void *x) { volatile long n = 0; for (long i = 0; i < 20000000; i++) n += i; return x; }
static void *work(void *x) {
    while (used(CLOCK_THREAD_CPUTIME_ID) < seconds) {
        pthread_t t; if (pthread_create(&t, 0, brief, 0)) exit(1);
        volatile long n = 0; for (long i = 0; i < 100000000; i++) n += i;
        pthread_join(t, 0); }
    return x; }
int main(int c, char **v) {
    pthread_t a, b; seconds = atof(v[c - 1]);
    if (pthread_create(&a, 0, work, 0) || pthread_create(&b, 0, work, 0)) return 1;
    pthread_join(a, 0); pthread_join(b, 0);
    FILE *f = fopen(v[1], \"w\"); fprintf(f, \"%.0f\\n\", used(CLOCK_PROCESS_CPUTIME_ID) * 1e9); fclose(f); return 0; }
";

/// Records by a method with a budget. Returns the weight of all samples in relation to what the
/// program used, and the lowest rate.
fn ratio(folder: &Path, program: &Path, method: &str, budget: &str) -> (f64, Option<f64>) {
    let (output, used) = (folder.join("recording"), folder.join("used"));
    let options = ["--freq", "1000", "--cpu-budget", budget, "--stacks", method];
    let arguments = [program.to_str().unwrap(), used.to_str().unwrap(), "4"];
    let recorded = record(&output, &options, &arguments);
    assert_eq!(recorded["lost"], 0, "{recorded}");
    let notes = recorded["notes"].as_array().unwrap().iter();
    let mut lowest = notes.filter_map(|note| {
        let rest = note.as_str()?.strip_prefix("the rate was lowered to ")?;
        rest.split(' ').next()?.parse().ok()
    });
    let used: f64 = std::fs::read_to_string(used).unwrap().trim().parse().unwrap();
    let total = report(&output, &[])["total"].as_f64().unwrap();
    (total / used, lowest.next_back())
}

#[test]
fn sums_stay_right_at_a_lower_rate() {
    let folder = tempfile::tempdir().unwrap();
    let program = build(&folder, "threads", THREADS, &["-O1", "-pthread"]);
    let methods = match no_ebpf() {
        None => &["ebpf", "copy"][..],
        Some(_) => &["copy"],
    };
    for method in methods {
        let (whole, lowest) = ratio(folder.path(), &program, method, "100");
        assert_eq!(lowest, None);
        let (thinned, lowest) = ratio(folder.path(), &program, method, "0.05");
        let lowest = lowest.unwrap();
        assert!(lowest < 500.0, "{lowest}");
        // A stretch of each processor may lack its sample, and at least 8 s were used.
        let cpus = std::thread::available_parallelism().unwrap().get() as f64;
        let allowed = 0.01 + cpus / lowest / 8.0;
        let error = (thinned - whole).abs();
        assert!(error < allowed, "{method}: {whole} {thinned} {lowest}");
    }
}
