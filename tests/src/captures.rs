//! Traces recorded on real Intel processors. They are in `../shared/data` beside the repository, on
//! machines that have them.

use std::ffi::OsString;
use std::path::PathBuf;

/// Returns the folder of captures, or `None` with a message on stderr without it.
#[must_use]
pub fn folder() -> Option<PathBuf> {
    let folder = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../shared/data"));
    if folder.is_dir() {
        return Some(folder);
    }
    eprintln!("skipped: no captures at ../shared/data");
    None
}

/// A capture as raw PT bytes with its code, and the result of libipt's `pt_insn`.
#[derive(Clone, Copy, Debug)]
pub struct Capture {
    /// The PT bytes, relative to `pt/`.
    pub trace: &'static str,
    /// Images, relative to the folder of `trace`, with `@ADDRESS` where one is needed.
    pub images: &'static [&'static str],
    /// Family, model and stepping of the processor.
    pub cpu: &'static str,
    /// More options of `import raw`.
    pub timing: &'static [&'static str],
    /// The number of decoded instructions.
    pub instructions: u64,
    /// The number of decode errors.
    pub errors: u64,
    /// FNV-1a-64 over the instruction pointers.
    pub digest: &'static str,
}

impl Capture {
    /// The arguments of `backtrail import raw` without `-o`.
    #[must_use]
    pub fn import_arguments(&self) -> Option<Vec<OsString>> {
        let trace = folder()?.join("pt").join(self.trace);
        let mut arguments: Vec<OsString> = ["import", "raw", "--cpu", self.cpu, "--pt"]
            .map(Into::into)
            .into();
        let images = trace
            .parent()
            .map(|parent| self.images.iter().map(|image| parent.join(image)));
        arguments.push(trace.clone().into());
        for image in images.into_iter().flatten() {
            arguments.extend(["--image".into(), image.into()]);
        }
        arguments.extend(self.timing.iter().map(Into::into));
        Some(arguments)
    }

    /// The expected line of `info --digest`. A raw import has one thread, 1.
    #[must_use]
    pub fn digest_line(&self) -> String {
        format!(
            "thread 1 instructions {} errors {} digest {}\n",
            self.instructions, self.errors, self.digest
        )
    }
}

const DYNAMORIO: &[&str] = &["--mtc-freq", "3", "--nom-freq", "37", "--cpuid-15h", "2/308"];
const HASE: &[&str] = &["--mtc-freq", "3", "--nom-freq", "32", "--cpuid-15h", "2/266"];

/// Every capture whose code is known.
pub const CAPTURES: &[Capture] = &[
    Capture {
        trace: "lldb/intelpt-trace/3842849.trace",
        images: &["a.out"],
        cpu: "6/79/1",
        timing: &[],
        instructions: 21,
        errors: 0,
        digest: "a9fe0721b4730d26",
    },
    Capture {
        trace: "lldb/intelpt-trace-multi-file/multi-file.trace",
        images: &["a.out", "libfoo.so@0x7ffff7bd9000", "libbar.so@0x7ffff79d7000"],
        cpu: "6/79/1",
        timing: &[],
        instructions: 63,
        errors: 2,
        digest: "b49284a857babb1c",
    },
    Capture {
        trace: "lldb/intelpt-multi-core-trace/cores/45.intelpt_trace",
        images: &["../modules/m.out"],
        cpu: "6/85/4",
        timing: &[],
        instructions: 61_825,
        errors: 1,
        digest: "3fe4d1c4bfa53614",
    },
    Capture {
        trace: "lldb/intelpt-multi-core-trace/cores/51.intelpt_trace",
        images: &["../modules/m.out"],
        cpu: "6/85/4",
        timing: &[],
        instructions: 50_003,
        errors: 144,
        digest: "2b1ce81349d21404",
    },
    Capture {
        trace: "dynamorio/raw_2022-07-08/pt.bin",
        images: &["hello"],
        cpu: "6/85/4",
        timing: DYNAMORIO,
        instructions: 8,
        errors: 0,
        digest: "7931620037f53a9f",
    },
    Capture {
        trace: "dynamorio/tracedir_2022-07-06/pt.bin",
        images: &["hello"],
        cpu: "6/85/4",
        timing: DYNAMORIO,
        instructions: 59_234,
        errors: 0,
        digest: "167a7c4d385a2cdc",
    },
    Capture {
        trace: "hase/20180404/loopy/x/aux-idx2.bin",
        images: &["../loopy"],
        cpu: "6/94/3",
        timing: HASE,
        instructions: 57,
        errors: 0,
        digest: "574bf011aedda8f4",
    },
    Capture {
        trace: "hase/20180404/control_flow/x/aux-idx1.bin",
        images: &["../control_flow"],
        cpu: "6/94/3",
        timing: HASE,
        instructions: 1092,
        errors: 0,
        digest: "59be03529a08eded",
    },
];
