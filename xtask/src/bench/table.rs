//! Output of `bench record`: Markdown, or JSON.

use super::costs::{Cost, Row};
use super::peers::Peer;
use super::{Options, machine};
use crate::Failure;
use backtrail_tests::real::{History, Recorder};
use std::fmt::Write;

/// The table with the command, the machine, and what its columns mean.
pub fn markdown(options: &Options, recorder: &Recorder, rows: &[Row], peers: &[Peer]) -> String {
    let mut text = format!(
        "`cargo xtask bench record {}` on {}; load at the end {}. The fastest of {} runs, wall clock of the whole \
         command; slowdown in parentheses.\n\n",
        options.shown(),
        machine::line(),
        machine::load(),
        options.runs()
    );
    if let History::Ring(mebibytes) = recorder.history {
        let _ = writeln!(
            text,
            "- ring: `backtrail record --ring {mebibytes}M`; its PT bits an instruction and gaps are of the decoded ring"
        );
    }
    let _ = writeln!(
        text,
        "- full: `backtrail record --full`; PT MB and MB/s are of the full trace"
    );
    for peer in peers {
        let _ = writeln!(text, "- {}: {}", peer.name, peer.about);
    }
    let mut header =
        String::from("| program | native s | ring s | full s | PT MB | PT MB/s | bits/instruction | gaps |");
    let mut line = String::from("|---|---:|---:|---:|---:|---:|---:|---:|");
    for peer in peers {
        let _ = write!(header, " {} s |", peer.name);
        line.push_str("---:|");
    }
    let _ = writeln!(text, "\n{header}\n{line}");
    for row in rows {
        let _ = writeln!(text, "{}", markdown_row(row));
    }
    for (row, problem) in rows
        .iter()
        .flat_map(|row| problems(row).map(move |problem| (row, problem)))
    {
        let _ = writeln!(text, "\n{}: {problem}", row.program.name);
    }
    text
}

fn markdown_row(row: &Row) -> String {
    let full = row.full.as_ref().ok();
    let ring = row.ring.as_ref().ok();
    let figure = |figure: Option<f64>, digits: usize| {
        figure.map_or_else(|| "–".to_owned(), |figure| format!("{figure:.digits$}"))
    };
    let seconds = |seconds: Option<f64>| {
        seconds.map_or_else(
            || "fails".to_owned(),
            |seconds| format!("{seconds:.2} ({:.1}×)", seconds / row.native),
        )
    };
    let gaps = [ring, full]
        .into_iter()
        .flatten()
        .map(|cost| cost.gaps)
        .sum::<u64>();
    let mut text = format!(
        "| {} | {:.2} | {} | {} | {} | {} | {} | {gaps} |",
        row.program.about,
        row.native,
        seconds(ring.map(|cost| cost.seconds)),
        seconds(full.map(|cost| cost.seconds)),
        figure(full.map(megabytes), 0),
        figure(full.map(rate), 0),
        figure(ring.and_then(|cost| cost.bits), 2),
    );
    for peer in &row.peers {
        let _ = write!(text, " {} |", seconds(peer.as_ref().ok().copied()));
    }
    text
}

/// One object: seconds, bytes; what failed as a sentence in place of its figures.
pub fn json(row: &Row, peers: &[Peer]) -> String {
    let cost = |cost: &Result<Cost, Failure>| match cost {
        Ok(cost) => serde_json::json!({
            "seconds": cost.seconds, "bytes": cost.bytes, "bits_per_instruction": cost.bits, "gaps": cost.gaps,
        }),
        Err(error) => serde_json::json!({ "error": error }),
    };
    let peers: serde_json::Map<String, serde_json::Value> = peers
        .iter()
        .zip(&row.peers)
        .map(|(peer, seconds)| {
            let value = match seconds {
                Ok(seconds) => serde_json::json!({ "seconds": seconds }),
                Err(error) => serde_json::json!({ "error": error }),
            };
            (peer.name.to_owned(), value)
        })
        .collect();
    serde_json::json!({
        "schema": "backtrail-bench-record/1",
        "program": row.program.name,
        "machine": machine::line(),
        "native": row.native,
        "ring": cost(&row.ring),
        "full": cost(&row.full),
        "peers": peers,
    })
    .to_string()
}

fn problems(row: &Row) -> impl Iterator<Item = &Failure> {
    let costs = [&row.ring, &row.full]
        .into_iter()
        .filter_map(|cost| cost.as_ref().err());
    costs.chain(row.peers.iter().filter_map(|peer| peer.as_ref().err()))
}

#[expect(clippy::cast_precision_loss, reason = "a figure of three digits")]
fn megabytes(cost: &Cost) -> f64 {
    cost.bytes as f64 / 1e6
}

fn rate(cost: &Cost) -> f64 {
    megabytes(cost) / cost.seconds
}

#[cfg(test)]
mod tests {
    use super::*;
    use backtrail_tests::real::find;

    fn row() -> Row {
        let cost = |bits| Cost {
            seconds: 4.0,
            bytes: 800_000_000,
            bits,
            gaps: 0,
        };
        Row {
            program: find("gzip").unwrap(),
            native: 2.0,
            ring: Ok(cost(Some(0.5))),
            full: Ok(cost(None)),
            peers: vec![Ok(20.0), Err("valgrind: killed".to_owned())],
        }
    }

    #[test]
    fn a_row_shows_slowdowns_rates_and_failures() {
        let text = markdown_row(&row());
        assert!(text.ends_with(
            "| 2.00 | 4.00 (2.0×) | 4.00 (2.0×) | 800 | 200 | 0.50 | 0 | 20.00 (10.0×) | fails |"
        ));
        assert_eq!(problems(&row()).collect::<Vec<_>>(), ["valgrind: killed"]);
    }
}
