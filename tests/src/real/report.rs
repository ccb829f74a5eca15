//! The table of measurements, in Markdown.

use super::{Measurement, find};

/// Returns the table with one row per program, in the given order.
#[must_use]
pub fn markdown(measurements: &[Measurement]) -> String {
    let mut table = String::from(
        "| program | native s | recorded s | slowdown | threads | PT MB | bits/instruction | decoded M instructions | gaps | same output |\n\
         |---|---:|---:|---:|---:|---:|---:|---:|---:|---|\n",
    );
    for measurement in measurements {
        table.push_str(&row(measurement));
    }
    table
}

/// Returns the row of one program, without the table's head.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "figures of three digits")]
pub fn row(row: &Measurement) -> String {
    let about = find(row.name).map_or(row.name, |program| program.about);
    let gaps = row.decoded.as_ref().map_or("?".to_owned(), |decoded| {
        (decoded.gaps.len() as u64 + decoded.errors).to_string()
    });
    let decoded = row.decoded.as_ref().map_or("?".to_owned(), |decoded| {
        format!("{:.1}", decoded.instructions as f64 / 1e6)
    });
    let verdict = match row.problems.first() {
        None => "yes".to_owned(),
        Some(problem) => format!("**{}**", problem.replace('|', "\\|")),
    };
    format!(
        "| {about} | {:.2} | {:.2} | {:.1}× | {} | {:.0} | {} | {decoded} | {gaps} | {verdict} |\n",
        row.native,
        row.recorded,
        row.slowdown,
        row.threads,
        row.bytes as f64 / 1e6,
        row.bits.map_or("?".to_owned(), |bits| format!("{bits:.2}")),
    )
}
