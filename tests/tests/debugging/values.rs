//! Values at the crash, against GDB on the same core. Tables list the intended differences from
//! GDB, with their reasons.

use crate::gdb_answers::{compare, ours, recorded};
use backtrail_tests::bundle::Bundle;
use std::collections::BTreeMap;

#[test]
fn variables_of_c_are_gdbs() {
    let commands = [
        "info locals",
        "info args",
        "print *list",
        "print list",
        "print list->next->name",
        "print *list->next",
        "p/x *list",
        "p mode",
        "p odd",
        "p table",
        "p zeros",
        "p buffer",
        "p ratios",
        "p names",
        "p names[0]",
        "p counter",
        "p &counter",
        "p apply",
        "p *apply",
        "p add",
        "p &table[1]",
        "p per_thread",
        "p *names@2",
        "p list->compare",
        "p origin",
        "p &origin",
        "p middle",
        "p list->at",
        "p list->at[1].y",
        "p &list->at[1]",
        "p visits",
        "p hole",
        "p/c ratios",
        "p/x ratios",
        "p/x buffer",
        "p/d mode",
        "up",
        "info locals",
        "info args",
        "p first",
        "p sizes",
        "p &first",
        "p sizes[2]",
        "p *&second",
        "up",
        "info locals",
        "info args",
        "p argv[0]",
        "p *argv@argc",
        "p zeros[299]",
    ];
    compare("values", &commands, &[]);
}

#[test]
fn expressions_are_gdbs() {
    let commands = [
        "p table[1][2]*2+1",
        "p sizeof(table)",
        "p sizeof(struct node)",
        "p sizeof list",
        "p (char)65",
        "p/c 65",
        "p/x -1",
        "p $rip",
        "p $rsp",
        "p $rax",
        "p $eax",
        "p $al",
        "p $eflags",
        "p $sp",
        "p origin.x == -1",
        "p 10/3.0",
        "p 10/3",
        "p -10%3",
        "p 7u - 8u",
        "p 1ul << 33",
        "p 'x'",
        "p \"hi\"",
        "p 5 > 3 && 2",
        "p !5",
        "p ~5",
        "p RED",
        "p BLUE",
        "p (enum color)7",
        "p (enum color)9",
        "p/d BLUE",
        "p *list->at@2",
        "p list->at + 1",
        "p &list->at[1] - &list->at[0]",
        "p hole == 0",
        "p (long)list == (long)&list->name",
        "p *(struct point *)&list->at[1]",
        "p (short)0x12345",
        "p 3 ? 4 : 5",
        "p 0x10 | 010",
        "p 1.5e3",
        "p/t 10",
        "p/o 8",
        "p/z 5",
        "p/x 255",
        "p/u -1",
        "p/d 0xffffffff",
        "p -5 / 2",
        "p ratios[1] * 2",
        "p 5.0f",
        "p *table",
        "p table[0] + 1",
        "p (unsigned char)300",
        "p 2147483648",
        "p $",
        "p $$3",
        "p 'values.c'::counter",
        "p &*list",
        "p list->name[0]",
        "p *list->name@5",
        "p &list->key",
    ];
    compare("values", &commands, &[]);
}

#[test]
fn types_are_gdbs() {
    let commands = [
        "ptype list",
        "ptype struct point",
        "whatis list",
        "whatis *list",
        "whatis apply",
        "ptype apply",
        "ptype node_t",
        "whatis node_t",
        "ptype table",
        "whatis &table",
        "whatis names",
        "ptype mode",
        "ptype enum color",
        "whatis 1+1L",
        "whatis list->compare",
        "ptype unsigned long",
        "whatis (char)1",
        "whatis 1.5f",
        "whatis table[0]",
        "whatis &table[0]",
        "whatis *names[0]",
        "ptype add",
        "whatis add",
        "whatis &add",
        "whatis list->next->at",
        "ptype int*",
        "whatis struct node",
        "ptype ratios",
        "whatis big",
    ];
    compare("values", &commands, &[]);
}

#[test]
fn memory_is_gdbs() {
    let commands = [
        "x/4xw &table",
        "x/2dg ratios",
        "x/s buffer",
        "x/2s names[0]",
        "x/8xb buffer",
        "x/2a names",
        "x/3c buffer",
        "x/2fg ratios",
        "x/9dw table",
        "x/3uh &table",
        "x/2tw &table",
        "x/3ow &table",
        "x/12xb buffer",
        "x/xg $rsp",
        "x/5xh buffer",
        "x/2fw &table",
        "x/s list->name",
        "x/3dw list->at",
        "x/3dw &list->at",
    ];
    compare("values", &commands, &[]);
}

#[test]
fn optimized_variables_are_gdbs() {
    let commands = [
        "info args",
        "p inner",
        "p corner",
        "p big",
        "p small",
        "p letter",
        "p octet",
        "p mode",
        "p odd",
        "p text",
        "p middle",
        "p hole",
        "p visits",
        "p *corner",
        "p nothing",
        "up",
        "p second",
        "p origin",
        "p first",
        "up",
        "info locals",
    ];
    compare("values_optimized", &commands, &[]);
}

/// GDB assumes that a call preserves every register that call frame information does not describe.
/// Only the registers that the ABI preserves are certain.
#[test]
fn registers_that_a_call_may_change_are_unknown() {
    let bundle = recorded("values_optimized");
    let said = ours(&bundle, &["up", "info args"]);
    assert_eq!(said[1].1, ["count = <unknown: the saved register was not found>"]);
}

#[test]
fn memory_missing_in_the_core_is_unknown() {
    let bundle = recorded("values");
    let said = ours(
        &bundle,
        &[
            "p *hole",
            "p hole",
            "p *list->next->next",
            "x/4xw 8",
            "p/s (char *)8",
            "x/s 16",
        ],
    );
    let unknown = |at: &str| format!("<unknown: the core does not have the memory at {at}>");
    assert_eq!(said[0].1, [format!("$ = {}", unknown("0x0"))]);
    assert_eq!(
        said[1].1,
        ["$ = (int *volatile) 0x0".replace("*volatile", "* volatile")]
    );
    assert_eq!(said[2].1, [format!("$ = {}", unknown("0x0"))]);
    assert_eq!(said[3].1, [format!("0x8:\t{}", unknown("0x8"))]);
    assert_eq!(said[4].1, [format!("$ = 0x8 {}", unknown("0x8"))]);
    assert_eq!(said[5].1, [format!("0x10:\t{}", unknown("0x10"))]);
}

#[test]
fn before_the_crash_only_what_is_certain_has_a_value() {
    let bundle = recorded("values");
    let commands = [
        "reverse-step",
        "p counter",
        "p RED",
        "p sizeof(node_t)",
        "p 6 * 7",
        "info args",
        "p $rax",
        "p *list",
        "whatis list",
        "x/xw &table",
        "p &counter",
        "p $rip",
    ];
    let said = ours(&bundle, &commands);
    let why = "<unknown: the trace records control flow only; values are known at the crash>";
    let hint = "    <at the crash: 42>".to_owned();
    assert_eq!(said[1].1, [format!("$ = {why}"), hint]);
    assert_eq!(said[2].1, ["$ = RED"]);
    assert_eq!(said[3].1, ["$ = 80"]);
    assert_eq!(said[4].1, ["$ = 42"]);
    assert!(said[5].1[0].starts_with("list = ?"), "{:?}", said[5]);
    assert_eq!(said[6].1[0], format!("$ = {why}"));
    assert_eq!(said[7].1[0], format!("*list = {why}"));
    assert_eq!(said[8].1, ["type = node_t *"]);
    assert!(said[9].1[0].ends_with(why), "{:?}", said[9]);
    assert!(said[10].1[0].ends_with(" <counter>"), "{:?}", said[10]);
    assert!(said[11].1[0].contains(" <fall+"), "{:?}", said[11]);
}

#[test]
fn displays_are_shown_after_each_move() {
    let bundle = recorded("values");
    let text = bundle.debug(&[
        "display inner",
        "display/x counter",
        "display/2i $pc",
        "display/xg &counter",
        "reverse-step",
        "goto crash",
        "undisplay 1",
        "info display",
    ]);
    assert!(text.contains("1: inner = 3"), "{text}");
    assert!(text.contains("2: /x counter = 0x2a"), "{text}");
    let at = |line: &str| text.lines().position(|shown| shown == line);
    let code: Vec<&str> = text
        .lines()
        .skip(at("3: x/2i $pc").unwrap() + 1)
        .take(2)
        .collect();
    assert!(
        code[0].starts_with("=> 0x") && code[1].starts_with("   0x"),
        "{text}"
    );
    let memory = text.lines().nth(at("4: x/xg &counter").unwrap() + 1).unwrap();
    assert!(memory.ends_with("<counter>:\t0x000000000000002a"), "{text}");
    assert_eq!(text.matches("3: x/2i $pc\n=> 0x").count(), 4, "{text}");
    assert_eq!(text.matches("1: inner = ").count(), 3, "{text}");
    assert_eq!(text.matches("2: /x counter = ").count(), 4, "{text}");
}

#[test]
fn containers_of_cpp_are_gdbs() {
    let commands = [
        "info args",
        "p *this",
        "p this",
        "p price",
        "p this->price",
        "p name",
        "p limit",
        "p shop::Named::made",
        "p hidden",
        "p sum",
        "whatis this",
        "whatis *this",
        "up",
        "info args",
        "info locals",
        "p numbers",
        "p text",
        "p item",
        "p *thing",
        "p reference",
        "p &reference",
        "p local",
        "p doubles",
        "p doubles.first",
        "p shop::hidden",
        "whatis numbers",
        "whatis doubles",
        "whatis size",
        "whatis words",
        "ptype/r item",
        "ptype size",
        "p size",
        "p (shop::Size)0",
        "p yes == true",
        "p sizeof(item)",
        "p owner",
        "p &item",
        "p item.name",
        "p stock",
        "p both",
        "p big",
        "p shared",
        "p weak",
        "p numbers[1]",
        "p numbers[0] + numbers[4]",
        "p words[1]",
        "p queue[2]",
        "p *owner",
        "p *shared",
        "p *second + 1",
        "p either",
        "p number",
        "p triple",
        "p nobody",
        "p flags",
        "p tight",
        "p twice",
        "p member",
        "p function",
        "whatis member",
        "whatis function",
        "p sizeof(member)",
        "p sizeof(function)",
        "p numbers.size()",
        "p stock.size()",
        "p hashed.empty()",
        "p none.empty()",
        "p listed.front()",
        "p queue.back()",
        "p numbers.at(2)",
        "p bits.size()",
        "p bits[2]",
        "up",
        "info locals",
    ];
    compare("containers", &commands, &[]);
}

#[test]
fn values_in_pieces_are_gdbs() {
    let commands = [
        "info locals",
        "p flags",
        "p flags.middle",
        "p flags.signed_part",
        "p wide",
        "p wide.second + 1",
        "p pairs",
        "p pairs[1]",
        "p pairs[1].y",
        "p table",
        "p table[3]",
        "p/x wide",
    ];
    compare("fields", &commands, &[]);
}

/// Library functions that GDB would call in the program, or does not know.
#[test]
fn library_functions_return_the_right_values() {
    let bundle = recorded("containers");
    let cases = [
        ("stock[\"apple\"]", "3"),
        ("stock.at(\"pear\") + 1", "1"),
        ("stock.count(\"fig\")", "0"),
        ("stock.contains(\"pear\")", "true"),
        ("named[\"two\"]", "2"),
        ("hashed[7] == \"seven\"", "true"),
        ("big[6]", "1"),
        ("ordered.contains(3)", "true"),
        ("text.length()", "15"),
        ("words.back() == \"two\"", "true"),
        ("words.back() != \"two\"", "false"),
        ("words[0].size()", "3"),
        ("view == \"\\\"quote\"", "true"),
        ("view[1]", "113 'q'"),
        ("listed.size()", "3"),
        ("listed.back()", "3"),
        ("flags[69]", "true"),
        ("flags[1]", "false"),
        ("bits.front()", "true"),
        ("some.value()", "5"),
        ("nothing.has_value()", "false"),
        ("!nothing", "true"),
        ("!shared", "false"),
        ("shared == second", "true"),
        ("empty == nullptr", "true"),
        ("owner != 0 && *owner == 8", "true"),
        ("shared.use_count()", "2"),
        ("empty.use_count()", "0"),
        ("*shared.get()", "9"),
        ("tight[7].number", "77"),
        ("twice.count(5)", "2"),
        ("unsigned_keys[-1]", "1"),
        ("either.index()", "1"),
        ("triple.0", "1"),
        ("triple.1", "\"t\""),
        ("shop::Item::limit", "10"),
        ("shop::Named::made", "1"),
        ("thing->name.size()", "4"),
        ("none.empty() ? 1 : 2", "1"),
    ];
    let commands: Vec<String> = cases.iter().map(|(what, _)| format!("print {what}")).collect();
    let commands: Vec<&str> = std::iter::once("up")
        .chain(commands.iter().map(String::as_str))
        .collect();
    let shown = ours(&bundle, &commands);
    for ((what, expected), (_, lines)) in cases.iter().zip(&shown[1..]) {
        assert_eq!(lines[0], format!("$ = {expected}"), "{what}");
    }
}

#[test]
fn library_elements_and_targets_match_their_operators() {
    let bundle = recorded("containers");
    let shown = ours(
        &bundle,
        &["up", "print *some", "print text[2]", "print words[0][1]"],
    );
    let shown: Vec<&str> = shown[1..].iter().map(|(_, lines)| lines[0].as_str()).collect();
    assert_eq!(shown, ["$ = 5", "$ = 34 '\"'", "$ = 110 'n'"]);
    for (expression, why) in [
        ("*nothing", "it holds no value"),
        ("numbers[5]", "there are 5 elements"),
        ("numbers[-1]", "there are 5 elements"),
        ("queue[3]", "there are 3 elements"),
        ("ordered[0]", "it is neither an array nor a pointer"),
        ("big[99]", "it has no such key"),
        ("stock[\"fig\"]", "it has no such key"),
        ("stock[1]", "requires a function of the program"),
        ("none.front()", "it has no elements"),
        ("bits[3]", "there are 3 elements"),
        ("item.cost()", "functions cannot be called in a recorded program"),
    ] {
        let command = format!("print {expression}");
        let arguments = [
            "debug",
            bundle.path.to_str().unwrap(),
            "--batch",
            "-e",
            "up",
            "-e",
            &command,
        ];
        let run = backtrail_tests::backtrail::backtrail(arguments)
            .unwrap()
            .exited(1);
        assert!((run.stdout + &run.stderr).contains(why), "{expression}");
    }
}

/// Each `let` of Rust is a block nested in the previous one.
#[test]
fn every_variable_of_a_long_function_is_there() {
    let bundle = recorded("lets");
    let said = bundle.debug(&[
        "frame function lets::many",
        "print shadowed",
        "print a79",
        "print a0",
    ]);
    for value in ["$1 = 82", "$2 = 81", "$3 = 2"] {
        assert!(said.contains(value), "{said}");
    }
}

/// The locals of the Rust program and their values.
const RUST_LOCALS: [(&str, &str); 25] = [
    ("text", "\"a \\\"quoted\\\" é\""),
    ("numbers", "Vec(size=3) = {1, 2, 3}"),
    ("words", "Vec(size=2) = {\"one\", \"two\"}"),
    ("nothing", "Vec(size=0) = {}"),
    ("some", "core::option::Option<i64>::Some(5)"),
    ("none", "core::option::Option<i64>::None"),
    (
        "failed",
        "core::result::Result<u8, alloc::string::String>::Err(\"no\")",
    ),
    ("shared", "Rc(strong=2, weak=0) = {7}"),
    ("atomic", "Arc(strong=1, weak=0) = {\"arc\"}"),
    ("cell", "3"),
    ("guarded", "RefCell(borrow=0) {Vec(size=1) = {9}}"),
    ("queue", "VecDeque(size=3) = {2, 3, 1}"),
    ("map", "HashMap(size=1) = {[1] = \"first\"}"),
    ("few", "BTreeSet(size=2) = {\"a\", \"b\"}"),
    ("no_entries", "BTreeMap(size=0) = {}"),
    ("path", "\"/tmp/x\""),
    ("pair", "(1, 99 'c')"),
    ("array", "[0 <repeats 20 times>]"),
    ("length", "owned::Meters(2.5)"),
    ("way", "owned::Direction::South"),
    ("unit", "()"),
    ("letter", "233 'é'"),
    ("wide", "-1"),
    ("tail", "&[2, 3]"),
    ("size", "22"),
];

/// Expressions on the Rust program and their answers.
const RUST_EXPRESSIONS: [(&str, &str); 18] = [
    ("p numbers[1]", "$ = 2"),
    ("p shapes[1].radius", "$ = 1.5"),
    ("p boxed.x", "$ = 1"),
    ("p *boxed", "$ = owned::Point {x: 1, y: -2}"),
    ("p pair.1", "$ = 99 'c'"),
    ("p GREETING", "$ = \"hello\""),
    (
        "p *first",
        "$ = owned::Shape::Circle {center: owned::Point {x: 3, y: 4}, radius: 1.5}",
    ),
    ("whatis name", "type = &str"),
    ("p numbers.len", "$ = 3"),
    ("p sorted.len()", "$ = 40"),
    ("p sorted[33]", "$ = \"33\""),
    ("p map[1]", "$ = \"first\""),
    ("p queue[1]", "$ = 3"),
    ("p map.contains_key(1)", "$ = true"),
    ("p few.contains(\"c\")", "$ = false"),
    ("p nothing.is_empty()", "$ = true"),
    ("p shapes.len()", "$ = 3"),
    ("p text != name && words[1] == \"two\"", "$ = true"),
];

/// Returns the command that selects the frame of the Rust program.
fn select_look(bundle: &Bundle) -> String {
    let stack = bundle.debug(&["backtrace"]);
    let frame = stack.lines().find(|line| line.contains("owned::look")).unwrap();
    let number = frame.trim_start_matches('#').split(' ').next().unwrap();
    format!("frame {number}")
}

/// GDB 13 fails on the enumerations of current compilers, so the expected output is listed here.
#[test]
fn values_of_rust_are_as_the_source_has_them() {
    let bundle = recorded("owned");
    let said = ours(&bundle, &[&select_look(&bundle), "info args", "info locals"]);
    assert_eq!(
        said[1].1,
        [
            "shapes = &[owned::Shape::Empty, owned::Shape::Circle {center: owned::Point {x: 3, y: 4}, radius: 1.5}, \
             owned::Shape::Named(\"hello\", 200)]",
            "name = \"look\"",
            "limit = core::option::Option<u32>::Some(8)",
        ]
    );
    let sorted = said[2].1.iter().find(|line| line.starts_with("sorted = "));
    let entries: Vec<String> = (0..40).map(|key| format!("[{key}] = \"{key}\"")).collect();
    assert_eq!(
        sorted.unwrap(),
        &format!("sorted = BTreeMap(size=40) = {{{}}}", entries.join(", "))
    );
    let lines = said[2].1.iter();
    let locals: BTreeMap<&str, &str> = lines.filter_map(|line| line.split_once(" = ")).collect();
    for (name, value) in RUST_LOCALS {
        assert_eq!(locals.get(name), Some(&value), "{name}");
    }
}

#[test]
fn expressions_of_rust_have_values() {
    let bundle = recorded("owned");
    let select = select_look(&bundle);
    let mut commands = vec![&*select];
    commands.extend(RUST_EXPRESSIONS.map(|(expression, _)| expression));
    let said = ours(&bundle, &commands);
    for ((command, lines), (_, value)) in said[1..].iter().zip(RUST_EXPRESSIONS) {
        assert_eq!(lines, &[value], "{command}");
    }
}

#[test]
fn json_has_the_parts_of_a_value() {
    let bundle = recorded("values");
    let mut options = vec!["--batch", "--json"];
    options.extend([
        "-e",
        "p *list",
        "-e",
        "info locals",
        "-e",
        "x/2dw &table",
        "-e",
        "ptype struct point",
    ]);
    let run = bundle.run(&["debug"], &options);
    let results: Vec<serde_json::Value> = run
        .stdout
        .lines()
        .skip(1)
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()["result"].take())
        .collect();
    let value = &results[0]["value"];
    assert_eq!(results[0]["kind"], "value");
    assert_eq!(value["type"], "node_t");
    let at = value["members"]
        .as_array()
        .unwrap()
        .iter()
        .find(|member| member["name"] == "at")
        .unwrap();
    assert_eq!(at["members"][1]["members"][1]["text"], "8");
    assert!(at["address"].as_u64().unwrap() > value["address"].as_u64().unwrap());
    assert_eq!(results[1]["variables"][0]["name"], "inner");
    assert_eq!(results[2]["lines"][0]["values"], serde_json::json!(["1", "2"]));
    assert_eq!(results[3]["text"], "struct point {\n    int x;\n    int y;\n}");
}
