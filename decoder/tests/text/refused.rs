//! Tests that invalid files are refused.

use crate::case::Case;

const GOOD: &str = "# A file.
code 64 at 0x1000
  here: 90  ; nop
  there: 90
packets
  psb
  mode.exec cs.l
  fup sext48:here
  psbend
  fup sext48:there
  tip.pgd none
expect
  sync 0x0
  enabled here status
  at here
  disabled from there
calls
  here 0..1 begins ends
";

/// Returns the error of a file.
fn refused(text: &str) -> Option<String> {
    Case::parse(text).and_then(|case| case.check()).err()
}

/// Returns the error of the valid file after a change.
fn changed(from: &str, to: &str) -> String {
    assert!(GOOD.contains(from));
    refused(&GOOD.replacen(from, to, 1)).unwrap_or_default()
}

#[test]
fn a_good_file_passes_and_blessing_keeps_it() {
    assert_eq!(refused(GOOD), None);
    let blessed = Case::parse(GOOD).unwrap().blessed(GOOD);
    assert_eq!(refused(&blessed), None);
    assert_eq!(Case::parse(&blessed).unwrap().blessed(&blessed), blessed);
}

#[test]
fn a_wrong_file_fails() {
    let (without, _) = GOOD.split_once("expect").unwrap();
    assert_eq!(refused(without).unwrap(), "nothing is expected");
    assert!(changed("  sync 0x0\n", "").contains("native"));
    assert!(changed("code 64", "speed 9\ncode 64").contains("unknown keyword `speed`"));
    assert!(changed("  at here", "  went here").contains("unknown keyword `went`"));
    assert!(changed("  psbend", "  last: psbend").contains("`last` is not used"));
    assert!(changed("code 64", "label far 0x9000\ncode 64").contains("`far` is not used"));
    assert!(changed("there: 90", "here: 90").contains("twice"));
    assert!(changed("sext48:there", "sext48:where").contains("no label `where`"));
    assert!(changed("psbend", "psbent").contains("is not a packet"));
    assert!(changed("90  ; nop", "90 90").contains("not one instruction"));
    assert!(changed("0..1", "0..2").contains("calls"));
    assert!(changed("# A", "A").contains("first line"));
}

#[test]
fn per_engine_expectations_are_checked() {
    let wrong = changed("code 64", "libipt: differs, it is wrong\ncode 64");
    assert!(wrong.contains("does not differ"));
    assert!(changed("code 64", "ignored: it is wrong\ncode 64").contains("as expected"));
    assert!(changed("code 64", "libipt: is wrong\ncode 64").contains("needs `differs, REASON`"));
}
