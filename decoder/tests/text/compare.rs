//! The parts of a decode that two engines must share.

/// Removes from lines what engines need not share; splits runs into one instruction per line.
pub fn shared(lines: &[String]) -> Vec<String> {
    let lines = unfold(lines);
    let hidden = before_errors(&lines);
    let mut shared: Vec<String> = Vec::new();
    let mut last = None;
    for (line, hidden) in lines.into_iter().zip(hidden) {
        if hidden {
            continue;
        }
        if line.starts_with("time ") {
            // A repetition adds nothing, and of two events without anything between, the later
            // counts.
            if last.as_ref() == Some(&line) {
                continue;
            }
            last = Some(line.clone());
            shared.pop_if(|last| last.starts_with("time "));
        }
        let known = ["lost trace", "overflow"]
            .into_iter()
            .find(|word| line.starts_with(word));
        shared.push(known.map_or(line, str::to_owned));
    }
    shared
}

fn unfold(lines: &[String]) -> Vec<String> {
    let mut single = Vec::new();
    for line in lines {
        let (count, line) = match line.split_once(" * ") {
            Some((count, line)) => (count.parse().unwrap_or(1), line),
            None => (1, &**line),
        };
        for _ in 0..count {
            match line.strip_prefix("at ") {
                Some(row) => {
                    let names = row.split_whitespace().filter(|name| *name != "/");
                    single.extend(names.map(|name| format!("at {name}")));
                }
                None => single.push(line.to_owned()),
            }
        }
    }
    single
}

/// Returns which lines are events between the last instruction and a decode error. If libipt fails
/// to decode the next instruction, it drops such an event.
fn before_errors(lines: &[String]) -> Vec<bool> {
    let mut before = false;
    let tell = |line: &String| {
        let word = line.split_whitespace().next().unwrap_or_default();
        before = match word {
            "lost" => {
                before = !line.starts_with("lost run-away");
                return false;
            }
            "sync" | "at" => false,
            _ => before,
        };
        before
    };
    let mut hidden: Vec<bool> = lines.iter().rev().map(tell).collect();
    hidden.reverse();
    hidden
}
