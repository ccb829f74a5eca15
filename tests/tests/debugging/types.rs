//! Complex types and their values, against GDB on the same core.

use crate::gdb_answers::{compare, compare_built, ours, recorded};
use backtrail_tests::programs::{Program, find};

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

/// GDB's `ptype/r`. Without `/r`, GDB replaces all equal types by a class's own typedefs and
/// template parameters.
#[test]
fn classes_are_listed_as_by_gdb() {
    compare("classes", &CLASSES, &[]);
}

const CLASSES: [&str; 24] = [
    "ptype/r item",
    "ptype/r Base",
    "ptype/r box",
    "ptype/r empty",
    "ptype/r methods",
    "ptype/r only",
    "ptype/r priv",
    "ptype/r pub",
    "ptype/r heir",
    "ptype/r either",
    "ptype/r deleted",
    "ptype/r based",
    "ptype/r duck",
    "ptype/r swimmer",
    "ptype/r inner",
    "ptype/r ref",
    "ptype/r base",
    "ptype/r made",
    "ptype/r Item::Hidden",
    "ptype/r way",
    "ptype/r Item::Kind",
    "ptype/r bt",
    "ptype/r over",
    "ptype/r both",
];

#[test]
fn objects_with_virtual_bases_and_casts_are_gdbs() {
    compare("classes", &OBJECTS, &[]);
}

/// Types in separate units (`-fdebug-types-section`), of DWARF 4 and of DWARF 5, are like all
/// others.
#[test]
fn types_in_units_of_their_own_are_gdbs() {
    let built = |name: &str, flags: &'static [&'static str]| Program {
        flags,
        ..*find(name).unwrap()
    };
    let classes: [&[&str]; 2] = [
        &["-O0", "-std=c++17", "-gdwarf-4", "-fdebug-types-section"],
        &["-O0", "-std=c++17", "-gdwarf-5", "-fdebug-types-section"],
    ];
    for flags in classes {
        let commands = [&CLASSES[..], &OBJECTS].concat();
        compare_built(&built("classes", flags), &commands, &[]);
    }
    let commands = [
        "info args",
        "p *this",
        "p price",
        "p hidden",
        "up",
        "info args",
        "info locals",
        "whatis words",
        "ptype/r item",
        "p sizeof(item)",
    ];
    let flags = &["-O0", "-std=c++17", "-fdebug-types-section"];
    compare_built(&built("containers", flags), &commands, &[]);
}

const OBJECTS: [&str; 57] = [
    "whatis bt",
    "whatis item",
    "whatis duck.legs",
    "whatis &duck.legs",
    "whatis duck",
    "info args",
    "p *animal",
    "p flyer",
    "p *both",
    "p duck",
    "p/x duck",
    "p swimmer",
    "p over",
    "p *plain",
    "p based",
    "p empty",
    "p methods",
    "p heir",
    "p duck.legs",
    "p duck.fins",
    "p duck.wings",
    "p swimmer.legs",
    "p swims->legs",
    "p flies->legs",
    "p inside->legs",
    "p &duck.legs",
    "p over.p",
    "p (Animal *)&duck",
    "p (Animal *)swims",
    "p (Flyer *)&duck",
    "p (Swimmer *)flies",
    "p (Duck *)flies",
    "p (Duck *)swims",
    "p (Duck *)inside",
    "p *(Duck *)inside",
    "p *(Duck *)animal",
    "p ((Duck *)animal)->wings",
    "p (Animal *)nobody",
    "p (Duck *)nobody",
    "p (Right *)both",
    "p (Left *)right",
    "p (Both *)right",
    "p *(Both *)right",
    "p (Right)*both",
    "p (Plain *)&over",
    "p (Animal)duck",
    "p (long)(Animal *)&duck - (long)&duck",
    "p duck.Animal::legs",
    "p sizeof(duck)",
    "p ducks",
    "p ducks[1].legs",
    "p item",
    "p *base",
    "p (void *)inside == (void *)&duck",
    "p (Item *)base",
    "p *(Item *)base",
    "p inside == &duck",
];

/// GDB reads a pointer to a virtual base as a pointer to any class with this base, unless the
/// complete object has that type. GDB does not show that a destructor is virtual.
#[test]
fn virtual_bases_that_gdb_shows_wrongly() {
    let bundle = recorded("classes");
    let said = ours(
        &bundle,
        &[
            "p (Flyer *)inside == flies",
            "p *(Swimmer *)inside",
            "p (OverPlain *)plain",
            "ptype Animal",
            "reverse-stepi",
            "p duck.legs",
            "whatis duck.legs",
        ],
    );
    assert_eq!(said[0].1, ["$ = true"]);
    assert!(said[1].1[0].ends_with("fins = 2}"), "{:?}", said[1]);
    assert_eq!(
        said[2].1,
        ["(OverPlain *)plain = <unknown: the enclosing object cannot be found: the value has no vtable>"]
    );
    assert!(
        said[3].1.contains(&"    virtual ~Animal(void);".to_owned()),
        "{:?}",
        said[3]
    );
    assert!(
        said[5].1[0].contains("<unknown: the trace records control flow"),
        "{:?}",
        said[5]
    );
    assert_eq!(said[6].1, ["type = int"]);
}

#[test]
fn types_of_rust_are_as_the_source_has_them() {
    let bundle = recorded("owned");
    let stack = bundle.debug(&["backtrace"]);
    let frame = stack.lines().find(|line| line.contains("owned::look")).unwrap();
    let number = frame.trim_start_matches('#').split(' ').next().unwrap();
    let said = ours(
        &bundle,
        &[
            &format!("frame {number}"),
            "ptype owned::Point",
            "ptype owned::Meters",
            "ptype owned::Shape",
            "ptype owned::Direction",
            "ptype some",
            "ptype pair",
            "ptype name",
            "ptype boxed",
            "ptype i64",
            "whatis owned::Point",
        ],
    );
    let expected = [
        "struct owned::Point {\n    x: i32,\n    y: i32,\n}",
        "struct owned::Meters (\n    f64,\n)",
        "enum owned::Shape {\n    Empty,\n    Circle {center: owned::Point, radius: f32},\n    \
         Named(alloc::string::String, u8),\n}",
        "enum owned::Direction {\n    North,\n    South = 4,\n}",
        "enum core::option::Option<i64> {\n    None,\n    Some(i64),\n}",
        "(u8, char)",
        "&str",
        "alloc::boxed::Box<owned::Point, alloc::alloc::Global>",
        "i64",
        "owned::Point",
    ];
    for ((command, lines), expected) in said.iter().skip(1).zip(expected) {
        assert_eq!(lines.join("\n"), format!("type = {expected}"), "{command}");
    }
}
