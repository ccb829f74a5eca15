//! Which code is the user's own, and which belongs to the libraries of a language or of the system.
//!
//! A rule reads the module first, then the source file, then the name. So a template of the C++
//! library is library code, also in the program's module. A function of the program without debug
//! information is own code.

use crate::source::short;
use backtrail_pt::Avma;
use backtrail_symbolizer::Frame;

/// Folders of source files that belong to no user, and what is in them.
const LIBRARY_SOURCES: [(&str, &str); 11] = [
    ("/.cargo/registry/", "crates"),
    ("/.cargo/git/", "crates"),
    ("/.rustup/toolchains/", "std"),
    ("/rust/deps/", "std"),
    ("/include/c++/", "libstdc++"),
    ("/libstdc++-v3/", "libstdc++"),
    ("/include/x86_64-linux-gnu/c++/", "libstdc++"),
    ("/usr/lib/gcc/", "gcc"),
    ("/usr/lib/llvm-", "clang"),
    ("/pkg/mod/", "Go modules"),
    ("/usr/include/", "system headers"),
];

/// The start of names of functions of the standard libraries.
const LIBRARY_NAMES: [(&str, &str); 18] = [
    ("std::", "std"),
    ("core::", "core"),
    ("alloc::", "alloc"),
    ("<std::", "std"),
    ("<core::", "core"),
    ("<alloc::", "alloc"),
    ("__rustc::", "std"),
    ("__rust_", "std"),
    ("__gnu_cxx::", "libstdc++"),
    ("__cxxabiv1::", "libstdc++"),
    ("runtime.", "the Go runtime"),
    ("__libc_", "libc"),
    ("__GI_", "libc"),
    ("_IO_", "libc"),
    ("__pthread_", "libc"),
    ("_dl_", "ld.so"),
    ("__asan_", "sanitizer"),
    ("__tsan_", "sanitizer"),
];

/// The names of functions that start a program.
const START_CODE: [&str; 6] = [
    "_start",
    "_init",
    "_fini",
    "__libc_csu_init",
    "frame_dummy",
    "register_tm_clones",
];

/// Folders of the system's libraries.
const LIBRARY_FOLDERS: [&str; 4] = ["/lib/", "/lib64/", "/usr/lib/", "/usr/lib64/"];

/// Libraries of C and C++ that systems have in other folders, by the start of their file names.
const LIBRARY_FILES: [&str; 8] = [
    "libc.so",
    "libc-2",
    "libm.so",
    "libpthread",
    "libstdc++",
    "libgcc_s",
    "ld-linux",
    "ld-musl",
];

/// The known names of the code at an address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CodeOrigin<'a> {
    /// The function.
    pub function: Option<&'a str>,
    /// The source file, as the debug information names it.
    pub file: Option<&'a str>,
    /// The file of the module.
    pub module: Option<&'a str>,
}

impl<'a> CodeOrigin<'a> {
    /// Returns the origin of a frame at an address in a module.
    #[must_use]
    pub fn of(frame: Option<&'a Frame<Avma>>, module: Option<&'a str>) -> Self {
        let location = frame.and_then(|frame| frame.location.as_ref());
        Self {
            function: frame.map(|frame| &*frame.function),
            file: location.map(|location| &*location.file),
            module,
        }
    }

    /// Returns the library that the code belongs to; `None`: it is the user's own.
    ///
    /// ```
    /// use backtrail_debugger::own_code::CodeOrigin;
    ///
    /// let panic = CodeOrigin {
    ///     function: Some("core::panicking::panic"),
    ///     file: Some("/rustc/5980/library/core/src/panicking.rs"),
    ///     module: Some("/srv/app"),
    /// };
    /// assert_eq!(panic.library().as_deref(), Some("core"));
    /// assert_eq!(CodeOrigin { module: Some("/srv/app"), ..CodeOrigin::default() }.library(), None);
    /// ```
    #[must_use]
    pub fn library(&self) -> Option<String> {
        if let Some(module) = self.module.and_then(library_module) {
            return Some(module);
        }
        if let Some(file) = self.file {
            return library_source(file);
        }
        let function = self.function?;
        if START_CODE.contains(&function) {
            return Some("start code".to_owned());
        }
        let names = LIBRARY_NAMES.iter();
        let found = names.clone().find(|(start, _)| function.starts_with(start));
        found.map(|&(_, library)| library.to_owned())
    }
}

/// Returns the name of a module that is a system library.
fn library_module(path: &str) -> Option<String> {
    let name = short(path);
    let is_shared = name.contains(".so");
    let in_system = LIBRARY_FOLDERS.iter().any(|folder| path.starts_with(folder));
    let is_known = LIBRARY_FILES.iter().any(|start| name.starts_with(start));
    let is_vdso = path.starts_with("[v");
    (is_vdso || is_shared && (in_system || is_known)).then(|| name.to_owned())
}

/// Returns the library that a source file belongs to.
fn library_source(file: &str) -> Option<String> {
    // The paths of Rust's library have the commit: `/rustc/COMMIT/library/core/src/option.rs`.
    if let Some((_, rest)) = file.split_once("/rustc/") {
        let library = rest.split_once("/library/").map(|(_, rest)| rest);
        let name = library.and_then(|rest| rest.split('/').next());
        return Some(name.unwrap_or("std").to_owned());
    }
    let is_go_library = file.contains("/src/runtime/") && (file.contains("/go") || file.contains("golang"));
    if is_go_library {
        return Some("the Go runtime".to_owned());
    }
    let sources = LIBRARY_SOURCES.iter();
    let found = sources.clone().find(|(folder, _)| file.contains(folder));
    found.map(|&(_, library)| library.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn library(function: &str, file: &str, module: &str) -> Option<String> {
        let some = |text: &'static str| (!text.is_empty()).then_some(text);
        let [function, file, module] = [function, file, module].map(|text| some(String::from(text).leak()));
        CodeOrigin {
            function,
            file,
            module,
        }
        .library()
    }

    #[test]
    fn code_of_standard_libraries_is_not_own() {
        for (function, file, module, expected) in [
            (
                "abort",
                "./stdlib/abort.c",
                "/usr/lib/x86_64-linux-gnu/libc.so.6",
                "libc.so.6",
            ),
            (
                "core::option::unwrap_failed",
                "/rustc/59/library/core/src/option.rs",
                "/srv/app",
                "core",
            ),
            (
                "std::vector<int>::at",
                "/usr/include/c++/12/bits/stl_vector.h",
                "/srv/app",
                "libstdc++",
            ),
            ("std::rt::lang_start", "", "/srv/app", "std"),
            (
                "runtime.gopanic",
                "/usr/lib/go-1.19/src/runtime/panic.go",
                "/srv/app",
                "the Go runtime",
            ),
            (
                "memcpy",
                "",
                "/nix/store/abc-glibc-2.40/lib/libc.so.6",
                "libc.so.6",
            ),
            ("_start", "", "/srv/app", "start code"),
            ("clock_gettime", "", "[vdso]", "[vdso]"),
            (
                "serde::de",
                "/home/me/.cargo/registry/src/x/serde-1/src/de.rs",
                "/srv/app",
                "crates",
            ),
        ] {
            assert_eq!(
                library(function, file, module).as_deref(),
                Some(expected),
                "{function}"
            );
        }
    }

    #[test]
    fn code_of_the_program_is_own() {
        for (function, file, module) in [
            ("post", "ledger.c", "/srv/app"),
            ("sqlite3_step", "", "/usr/bin/sqlite3"),
            ("exec_query", "", "/usr/lib/postgresql/15/bin/postgres"),
            ("on_load", "plugin.c", "/srv/plugins/plugin.so"),
            ("main.main", "/home/me/shop/main.go", "/srv/app"),
            // A function that the library calls.
            ("app::main::{{closure}}", "/home/me/app/src/main.rs", "/srv/app"),
            ("", "", "/srv/app"),
        ] {
            assert_eq!(library(function, file, module), None, "{function}");
        }
    }
}
