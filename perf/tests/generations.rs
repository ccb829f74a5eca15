//! Tests trace attributes on processors of several generations, from CPUID leaves to bytes.
//!
//! The leaves come from public dumps: repository InstLatx64/InstLatx64, folder GenuineIntel, in the
//! files named below. A sysfs tree presents them as the kernel does (`arch/x86/events/intel/pt.c`:
//! `pt_caps`, `pt_formats_attr`, `pt_timing_attr_show`). `max_nonturbo_ratio` is
//! `MSR_PLATFORM_INFO[15:8]` if the dump has it, otherwise the nominal frequency divided by 100
//! MHz.

#![allow(clippy::unwrap_used)] // helpers of tests are tests

use backtrail_perf::attr::{Attr, AuxAction, SIZE, SidebandLevel};
use backtrail_perf::intel_pt::{IntelPt, PtOptions};
use backtrail_pt::TimingParams;
use std::fs;
use std::path::Path;
use tempfile::TempDir;

struct Generation {
    /// CPUID leaf 14H, sub-leaf 0: EAX, EBX, ECX.
    leaf0: [u32; 3],
    /// Sub-leaf 1: EAX, EBX.
    leaf1: [u32; 2],
    /// CPUID leaf 15H: EBX, EAX.
    art: [u32; 2],
    ratio: u8,
}

/// `GenuineIntel0040671_BroadwellH_CPUID.txt`: Core i7-5775C, which has no leaf 15H.
const BROADWELL: Generation = Generation {
    leaf0: [0, 1, 1],
    leaf1: [0, 0],
    art: [0, 0],
    ratio: 33,
};
/// `GenuineIntel00506E3_Skylake_CPUID.txt`: Core i5-6400T; `MSR 000000CE: 0008-083A-F901-1600`.
const SKYLAKE: Generation = Generation {
    leaf0: [1, 0xf, 7],
    leaf1: [0x0249_0002, 0x003f_3fff],
    art: [0xb8, 2],
    ratio: 0x16,
};
/// `GenuineIntel00506C9_Goldmont_CPUID.txt`: Pentium N4200; `MSR 000000CE: 0004-0821-F001-0B00`.
const GOLDMONT: Generation = Generation {
    leaf0: [1, 0xf, 0x8000_0007],
    leaf1: [0x0249_0002, 0x003f_ffff],
    art: [0xab, 3],
    ratio: 0x0b,
};
/// `GenuineIntel00706E5_IceLakeY_CPUID.txt`: Core i7-1065G7, nominal 1500 MHz by leaf 16H.
const ICE_LAKE: Generation = Generation {
    leaf0: [1, 0xf, 7],
    leaf1: [0x0249_0002, 0x003f_1fff],
    art: [0x4e, 2],
    ratio: 15,
};
/// `GenuineIntel0090672_AlderLake_02_CPUID.txt`: Core i5-12400, P cores only, nominal 2500 MHz by
/// leaf 16H.
const ALDER_LAKE: Generation = Generation {
    leaf0: [1, 0x5f, 7],
    leaf1: [0x0249_0002, 0x003f_003f],
    art: [0x82, 2],
    ratio: 25,
};

/// The terms of current kernels. The first kernels with PT lacked `pt` and `branch`, which came
/// with 4.13.
const FORMATS: &[(&str, &str)] = &[
    ("pt", "config:0"),
    ("cyc", "config:1"),
    ("pwr_evt", "config:4"),
    ("fup_on_ptw", "config:5"),
    ("mtc", "config:9"),
    ("tsc", "config:10"),
    ("noretcomp", "config:11"),
    ("ptw", "config:12"),
    ("branch", "config:13"),
    ("event", "config:31"),
    ("notnt", "config:55"),
    ("mtc_period", "config:14-17"),
    ("cyc_thresh", "config:19-22"),
    ("psb_period", "config:24-27"),
];

/// An arbitrary type number.
const KIND: u64 = 10;

fn sysfs(generation: &Generation, without: &[&str]) -> TempDir {
    let root = tempfile::tempdir().unwrap();
    let pmu = root.path().join("bus/event_source/devices/intel_pt");
    let write = |path: &str, text: String| {
        let path = pmu.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text + "\n").unwrap();
    };
    let ([eax0, ebx0, ecx0], [eax1, ebx1]) = (generation.leaf0, generation.leaf1);
    let caps = [
        ("max_subleaf", eax0),
        ("cr3_filtering", ebx0 & 1),
        ("psb_cyc", ebx0 >> 1 & 1),
        ("ip_filtering", ebx0 >> 2 & 1),
        ("mtc", ebx0 >> 3 & 1),
        ("ptwrite", ebx0 >> 4 & 1),
        ("power_event_trace", ebx0 >> 5 & 1),
        ("event_trace", ebx0 >> 7 & 1),
        ("tnt_disable", ebx0 >> 8 & 1),
        ("topa_output", ecx0 & 1),
        ("topa_multiple_entries", ecx0 >> 1 & 1),
        ("single_range_output", ecx0 >> 2 & 1),
        ("output_subsys", ecx0 >> 3 & 1),
        ("payloads_lip", ecx0 >> 31),
        ("num_address_ranges", eax1 & 7),
        ("mtc_periods", eax1 >> 16),
        ("cycle_thresholds", ebx1 & 0xffff),
        ("psb_periods", ebx1 >> 16),
    ];
    for (name, value) in caps {
        write(&format!("caps/{name}"), format!("{value:x}"));
    }
    for (name, text) in FORMATS.iter().filter(|(name, _)| !without.contains(name)) {
        write(&format!("format/{name}"), (*text).to_owned());
    }
    let [ebx, eax] = generation.art;
    write("tsc_art_ratio", format!("{ebx}:{eax}"));
    write("max_nonturbo_ratio", generation.ratio.to_string());
    write("nr_addr_filters", (eax1 & 7).to_string());
    write("type", KIND.to_string());
    root
}

fn read(root: &Path) -> IntelPt {
    IntelPt::read(root).unwrap().unwrap()
}

/// Returns the words of `struct perf_event_attr`.
fn words(attr: &Attr) -> [u64; SIZE / 8] {
    let bytes = attr.to_bytes();
    let mut words = bytes
        .chunks_exact(8)
        .map(|word| u64::from_le_bytes(word.try_into().unwrap()));
    std::array::from_fn(|_| words.next().unwrap())
}

/// Returns type and size, configuration, period, sample type, read format and flags, followed by
/// zeros.
fn expected(config: u64, flags: u64) -> [u64; SIZE / 8] {
    let mut words = [0; SIZE / 8];
    // TID, TIME, CPU, IDENTIFIER; the id is read with the count.
    words[..6].copy_from_slice(&[KIND | (SIZE as u64) << 32, config, 1, 0x1_0086, 4, flags]);
    words
}

/// Disabled, without kernel and hypervisor, with `sample_id_all`.
const USER: u64 = 0x4_0061;

#[test]
fn every_generation_gets_perfs_configuration() {
    let compressed = PtOptions {
        compress_returns: true,
        ..PtOptions::default()
    };
    // tsc, pt and branch; from Skylake on also mtc with period 3 and psb_period 3, which is perf's
    // well-known 0x300e601.
    let cases = [
        (&BROADWELL, 0x2401, 256),
        (&SKYLAKE, 0x0300_e601, 16384),
        (&GOLDMONT, 0x0300_e601, 16384),
        (&ICE_LAKE, 0x0300_e601, 16384),
        (&ALDER_LAKE, 0x0300_e601, 16384),
    ];
    for (generation, config, psb_bytes) in cases {
        let root = sysfs(generation, &[]);
        let pt = read(root.path());
        let setting = pt.setting(&compressed).unwrap();
        assert_eq!(setting.psb_bytes, psb_bytes);
        assert_eq!(
            words(&Attr::intel_pt(&pt, &setting, false)),
            expected(config, USER)
        );
        assert_eq!(
            words(&Attr::intel_pt(&pt, &setting, true)),
            expected(config, USER & !0x20)
        );
        assert_eq!(
            words(&Attr::intel_pt(&pt, &setting, false).inherited()),
            expected(config, USER | 2)
        );
    }
}

#[test]
fn old_kernel_without_branch_term_is_configured() {
    let root = sysfs(&SKYLAKE, &["pt", "branch"]);
    let pt = read(root.path());
    let setting = pt
        .setting(&PtOptions {
            compress_returns: true,
            ..PtOptions::default()
        })
        .unwrap();
    assert_eq!(setting.config.0, [0x0300_c600, 0, 0, 0, 0]);
}

#[test]
fn options_are_encoded_in_their_bits() {
    let root = sysfs(&SKYLAKE, &[]);
    let setting = read(root.path())
        .setting(&PtOptions {
            psb_period: Some(0),
            mtc_period: Some(9),
            cyc_threshold: Some(13),
            compress_returns: false,
        })
        .unwrap();
    let config = 0x2401 | 1 << 9 | 9 << 14 | 1 << 1 | 13 << 19 | 1 << 11;
    assert_eq!(setting.config.0, [config, 0, 0, 0, 0]);
    assert_eq!((setting.mtc_period, setting.psb_bytes), (Some(9), 2048));
}

#[test]
fn unsupported_options_are_refused_with_alternatives() {
    let refused = |generation: &Generation, options: PtOptions| {
        let root = sysfs(generation, &[]);
        read(root.path()).setting(&options).unwrap_err().to_string()
    };
    let defaults = PtOptions::default();
    let cases = [
        (
            &BROADWELL,
            PtOptions {
                psb_period: Some(3),
                ..defaults
            },
            "supports no PSB period",
        ),
        (
            &BROADWELL,
            PtOptions {
                mtc_period: Some(3),
                ..defaults
            },
            "supports no MTC period",
        ),
        (
            &BROADWELL,
            PtOptions {
                cyc_threshold: Some(0),
                ..defaults
            },
            "no CYC packets",
        ),
        (
            &SKYLAKE,
            PtOptions {
                mtc_period: Some(4),
                ..defaults
            },
            "use one of 0, 3, 6, 9",
        ),
        (
            &SKYLAKE,
            PtOptions {
                psb_period: Some(6),
                ..defaults
            },
            "use one of 0, 1, 2, 3, 4, 5",
        ),
        // Goldmont has it, Ice Lake does not, and Alder Lake has far fewer.
        (
            &ICE_LAKE,
            PtOptions {
                cyc_threshold: Some(13),
                ..defaults
            },
            "does not support CYC threshold 13",
        ),
        (
            &ALDER_LAKE,
            PtOptions {
                cyc_threshold: Some(6),
                ..defaults
            },
            "use one of 0, 1, 2, 3, 4, 5",
        ),
    ];
    for (generation, options, text) in cases {
        let error = refused(generation, options);
        assert!(error.contains(text), "{error}");
    }
}

#[test]
fn timing_parameters_match_the_generation() {
    let root = sysfs(&GOLDMONT, &[]);
    let pt = read(root.path());
    let setting = pt.setting(&PtOptions::default()).unwrap();
    let expected = TimingParams {
        mtc_freq: 3,
        nom_freq: 11,
        cpuid_15h_eax: 3,
        cpuid_15h_ebx: 171,
    };
    assert_eq!(pt.timing(&setting), expected);
    assert!(pt.caps.payloads_lip && pt.caps.psb_cyc && !pt.caps.ptwrite);
    assert_eq!((pt.pmu.address_filters, pt.caps.num_address_ranges), (2, 2));
}

#[test]
fn invalid_capability_is_refused_with_its_path() {
    let root = sysfs(&SKYLAKE, &[]);
    let cap = root
        .path()
        .join("bus/event_source/devices/intel_pt/caps/mtc_periods");
    fs::write(&cap, "none\n").unwrap();
    let error = IntelPt::read(root.path()).unwrap_err().to_string();
    assert!(
        error.contains("caps/mtc_periods") && error.contains("none"),
        "{error}"
    );
    let empty = tempfile::tempdir().unwrap();
    assert_eq!(IntelPt::read(empty.path()).unwrap(), None);
}

#[test]
fn sideband_attributes_have_expected_bytes() {
    const SOFTWARE: u64 = 1;
    const DUMMY: u64 = 9;
    let mut words_of = expected(DUMMY, 0);
    words_of[0] = SOFTWARE | (SIZE as u64) << 32;
    // As for a trace, and: mmap 8, comm 9, task 13, watermark 14, mmap2 23, comm_exec 24,
    // context_switch 26, ksymbol 29, bpf_event 30, build_id 34. No clockid (25), because perf's
    // clock would then differ from that of the trace.
    words_of[5] = 0x4_6584_6361;
    words_of[6] = 0x4_0000;
    let attr = Attr::sideband(0x4_0000);
    assert_eq!(words(&attr), words_of);
    words_of[5] &= !(1 << 34);
    assert_eq!(
        words(&attr.clone().without_newer(SidebandLevel::Linux5)),
        words_of
    );
    words_of[5] &= !(3 << 29);
    assert_eq!(words(&attr.without_newer(SidebandLevel::Linux4)), words_of);
}

#[test]
fn aux_pause_and_resume_are_encoded() {
    const TRACEPOINT: u64 = 2;
    let pause = words(&Attr::tracepoint(0x123, Some(AuxAction::Pause)));
    assert_eq!(pause[..3], [TRACEPOINT | (SIZE as u64) << 32, 0x123, 1]);
    // aux_pause is bit 1 and aux_resume bit 2 of the word after aux_sample_size.
    assert_eq!(pause[14], 2 << 32);
    let resume = words(&Attr::timer(100_000, AuxAction::Resume));
    assert_eq!((resume[0] & 0xffff_ffff, resume[1], resume[2]), (1, 0, 100_000));
    assert_eq!(resume[14], 4 << 32);
    assert_eq!(words(&Attr::tracepoint(1, None))[14], 0);
}
