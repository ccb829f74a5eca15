//! Tests the messages when Intel PT is missing or an option is not supported.

use super::*;
use std::fs;
use std::path::Path;
use tempfile::TempDir;

/// Creates a sysfs with an `intel_pt` of a type that no kernel has, on the processors of this
/// machine.
fn sysfs() -> TempDir {
    let root = tempfile::tempdir().unwrap();
    let pmu = root.path().join("bus/event_source/devices/intel_pt");
    let write = |path: &Path, text: &str| {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    write(&pmu.join("type"), "7777\n");
    write(&pmu.join("nr_addr_filters"), "2\n");
    write(&pmu.join("format/tsc"), "config:10\n");
    write(&pmu.join("caps/topa_multiple_entries"), "1\n");
    let online = Path::new("devices/system/cpu/online");
    write(
        &root.path().join(online),
        &fs::read_to_string(Path::new("/sys").join(online)).unwrap(),
    );
    root
}

fn refused(change: impl FnOnce(&mut HardwareOptions)) -> String {
    let root = sysfs();
    let mut options = HardwareOptions {
        sysfs: root.path().to_owned(),
        ..HardwareOptions::default()
    };
    change(&mut options);
    Hardware::start(&options).unwrap_err().to_string()
}

#[test]
fn missing_pmu_has_reason_and_remedy() {
    let empty = tempfile::tempdir().unwrap();
    let text = refused(|options| options.sysfs = empty.path().to_owned());
    assert!(text.starts_with("Intel PT is not available: "), "{text}");
    assert!(text.contains("record services in software"), "{text}");
}

#[test]
fn refused_pmu_error_names_the_processor() {
    let text = refused(|_| {});
    // A user who may not open events gets that message, because the sideband is opened first.
    let allowed = text.contains("cannot open Intel PT on processor 0: the kernel has no such event");
    assert!(allowed || text.contains("permission denied"), "{text}");
}

#[test]
fn unsupported_options_are_refused_early() {
    let text = refused(|options| options.ring = 5000);
    assert!(text.contains("not a power of two"), "{text}");
    let text = refused(|options| options.mtc_period = Some(3));
    assert!(text.contains("supports no MTC period"), "{text}");
    let text = refused(|options| options.scope = Scope::Processes(Vec::new()));
    assert!(text.contains("none is named"), "{text}");
    let text = refused(|options| options.scope = Scope::Cgroup("/no/such/group".into()));
    assert!(
        text.contains("cannot open the control group /no/such/group"),
        "{text}"
    );
    let text = refused(|options| options.compress_returns = false);
    assert!(text.contains("no term \"noretcomp\""), "{text}");
    let filter = Filter {
        file: None,
        start: 0x1000,
        size: 1,
    };
    let text = refused(|options| options.filters = vec![filter; 3]);
    assert!(text.contains("supports 2; set fewer"), "{text}");
}
