//! Variants of C library functions that exist once per processor or once per linkage.

/// Functions of which the C library has variants for processors.
pub const VARIED: &[&str] = &[
    "bcmp",
    "bcopy",
    "bzero",
    "memccpy",
    "memchr",
    "memcmp",
    "memcmpeq",
    "memcpy",
    "memmem",
    "memmove",
    "mempcpy",
    "memrchr",
    "memset",
    "rawmemchr",
    "stpcpy",
    "stpncpy",
    "strcasecmp",
    "strcasestr",
    "strcat",
    "strchr",
    "strchrnul",
    "strcmp",
    "strcpy",
    "strcspn",
    "strlen",
    "strncasecmp",
    "strncat",
    "strncmp",
    "strncpy",
    "strnlen",
    "strpbrk",
    "strrchr",
    "strspn",
    "strstr",
    "wcschr",
    "wcscmp",
    "wcscpy",
    "wcslen",
    "wcsncmp",
    "wcsnlen",
    "wcsrchr",
    "wmemchr",
    "wmemcmp",
    "wmemset",
];

/// Words of which the names of such variants consist.
const VARIANTS: &[&str] = &[
    "a64fx",
    "asimd",
    "avx",
    "avx2",
    "avx512",
    "back",
    "base",
    "chk",
    "emag",
    "erms",
    "evex",
    "evex512",
    "falkor",
    "fast",
    "generic",
    "i586",
    "i686",
    "ia32",
    "kunpeng920",
    "l",
    "mops",
    "mte",
    "neon",
    "no",
    "nonascii",
    "oryon1",
    "power10",
    "power7",
    "power8",
    "power9",
    "rep",
    "rtm",
    "simd",
    "sse2",
    "sse3",
    "sse4",
    "sse42",
    "ssse3",
    "sve",
    "thunderx",
    "thunderx2",
    "unaligned",
    "v2",
    "vx",
    "vzeroupper",
    "z13",
    "zva",
    "1",
    "2",
];

/// Prefixes of a function's name within the C library.
const INNER: &[&str] = &["__GI_", "__libc_", "__new_", "__old_"];

/// Functions whose names within the C library have one of those prefixes, or underscores only.
const PUBLIC: &[&str] = &[
    "abort",
    "accept",
    "calloc",
    "clone",
    "clone3",
    "close",
    "connect",
    "exit",
    "fclose",
    "fopen",
    "fork",
    "fread",
    "free",
    "fwrite",
    "gettimeofday",
    "getenv",
    "kill",
    "longjmp",
    "malloc",
    "memalign",
    "mmap",
    "mprotect",
    "munmap",
    "nanosleep",
    "open",
    "poll",
    "posix_memalign",
    "printf",
    "pthread_kill",
    "pthread_mutex_lock",
    "pthread_mutex_unlock",
    "pvalloc",
    "qsort",
    "raise",
    "read",
    "readdir",
    "realloc",
    "recv",
    "select",
    "send",
    "setenv",
    "siglongjmp",
    "snprintf",
    "sprintf",
    "strdup",
    "strndup",
    "strtol",
    "strtoul",
    "syscall",
    "system",
    "tgkill",
    "valloc",
    "vfprintf",
    "vsnprintf",
    "vsprintf",
    "wait4",
    "write",
];

/// Returns the public name of a variant of a C library function. `None`: the function is no
/// variant.
pub fn folded(name: &str) -> Option<&str> {
    if !name.starts_with('_') {
        return None;
    }
    let mut inner = name;
    while let Some(rest) = INNER.iter().find_map(|prefix| inner.strip_prefix(prefix)) {
        inner = rest;
    }
    let bare = inner.trim_start_matches('_');
    if PUBLIC.contains(&bare) || VARIED.contains(&bare) {
        return Some(bare);
    }
    let (function, variant) = bare.split_once('_')?;
    let is_variant = VARIED.contains(&function) && variant.split('_').all(|word| VARIANTS.contains(&word));
    is_variant.then_some(function)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variants_of_processors_are_one_function() {
        for (name, expected) in [
            ("__memcpy_avx_unaligned_erms", "memcpy"),
            ("__memmove_avx512_unaligned_erms", "memmove"),
            ("__memcpy_ssse3_back", "memcpy"),
            ("__strlen_avx2_rtm", "strlen"),
            ("__strcmp_sse2_unaligned", "strcmp"),
            ("__strncasecmp_l_avx", "strncasecmp"),
            ("__memset_avx2_unaligned", "memset"),
            ("__memset_zva64", "__memset_zva64"),
            ("__memcpy_sve", "memcpy"),
            ("__memmove_avx_no_vzeroupper", "memmove"),
            ("__GI_raise", "raise"),
            ("__GI___libc_malloc", "malloc"),
            ("__libc_free", "free"),
            ("__GI_strlen", "strlen"),
            ("__GI_abort", "abort"),
            ("__memcpy_chk", "memcpy"),
            ("__libc_start_main", "__libc_start_main"),
            ("__assert_fail", "__assert_fail"),
            ("_int_malloc", "_int_malloc"),
            ("memcpy_fast", "memcpy_fast"),
            ("_", "_"),
        ] {
            assert_eq!(folded(name).unwrap_or(name), expected, "{name}");
        }
    }
}
