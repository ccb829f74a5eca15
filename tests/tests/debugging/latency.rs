//! Durations of calls, the longest calls, and the differences between two calls.

use backtrail_tests::bundle::Bundle;
use backtrail_tests::programs::{Variant, find};
use serde_json::Value;

fn requests() -> Bundle {
    Bundle::recorded(find("requests").unwrap(), Variant::Static, &["--full"]).0
}

fn bounds(length: &Value) -> (u64, u64) {
    (length[0].as_u64().unwrap(), length[1].as_u64().unwrap())
}

#[test]
fn every_call_has_bounds_of_its_duration() {
    let bundle = requests();
    let [time, instructions, alike, unknown] = &bundle.results(&[
        "latency serve",
        "latency serve --instructions",
        "latency /^(serve|reply)$/",
        "latency main",
    ])[..] else {
        panic!("four answers");
    };
    assert_eq!(
        (&time["calls"], &time["measured"], &time["unit"]),
        (&6.into(), &6.into(), &"ns".into())
    );
    let figures = ["min", "p50", "p90", "p99", "max"].map(|figure| bounds(&time["spread"][figure]));
    for pair in figures.windows(2) {
        assert!(pair[0].0 <= pair[1].0 && pair[0].1 <= pair[1].1, "{time}");
    }
    // Three of the six sleep for 3 ms.
    assert!(figures[2].1 >= 3_000_000, "{time}");
    let away = bounds(&time["split"]["off_cpu"]);
    assert!(away.0 >= 9_000_000, "{time}");
    let rows = time["histogram"].as_array().unwrap();
    let calls: u64 = rows.iter().map(|row| row["calls"].as_u64().unwrap()).sum();
    assert_eq!(calls, 6);

    assert_eq!(instructions["unit"], "instructions");
    let spread = &instructions["spread"];
    let (fewest, most) = (bounds(&spread["min"]), bounds(&spread["max"]));
    assert!(fewest.0 == fewest.1 && most.0 == most.1 && fewest.0 < most.0);
    let part = |part: &str| bounds(&instructions["split"][part]).0;
    assert_eq!(part("self") + part("callees"), bounds(&instructions["total"]).0);
    assert_eq!(part("off_cpu"), 0);

    assert_eq!(alike["calls"], 12);
    assert_eq!(unknown["calls"], unknown["measured"]);
    let text = bundle.debug(&[
        "latency serve",
        "latency serve --instructions",
        "latency flush_cache",
    ]);
    assert!(text.contains("serve: 6 calls\n"), "{text}");
    assert!(text.contains("flush_cache: 1 call\n"), "{text}");
    assert!(text.contains('█') && text.contains("p99"), "{text}");
}

#[test]
fn latency_errors_name_their_reason() {
    let bundle = requests();
    let answer = &bundle.results(&["latency _start"])[0];
    assert_eq!((&answer["calls"], &answer["measured"]), (&1.into(), &0.into()));
    assert_eq!(answer["unmeasured"][0]["reason"], "began_before_history");
    let text = bundle.debug(&["latency _start"]);
    assert!(
        text.contains("Length unknown: 1 that began before history."),
        "{text}"
    );
    let refused = |command: &str| {
        let options = ["--batch", "-e", command];
        let mut arguments = vec!["debug".as_ref(), bundle.path.as_os_str()];
        arguments.extend(options.map(std::ffi::OsStr::new));
        backtrail_tests::backtrail::backtrail(arguments)
            .unwrap()
            .exited(1)
            .stdout
    };
    assert!(refused("latency no_such_function").contains("no symbol"));
    assert!(refused("latency /(/").contains("not a regular expression"));
    assert!(refused("latency serve --ms").contains("usage: latency"));
    assert!(refused("compare c1 c999999999").contains("no call"));
    assert!(refused("break serve if duration > soon").contains("5ms"));
}

#[test]
fn the_command_line_answers_as_the_debugger_does() {
    let bundle = requests();
    let functions = ["serve", "/^(serve|reply)$/"];
    let text = bundle
        .run(&["latency"], &[&functions[..], &["--slowest", "2"]].concat())
        .stdout;
    for question in functions
        .map(|name| [format!("latency {name}"), format!("slowest {name} 2")])
        .concat()
    {
        let answer = bundle.debug(&[&question]);
        let answer = answer.split_once('\n').unwrap().1;
        assert!(!answer.is_empty() && text.contains(answer), "{question}: {text}");
    }
    let json = bundle
        .run(&["latency"], &["main", "--instructions", "--json"])
        .stdout;
    let row: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(
        (&row["schema"], &row["kind"], &row["calls"], &row["unit"]),
        (
            &"backtrail-latency/1".into(),
            &"latency".into(),
            &1.into(),
            &"instructions".into()
        )
    );
    let arguments = ["latency".as_ref(), bundle.path.as_os_str(), "nowhere".as_ref()];
    let refused = backtrail_tests::backtrail::backtrail(arguments)
        .unwrap()
        .exited(1);
    assert!(refused.sentence().contains("nowhere"), "{}", refused.stderr);
}

#[test]
fn the_slowest_calls_are_found_and_compared() {
    let bundle = requests();
    let slowest = &bundle.results(&["slowest serve 4 --instructions"])[0];
    let calls = slowest["slowest"].as_array().unwrap();
    assert_eq!((calls.len(), &slowest["calls"]), (4, &6.into()));
    let lengths: Vec<u64> = calls.iter().map(|call| bounds(&call["length"]).0).collect();
    assert!(lengths.is_sorted_by(|one, next| one >= next), "{lengths:?}");
    assert_eq!(calls[0]["function"], "serve");
    assert_eq!(calls[0]["caller"], "main");

    // Request B, which flushes, executed the most instructions; A is the first to sleep.
    let (flushing, loading) = (&calls[0], &calls[1]);
    let name = |call: &Value, key: &str| call[key].as_str().unwrap().to_owned();
    let commands = [
        format!("goto {}", name(flushing, "position")),
        format!("compare {} {}", name(loading, "call"), name(flushing, "call")),
        format!(
            "compare {} {}",
            name(loading, "position"),
            name(flushing, "position")
        ),
        format!("compare {} {}", name(loading, "call"), name(loading, "call")),
    ];
    let commands: Vec<&str> = commands.iter().map(String::as_str).collect();
    let answers = bundle.results(&commands);
    assert_eq!(answers[0]["place"]["frame"]["function"], "serve");
    assert_eq!(answers[1], answers[2]);
    let comparison = &answers[1];
    let rows = comparison["differences"].as_array().unwrap();
    let row = |function: &str| rows.iter().position(|row| row["function"] == function);
    let flush = row("flush_cache").unwrap();
    assert_eq!(rows[flush]["who"], "second");
    assert_eq!(rows[flush]["depth"], 1);
    let causes = comparison["by_instructions"].as_array().unwrap();
    let change = |cause: &Value| cause["change"][0].as_i64().unwrap();
    let total: i64 = causes.iter().map(change).sum();
    let executed = |side: &str| comparison[side]["instructions"].as_i64().unwrap();
    assert_eq!(total, executed("second") - executed("first"));
    assert!(causes.iter().any(|cause| cause["function"] == "flush_cache"));
    assert_eq!(answers[3]["differences"].as_array().unwrap().len(), 0);

    let text = bundle.debug(&commands[1..2]);
    assert!(text.contains("+   flush_cache"), "{text}");
    assert!(text.contains("called only by the second"), "{text}");
}

#[test]
fn calls_at_percentiles_are_compared() {
    let bundle = requests();
    let slowest = &bundle.results(&["slowest serve"])[0];
    let calls = slowest["slowest"].as_array().unwrap();
    assert_eq!(calls.len(), 6);
    let name = |at: usize| calls[at]["call"].as_str().unwrap();
    // By nearest rank, the third shortest of six is the median.
    let commands = [
        format!("compare {} {}", name(3), name(0)),
        "compare median p100 serve".to_owned(),
        "compare p50 max serve".to_owned(),
        format!("compare median {}", name(0)),
        format!("compare {} max", name(3)),
        format!("compare {} {}", name(5), name(0)),
        "compare min p99 serve".to_owned(),
    ];
    let commands: Vec<&str> = commands.iter().map(String::as_str).collect();
    let answers = bundle.results(&commands);
    assert!(
        answers[..5].iter().all(|answer| *answer == answers[0]),
        "{answers:#?}"
    );
    assert_eq!(answers[5], answers[6]);
    assert_ne!(answers[0], answers[5]);
}

#[test]
fn differences_precede_common_functions() {
    let bundle = requests();
    // The second request is served from the cache, the fourth flushes it.
    let calls = &bundle.results(&["slowest serve --instructions"])[0];
    let calls = calls["slowest"].as_array().unwrap();
    let cached = calls.last().unwrap()["call"].as_str().unwrap();
    let flushing = calls[0]["call"].as_str().unwrap();
    let comparison = &bundle.results(&[&format!("compare {cached} {flushing}")])[0];
    let rows: Vec<(&str, &str, u64)> = comparison["differences"]
        .as_array()
        .unwrap()
        .iter()
        // Rows with equal instructions are omitted, because their time depends on the machine.
        .filter(|row| row["instructions"] != 0)
        .map(|row| {
            let text = |key: &str| row[key].as_str().unwrap();
            (text("function"), text("who"), row["depth"].as_u64().unwrap())
        })
        .collect();
    let expected = [
        ("serve", "both", 0),
        ("flush_cache", "second", 1),
        ("fetch", "both", 1),
        ("load", "second", 2),
    ];
    assert_eq!(rows, expected);
}

#[test]
fn breakpoint_conditions_use_call_durations() {
    let bundle = requests();
    let stops = |condition: &str| {
        let commands = [
            "goto start".to_owned(),
            format!("break serve if {condition}"),
            "continue".to_owned(),
            "continue".to_owned(),
            "continue".to_owned(),
            "continue".to_owned(),
        ];
        let commands: Vec<&str> = commands.iter().map(String::as_str).collect();
        let answers = bundle.results(&commands);
        let stopped = answers.iter().filter(|answer| answer["reason"] == "breakpoint");
        stopped.count()
    };
    // Three of the calls sleep for at least 3 ms.
    assert_eq!(stops("duration >= 3ms"), 3);
    assert_eq!(stops("duration > 100s"), 0);
    assert_eq!(stops("caller == main && $hits > 4"), 2);
    assert_eq!(stops("instructions > 100000"), 0);
    assert_eq!(stops("$instructions < 100000 && caller != main"), 0);
}
