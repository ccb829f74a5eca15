//! Types that take more than a word to describe, and their values, against GDB on the same core.
#![cfg(test)]

mod support;

use support::gdb::compare;

#[test]
fn characters_of_every_width_are_gdbs() {
    let commands = [
        "info locals",
        "info args",
        "p *wide@3",
        "p/x words",
        "p/c words",
        "p/d negative",
        "p/c letter",
        "p/s words",
        "p/x smile",
        "p/t unit",
        "p/o letter",
        "p/z unit",
        "whatis letter",
        "ptype words",
        "ptype named",
        "whatis wide_string",
        "whatis view",
        "ptype label",
        "p L'a'",
        "p L\"abc\"",
        "p u\"abc\"",
        "whatis U\"ab\"",
        "p sizeof(L\"ab\")",
        "p (wchar_t)65",
        "p (char16_t)65",
        "p (char32_t)0x1f600",
        "p (Letter)70",
        "whatis u'a'",
        "x/s words",
        "x/ws words",
        "x/hs pair",
        "x/2ws lines",
        "x/2xw words",
        "p letter+1",
        "whatis unit+1",
        "whatis smile+1",
        "p letter == L'w'",
        "p wide[0]",
        "p *wide",
        "p &words",
        "p &words[0]",
        "p &octets",
        "p &octets[1]",
        "p words[1]@2",
        "p wide",
        "p narrow",
        "p full",
        "p &named",
        "p (char16_t *)0",
        "p lines[1]",
        "p label.text[0]",
        "p label.name",
        "p &label",
    ];
    compare("wide", &commands, &[]);
}

#[test]
fn wide_characters_of_c_are_gdbs() {
    let commands = [
        "info locals",
        "info args",
        "p *wide@3",
        "whatis letter",
        "whatis words",
        "ptype letter",
        "p L'a'",
        "p (char16_t)65",
        "p wide[1]",
        "p numbers",
        "p label.name",
        "p *text",
        "p/x narrow",
        "x/hs narrow",
    ];
    compare("wide_c", &commands, &[]);
}
