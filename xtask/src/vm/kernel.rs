//! Debian's packaged kernels: found with apt, unpacked into the target directory, never installed.

use super::{cannot, output_of};
use crate::{Failure, shell};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Which of Debian's kernels: the one for virtual machines, small and with its drivers built in.
const FLAVOR: &str = "-cloud-amd64";

/// A kernel, unpacked.
pub struct Kernel {
    /// What `uname -r` says in it: `6.12.117+deb12-cloud-amd64`.
    pub release: String,
    /// Its packages, as they would stand in `/`.
    root: PathBuf,
}

impl Kernel {
    /// What boots.
    pub fn image(&self) -> PathBuf {
        self.root.join("boot").join(format!("vmlinuz-{}", self.release))
    }

    /// What modules are built with.
    pub fn headers(&self) -> PathBuf {
        self.root
            .join("usr/src")
            .join(format!("linux-headers-{}", self.release))
    }
}

/// The newest kernel of a series that apt offers, or that was unpacked before where apt offers none.
pub fn prepare(series: &str, folder: &Path) -> Result<Kernel, Failure> {
    let kernels = folder.join("kernels");
    fs::create_dir_all(&kernels).map_err(|error| cannot("make", &kernels, &error))?;
    let offered = newest(series, offered(series).iter().map(String::as_str));
    let unpacked = newest(series, unpacked(&kernels).iter().map(String::as_str));
    let Some(release) = offered.or(unpacked) else {
        return Err(format!(
            "no package of Linux {series} for virtual machines: apt-cache knows no linux-headers-{series}…{FLAVOR}; \
             it is in Debian 12 with its security updates, after `sudo apt-get update`"
        ));
    };
    let root = kernels.join(&release);
    if !root.exists() {
        println!("Linux {release}: fetching its packages.");
        unpack(&release, &root)?;
    }
    Ok(Kernel { release, root })
}

/// The releases of a series of which the image and the headers can be had.
fn offered(series: &str) -> Vec<String> {
    let search = |kind: &str| {
        let pattern = format!("^linux-{kind}-{}\\..*{FLAVOR}$", series.replace('.', "\\."));
        let text = shell::output("apt-cache", &["search", "--names-only", &pattern]).unwrap_or_default();
        releases(&text, kind)
    };
    let images = search("image");
    let mut both = search("headers");
    both.retain(|release| images.contains(release));
    both
}

/// Reads `apt-cache search`: a name, a dash and a description on each line.
fn releases(text: &str, kind: &str) -> Vec<String> {
    let prefix = format!("linux-{kind}-");
    text.lines()
        .filter_map(|line| line.split(' ').next()?.strip_prefix(&prefix))
        .map(str::to_owned)
        .collect()
}

fn unpacked(kernels: &Path) -> Vec<String> {
    fs::read_dir(kernels)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect()
}

/// The highest version of a series, by its numbers.
fn newest<'a>(series: &str, releases: impl Iterator<Item = &'a str>) -> Option<String> {
    let prefix = format!("{series}.");
    releases
        .filter(|release| release.starts_with(&prefix) && release.ends_with(FLAVOR))
        .max_by_key(|release| {
            release
                .split(|character: char| !character.is_ascii_digit())
                .filter_map(|number| number.parse::<u64>().ok())
                .collect::<Vec<_>>()
        })
        .map(str::to_owned)
}

fn unpack(release: &str, root: &Path) -> Result<(), Failure> {
    let unfinished = root.with_extension("unfinished");
    if unfinished.exists() {
        fs::remove_dir_all(&unfinished).map_err(|error| cannot("remove", &unfinished, &error))?;
    }
    let packages = unfinished.join("packages");
    fs::create_dir_all(&packages).map_err(|error| cannot("make", &packages, &error))?;

    let headers = format!("linux-headers-{release}");
    let mut names = vec![format!("linux-image-{release}"), headers.clone()];
    let depends = shell::output("apt-cache", &["depends", &headers]).unwrap_or_default();
    names.extend(headers_depend(&depends));
    shell::run(
        Command::new("apt-get")
            .args(["download", "-q", "-o", "APT::Sandbox::User=root"])
            .args(&names)
            .current_dir(&packages),
    )?;
    let entries = fs::read_dir(&packages).map_err(|error| cannot("read", &packages, &error))?;
    for package in entries.flatten() {
        output_of(
            Command::new("dpkg")
                .arg("-x")
                .arg(package.path())
                .arg(&unfinished),
        )?;
    }
    fs::remove_dir_all(&packages).map_err(|error| cannot("remove", &packages, &error))?;

    // It includes the common Makefile by its path in an installed system.
    let makefile = unfinished.join("usr/src").join(&headers).join("Makefile");
    let text = fs::read_to_string(&makefile).map_err(|error| cannot("read", &makefile, &error))?;
    let text = text.replace("/usr/src/", &format!("{}/usr/src/", root.display()));
    fs::write(&makefile, text).map_err(|error| cannot("write", &makefile, &error))?;
    fs::rename(&unfinished, root).map_err(|error| cannot("make", root, &error))
}

/// The packages that the headers are not whole without; compilers are this machine's.
fn headers_depend(text: &str) -> Vec<String> {
    text.lines()
        .filter_map(|line| line.trim().strip_prefix("Depends: "))
        .filter(|name| name.starts_with("linux-headers-") || name.starts_with("linux-kbuild-"))
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_is_found_by_numbers() {
        let offered = [
            "6.1.0-9-cloud-amd64",
            "6.1.0-56-cloud-amd64",
            "6.12.117+deb12-cloud-amd64",
            "6.1.0-57-amd64",
        ];
        assert_eq!(
            newest("6.1", offered.into_iter()).unwrap(),
            "6.1.0-56-cloud-amd64"
        );
        assert_eq!(
            newest("6.12", offered.into_iter()).unwrap(),
            "6.12.117+deb12-cloud-amd64"
        );
        assert_eq!(newest("6.13", offered.into_iter()), None);
    }

    #[test]
    fn apt_is_understood() {
        assert_eq!(
            releases(
                "linux-image-6.1.0-56-cloud-amd64 - Linux 6.1 for x86-64 cloud (signed)\n",
                "image"
            ),
            ["6.1.0-56-cloud-amd64"]
        );
        let depends = "linux-headers-6.1.0-56-cloud-amd64\n  Depends: linux-headers-6.1.0-56-common\n |Depends: linux-image-x\n  Depends: linux-kbuild-6.1\n  Depends: linux-compiler-gcc-12-x86\n";
        assert_eq!(
            headers_depend(depends),
            ["linux-headers-6.1.0-56-common", "linux-kbuild-6.1"]
        );
    }
}
