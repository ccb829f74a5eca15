//! Crashes (SIGSEGV) below a function with more variables than a compiler nests blocks for in other languages.

#[inline(never)]
fn crash(place: *mut u32) {
    // SAFETY: none, on purpose: it is null, and the write is the crash.
    unsafe { place.write_volatile(1) }
}

#[inline(never)]
fn many(start: u32) -> u32 {
    let shadowed = start;
    let a0 = start + 1;
    let a1 = a0 + 1;
    let a2 = a1 + 1;
    let a3 = a2 + 1;
    let a4 = a3 + 1;
    let a5 = a4 + 1;
    let a6 = a5 + 1;
    let a7 = a6 + 1;
    let a8 = a7 + 1;
    let a9 = a8 + 1;
    let a10 = a9 + 1;
    let a11 = a10 + 1;
    let a12 = a11 + 1;
    let a13 = a12 + 1;
    let a14 = a13 + 1;
    let a15 = a14 + 1;
    let a16 = a15 + 1;
    let a17 = a16 + 1;
    let a18 = a17 + 1;
    let a19 = a18 + 1;
    let a20 = a19 + 1;
    let a21 = a20 + 1;
    let a22 = a21 + 1;
    let a23 = a22 + 1;
    let a24 = a23 + 1;
    let a25 = a24 + 1;
    let a26 = a25 + 1;
    let a27 = a26 + 1;
    let a28 = a27 + 1;
    let a29 = a28 + 1;
    let a30 = a29 + 1;
    let a31 = a30 + 1;
    let a32 = a31 + 1;
    let a33 = a32 + 1;
    let a34 = a33 + 1;
    let a35 = a34 + 1;
    let a36 = a35 + 1;
    let a37 = a36 + 1;
    let a38 = a37 + 1;
    let a39 = a38 + 1;
    let a40 = a39 + 1;
    let a41 = a40 + 1;
    let a42 = a41 + 1;
    let a43 = a42 + 1;
    let a44 = a43 + 1;
    let a45 = a44 + 1;
    let a46 = a45 + 1;
    let a47 = a46 + 1;
    let a48 = a47 + 1;
    let a49 = a48 + 1;
    let a50 = a49 + 1;
    let a51 = a50 + 1;
    let a52 = a51 + 1;
    let a53 = a52 + 1;
    let a54 = a53 + 1;
    let a55 = a54 + 1;
    let a56 = a55 + 1;
    let a57 = a56 + 1;
    let a58 = a57 + 1;
    let a59 = a58 + 1;
    let a60 = a59 + 1;
    let a61 = a60 + 1;
    let a62 = a61 + 1;
    let a63 = a62 + 1;
    let a64 = a63 + 1;
    let a65 = a64 + 1;
    let a66 = a65 + 1;
    let a67 = a66 + 1;
    let a68 = a67 + 1;
    let a69 = a68 + 1;
    let a70 = a69 + 1;
    let a71 = a70 + 1;
    let a72 = a71 + 1;
    let a73 = a72 + 1;
    let a74 = a73 + 1;
    let a75 = a74 + 1;
    let a76 = a75 + 1;
    let a77 = a76 + 1;
    let a78 = a77 + 1;
    let a79 = a78 + 1;
    let shadowed = shadowed + a79;
    crash(std::ptr::null_mut());
    shadowed
}

fn main() {
    println!("{}", many(std::env::args().count() as u32));
}
