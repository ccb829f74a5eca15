//! The targets of fuzzing, and how each is run.

/// A fuzz target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// Its name, by which it is asked for.
    pub name: &'static str,
    /// How it is run.
    pub runner: Runner,
    /// Its input, for the list.
    pub reads: &'static str,
}

/// How a target is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Runner {
    /// A test of this path in `tests/tests/hostile`.
    Test(&'static str),
    /// The script `vscode-extension/scripts/fuzz-links.mjs`.
    Links,
}

const fn test(name: &'static str, path: &'static str, reads: &'static str) -> Target {
    Target {
        name,
        runner: Runner::Test(path),
        reads,
    }
}

/// All of them.
pub const TARGETS: &[Target] = &[
    test("packets", "targets::packets", "PT packets"),
    test("decoder", "targets::decoder", "a thread's trace with its code"),
    test("segments", "targets::segments", "the same, by several threads"),
    test(
        "processor",
        "targets::processor",
        "a processor's trace with its switches",
    ),
    test("trace_json", "targets::trace_json", "a bundle's description"),
    test("meta_json", "targets::meta_json", "a bundle's second description"),
    test("packed_bundle", "targets::packed_bundle", "a packed bundle"),
    test(
        "context_switches",
        "targets::context_switches",
        "context switches",
    ),
    test("core_files", "targets::core_files", "cores"),
    test(
        "compressed_cores",
        "compressed::compressed_cores",
        "cores compressed by zstd, xz, gzip and lz4",
    ),
    test(
        "core_builds",
        "compressed::core_builds",
        "the headers of mapped files in cores",
    ),
    test("perf_data", "targets::perf_data", "perf.data"),
    test(
        "profile_recordings",
        "profile_recordings::profile_recordings",
        "recordings of the profiler",
    ),
    test(
        "profiler_tables",
        "profile_recordings::profiler_tables",
        "unwind tables of the profiler",
    ),
    test(
        "profiler_frames",
        "profile_recordings::profiler_frames",
        "`.eh_frame` for unwind tables of the profiler",
    ),
    test(
        "sample_records",
        "samples::sample_records",
        "samples of eBPF programs, with requests",
    ),
    test(
        "python_code",
        "samples::python_code",
        "code objects and line tables of Python",
    ),
    test(
        "python_builds",
        "samples::python_builds",
        "ELF files with Python's interpreter",
    ),
    test(
        "perf_maps",
        "profile_recordings::perf_maps",
        "perf maps of JIT compilers",
    ),
    test(
        "jitdumps",
        "profile_recordings::jitdumps",
        "jitdumps of JIT compilers",
    ),
    test(
        "thread_contexts",
        "thread_contexts::thread_contexts",
        "contexts of processes and requests",
    ),
    test(
        "thread_variables",
        "thread_contexts::thread_variables",
        "ELF files with the variable of requests",
    ),
    test("page_lists", "targets::page_lists", "page lists of raw packets"),
    test(
        "profiles",
        "profiles::profiles",
        "profiles: perf.data, JFR, pprof, folded stacks",
    ),
    test(
        "branch_records",
        "profiles::branch_records",
        "last branch records of perf.data and perf script",
    ),
    test(
        "calling_contexts",
        "profiles::calling_contexts",
        "pseudo-probes of binaries, and samples with call chains",
    ),
    test("elf", "binaries::elf", "ELF files"),
    test("dwarf", "binaries::dwarf", "debug sections of ELF files"),
    test(
        "call_frame_information",
        "stacks::call_frame_information",
        "unwind tables",
    ),
    test("core_stacks", "stacks::core_stacks", "stacks in cores"),
    test("debug_adapter", "messages::debug_adapter", "requests of editors"),
    test(
        "control_socket",
        "messages::control_socket",
        "HTTP to the collector",
    ),
    test(
        "recorder_messages",
        "messages::recorder_messages",
        "messages to the collector",
    ),
    Target {
        name: "links",
        runner: Runner::Links,
        reads: "links to crashes in VS Code",
    },
];

/// The targets of these names, in the order of [`TARGETS`]; all without names.
///
/// # Errors
/// When a name is none.
pub fn named(names: &[&str]) -> Result<Vec<Target>, String> {
    if let Some(other) = names
        .iter()
        .find(|name| TARGETS.iter().all(|target| target.name != **name))
    {
        let known: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
        return Err(format!(
            "'{other}' is not a fuzz target; the targets are: {}",
            known.join(", ")
        ));
    }
    let wanted = |target: &&Target| names.is_empty() || names.contains(&target.name);
    Ok(TARGETS.iter().filter(wanted).copied().collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// The calls `fuzz("NAME", …)` of the harness, by the module they are in.
    fn of_the_harness() -> Vec<String> {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/tests/hostile");
        let mut found = Vec::new();
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let text = fs::read_to_string(&path).unwrap();
            let module = path.file_stem().unwrap().to_str().unwrap();
            for call in text.split(" fuzz(").skip(1) {
                let name = call
                    .trim_start()
                    .strip_prefix('"')
                    .and_then(|rest| rest.split_once('"'));
                found.extend(name.map(|(name, _)| format!("{module}::{name}")));
            }
        }
        found.sort();
        found
    }

    #[test]
    fn every_target_of_the_harness_is_named_and_no_other() {
        let mut named: Vec<String> = TARGETS
            .iter()
            .filter_map(|target| match target.runner {
                Runner::Test(path) => Some(path.to_owned()),
                Runner::Links => None,
            })
            .collect();
        named.sort();
        assert_eq!(of_the_harness(), named);
        let last = |path: &str| path.rsplit("::").next().map(str::to_owned);
        for target in TARGETS {
            if let Runner::Test(path) = target.runner {
                assert_eq!(last(path).as_deref(), Some(target.name));
            }
        }
    }

    #[test]
    fn wrong_name_error_lists_the_valid_names() {
        assert!(named(&["decoder", "nothing"]).unwrap_err().contains("decoder"));
        assert_eq!(named(&["links", "elf"]).unwrap().len(), 2);
        assert_eq!(named(&[]).unwrap().len(), TARGETS.len());
    }
}
