//! Weights as people read them.

/// Returns a weight with a unit that fits its size.
pub fn text(weight: i64, unit: &str) -> String {
    let value = weight as f64;
    match unit {
        "nanoseconds" => scaled(value, &[(1e9, "s"), (1e6, "ms"), (1e3, "us"), (1.0, "ns")]),
        "bytes" => scaled(
            value,
            &[
                (1_073_741_824.0, "GiB"),
                (1_048_576.0, "MiB"),
                (1024.0, "KiB"),
                (1.0, "B"),
            ],
        ),
        "count" | "" => weight.to_string(),
        unit => format!("{weight} {unit}"),
    }
}

fn scaled(value: f64, units: &[(f64, &str)]) -> String {
    let fits = |unit: &&(f64, &str)| value.abs() >= unit.0;
    match units.iter().find(fits).or(units.last()) {
        Some((size, unit)) if *size > 1.0 => format!("{:.2} {unit}", value / size),
        Some((_, unit)) => format!("{value} {unit}"),
        None => value.to_string(),
    }
}

/// Returns a part of a total in percent.
pub fn percent(part: i64, total: i64) -> String {
    match total {
        0 => "-".to_owned(),
        total => format!("{:.1}%", part as f64 / total as f64 * 100.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unit_fits_the_size() {
        assert_eq!(text(1_500_000_000, "nanoseconds"), "1.50 s");
        assert_eq!(text(-20_000, "nanoseconds"), "-20.00 us");
        assert_eq!(text(0, "nanoseconds"), "0 ns");
        assert_eq!(text(1536, "bytes"), "1.50 KiB");
        assert_eq!(text(12, "count"), "12");
        assert_eq!(text(12, "cycles"), "12 cycles");
        assert_eq!(percent(1, 3), "33.3%");
        assert_eq!(percent(1, 0), "-");
    }
}
