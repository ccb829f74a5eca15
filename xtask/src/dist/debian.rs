//! Debian packages (deb(5)): an `ar` archive with the version, the control files and the files.

use super::product::Product;
use super::tree::{Tree, gzip};
use super::{GLIBC, VERSION, archive};
use crate::Failure;

/// A binary package.
pub struct DebianPackage {
    /// Its name.
    pub name: String,
    /// Fields of its control file in addition to those of every package.
    fields: String,
    /// The other package of the same version that it needs; without one, it needs glibc.
    needs: Option<&'static str>,
    /// Files that the administrator may change.
    configuration: &'static [&'static str],
    /// The scripts that run at its installation and removal.
    scripts: &'static [(&'static str, &'static str)],
}

impl DebianPackage {
    /// Returns the package of a product.
    pub fn of_program(product: &Product) -> Self {
        Self {
            name: product.name.to_owned(),
            fields: product.fields.to_owned(),
            needs: None,
            configuration: product.configuration,
            scripts: product.scripts,
        }
    }

    /// Returns the package of a product's debug information.
    pub fn of_debug_information(product: &Product) -> Self {
        Self {
            name: format!("{}-dbgsym", product.name),
            fields: format!(
                "Section: debug\nAuto-Built-Package: debug-symbols\nDescription: debug symbols for {}\n",
                product.name
            ),
            needs: Some(product.name),
            configuration: &[],
            scripts: &[],
        }
    }

    /// Returns the name of its file.
    pub fn file(&self) -> String {
        format!("{}_{VERSION}_amd64.deb", self.name)
    }
}

/// Returns the package with the files of a tree.
pub fn package(package: &DebianPackage, tree: &Tree, time: u64) -> Result<Vec<u8>, Failure> {
    let mut control = Tree::default();
    control.add("control".to_owned(), 0o644, fields(package, tree).into_bytes());
    if !package.configuration.is_empty() {
        let list = package.configuration.join("\n") + "\n";
        control.add("conffiles".to_owned(), 0o644, list.into_bytes());
    }
    for (name, script) in package.scripts {
        control.add((*name).to_owned(), 0o755, script.as_bytes().to_vec());
    }
    // Debian 11 and RHEL's tools cannot read zstd here.
    let control = gzip(&archive::tar(&control, "./", time)?)?;
    let data = gzip(&archive::tar(tree, "./", time)?)?;
    let mut bytes = b"!<arch>\n".to_vec();
    for (name, member) in [
        ("debian-binary", b"2.0\n".as_slice()),
        ("control.tar.gz", &control),
        ("data.tar.gz", &data),
    ] {
        let size = member.len();
        bytes.extend(format!("{name:<16}{time:<12}{:<6}{:<6}{:<8}{size:<10}`\n", 0, 0, 100_644).bytes());
        bytes.extend(member);
        if size % 2 == 1 {
            bytes.push(b'\n');
        }
    }
    Ok(bytes)
}

/// Returns the control file.
fn fields(package: &DebianPackage, tree: &Tree) -> String {
    let (major, minor) = GLIBC;
    let needs = match package.needs {
        Some(other) => format!("{other} (= {VERSION})"),
        None => format!("libc6 (>= {major}.{minor})"),
    };
    format!(
        "Package: {}\nVersion: {VERSION}\nArchitecture: amd64\nMaintainer: Backtrail contributors\n\
         Installed-Size: {}\nDepends: {needs}\nPriority: optional\n{}",
        package.name,
        tree.size().div_ceil(1024),
        package.fields
    )
}

#[cfg(test)]
mod tests {
    use super::super::{output_of, product};
    use super::*;
    use std::process::Command;

    /// `dpkg-deb` reads what this module writes.
    #[test]
    fn dpkg_reads_the_packages() {
        if Command::new("dpkg-deb").arg("--version").output().is_err() {
            println!("skipped: dpkg-deb is absent");
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        for product in product::ALL {
            let name = product.name;
            let [configuration] = product.configuration else {
                panic!("{name} has one configuration");
            };
            let mut tree = Tree::default();
            tree.add(format!("usr/bin/{name}"), 0o755, vec![7; 3000]);
            let path = configuration.trim_start_matches('/').to_owned();
            tree.add(path, 0o644, b"# none\n".to_vec());
            let debian = DebianPackage::of_program(product);
            let path = folder.path().join(debian.file());
            std::fs::write(&path, package(&debian, &tree, 1000).unwrap()).unwrap();
            let dpkg = |option: &str| output_of(Command::new("dpkg-deb").arg(option).arg(&path)).unwrap();
            let fields = dpkg("--field");
            for field in [
                format!("Package: {name}").as_str(),
                "Depends: libc6 (>= 2.28)",
                format!("Suggests: {name}-dbgsym").as_str(),
                "Installed-Size: 3",
                "Architecture: amd64",
            ] {
                assert!(fields.lines().any(|line| line == field), "{field}: {fields}");
            }
            let listed = dpkg("--contents");
            assert!(listed.contains("-rwxr-xr-x root/root      3000"), "{listed}");
            assert!(listed.contains(&format!(".{configuration}")), "{listed}");
            let control = dpkg("--info");
            for script in ["postinst", "prerm", "postrm", "conffiles"] {
                assert!(control.contains(script), "{control}");
            }
            // Equal input gives an equal package.
            assert_eq!(
                package(&debian, &tree, 9).unwrap(),
                package(&debian, &tree, 9).unwrap()
            );
        }
    }

    #[test]
    fn debug_information_needs_its_program() {
        for product in product::ALL {
            let debug = DebianPackage::of_debug_information(product);
            let text = fields(&debug, &Tree::default());
            let name = product.name;
            assert!(text.contains(&format!("Package: {name}-dbgsym\n")), "{text}");
            assert!(
                text.contains(&format!("\nDepends: {name} (= {VERSION})\n")),
                "{text}"
            );
        }
    }
}
