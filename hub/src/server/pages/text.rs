//! Texts, numbers and times on pages.

use backtrail_console::output::is_invisible;
use maud::{Markup, Render, html};

/// The longest text on a page, in characters.
const LONGEST: usize = 2000;
/// Microseconds in a second.
const SECOND: i64 = 1_000_000;

/// Returns a text of others, in which control characters and changes of direction are visible. The
/// template escapes it.
pub(super) fn shown(text: &str) -> String {
    shown_to(text, LONGEST)
}

/// The same with at most `limit` characters. `…` is the mark of a cut.
pub(super) fn shown_to(text: &str, limit: usize) -> String {
    let mut out = String::new();
    for (number, char) in text.chars().enumerate() {
        if number == limit {
            out.push('…');
            break;
        }
        match char {
            '\t' => out.push_str("    "),
            // The pictures of control characters: U+2400 for NUL and so on.
            '\0'..='\u{1f}' => out.push(char::from_u32(0x2400 + char as u32).unwrap_or('\u{fffd}')),
            '\u{7f}' => out.push('\u{2421}'),
            char if is_invisible(char) => out.push_str(&format!("⟨U+{:04X}⟩", char as u32)),
            char => out.push(char),
        }
    }
    out
}

/// Returns the last part of a path.
pub(super) fn file_name(path: &str) -> String {
    let name = path.trim_end_matches('/').rsplit('/').next().unwrap_or(path);
    shown_to(name, 120)
}

/// Returns a number of things: `1 row`, `2 rows`.
pub(super) fn counted(count: u64, thing: &str) -> String {
    let ending = if count == 1 { "" } else { "s" };
    format!("{} {thing}{ending}", number(count))
}

/// Returns a number with separators of thousands.
pub(super) fn number(value: u64) -> String {
    let digits = value.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Returns a count in few characters: `12.4k`.
pub(super) fn compact(value: u64) -> String {
    let scaled = |unit: f64, letter: char| {
        let short = value as f64 / unit;
        match short < 100.0 {
            true => format!("{short:.1}{letter}"),
            false => format!("{short:.0}{letter}"),
        }
    };
    match value {
        0..=9_999 => number(value),
        10_000..=999_499 => scaled(1e3, 'k'),
        999_500..=999_499_999 => scaled(1e6, 'M'),
        _ => scaled(1e9, 'G'),
    }
}

/// Returns a share in percent. `None`: of nothing.
pub(super) fn percent(part: u64, whole: u64) -> Option<String> {
    let share = part as f64 * 100.0 / Some(whole).filter(|&whole| whole > 0)? as f64;
    Some(match share {
        share if share >= 10.0 || part == 0 => format!("{share:.0} %"),
        share if share >= 1.0 => format!("{share:.1} %"),
        share if share >= 0.01 => format!("{share:.2} %"),
        _ => "< 0.01 %".to_owned(),
    })
}

/// Returns a size in bytes.
pub(super) fn bytes(size: u64) -> String {
    match size {
        0..=1023 => format!("{size} B"),
        1024..=1_048_575 => format!("{:.1} KiB", size as f64 / 1024.0),
        1_048_576..=1_073_741_823 => format!("{:.1} MiB", size as f64 / 1_048_576.0),
        _ => format!("{:.1} GiB", size as f64 / 1_073_741_824.0),
    }
}

/// Returns a duration in nanoseconds.
pub(super) fn nanoseconds(length: u64) -> String {
    match length {
        0..=999 => format!("{length} ns"),
        1_000..=999_999 => format!("{:.1} µs", length as f64 / 1e3),
        1_000_000..=999_999_999 => format!("{:.1} ms", length as f64 / 1e6),
        _ => format!("{:.2} s", length as f64 / 1e9),
    }
}

/// Returns a weight with its unit.
pub(super) fn amount(weight: i64, unit: &str) -> String {
    let sign = if weight < 0 { "−" } else { "" };
    let weight = weight.unsigned_abs();
    match unit {
        "nanoseconds" => format!("{sign}{}", nanoseconds(weight)),
        "bytes" => format!("{sign}{}", bytes(weight)),
        "count" | "" => format!("{sign}{}", number(weight)),
        unit => format!("{sign}{} {}", number(weight), shown_to(unit, 20)),
    }
}

/// Returns a number without a unit. Very large and very small ones have an exponent.
pub(super) fn decimal(value: f64) -> String {
    let size = value.abs();
    let sign = if value < 0.0 { "−" } else { "" };
    match size {
        0.0 => "0".to_owned(),
        // All whole numbers below 2^53 are exact.
        _ if size < 9e15 && size.fract() == 0.0 => format!("{sign}{}", number(size as u64)),
        _ if !(0.001..9e15).contains(&size) => format!("{sign}{size:.3e}"),
        _ if size >= 1000.0 => format!("{sign}{}", number(size.round() as u64)),
        _ => {
            let digits = format!("{size:.4}");
            let digits = digits.trim_end_matches('0').trim_end_matches('.');
            format!("{sign}{digits}")
        }
    }
}

/// A time in microseconds since 1970, shown by its distance from now.
pub(super) struct Ago {
    /// The time.
    pub time: i64,
    /// Now.
    pub now: i64,
}

impl Render for Ago {
    fn render(&self) -> Markup {
        html! { time datetime=(iso(self.time)) title=(utc(self.time)) { (distance(self.now.saturating_sub(self.time))) } }
    }
}

/// Returns a distance in words: `3 h ago`.
fn distance(length: i64) -> String {
    let seconds = length / SECOND;
    let (count, unit) = match seconds.unsigned_abs() {
        0..=59 => return if seconds < 0 { "soon" } else { "now" }.to_owned(),
        seconds @ 60..=3599 => (seconds / 60, "min"),
        seconds @ 3600..=172_799 => (seconds / 3600, "h"),
        seconds @ 172_800..=5_183_999 => (seconds / 86400, "days"),
        seconds @ 5_184_000..=63_071_999 => (seconds / 2_592_000, "months"),
        seconds => (seconds / 31_536_000, "years"),
    };
    match seconds < 0 {
        true => format!("in {count} {unit}"),
        false => format!("{count} {unit} ago"),
    }
}

/// Returns a time as `2026-11-27 14:15:03 UTC`.
pub(super) fn utc(time: i64) -> String {
    let iso = iso(time);
    format!("{} UTC", iso.trim_end_matches('Z').replace('T', " "))
}

/// Returns a time as `2026-11-27 14:15:03.250`, in milliseconds.
pub(super) fn seconds_and_parts(time: i64) -> String {
    let milliseconds = time.div_euclid(1000).rem_euclid(1000);
    let iso = iso(time);
    let seconds = iso.trim_end_matches('Z').replace('T', " ");
    format!("{seconds}.{milliseconds:03}")
}

/// Returns a time as `2026-11-27T14:15:03Z`.
fn iso(time: i64) -> String {
    let seconds = time.div_euclid(SECOND);
    let (days, rest) = (seconds.div_euclid(86400), seconds.rem_euclid(86400));
    let (year, month, day) = date(days);
    let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// Returns the year, month and day of a number of days since 1970 (Gregorian calendar).
fn date(days: i64) -> (i64, i64, i64) {
    // Years begin in March, so that the leap day is the last day.
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let of_era = days.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invisible_characters_are_shown() {
        assert_eq!(shown("a\0b\u{1b}[2J\u{7f}"), "a␀b␛[2J␡");
        assert_eq!(shown("x\u{202e}y"), "x⟨U+202E⟩y");
        assert_eq!(shown_to(&"é".repeat(100), 3), "ééé…");
        assert_eq!(shown("a\n\tb"), "a␊    b");
    }

    #[test]
    fn numbers_are_short() {
        assert_eq!(number(1_234_567), "1,234,567");
        assert_eq!(number(0), "0");
        assert_eq!(compact(12_400), "12.4k");
        assert_eq!(compact(2_000_000), "2.0M");
        assert_eq!(percent(1, 1000).as_deref(), Some("0.10 %"));
        assert_eq!(percent(3, 4).as_deref(), Some("75 %"));
        assert_eq!(percent(0, 0), None);
        assert_eq!(bytes(1_572_864), "1.5 MiB");
        assert_eq!(nanoseconds(38_100), "38.1 µs");
        for (value, expected) in [
            (0.0, "0"),
            (-0.0, "0"),
            (-1234.0, "−1,234"),
            (1.5, "1.5"),
            (0.12345, "0.1235"),
            (1234.56, "1,235"),
            (0.000_012_3, "1.230e-5"),
            (f64::MAX, "1.798e308"),
            (i64::MIN as f64, "−9.223e18"),
        ] {
            assert_eq!(decimal(value), expected);
        }
    }

    #[test]
    fn times_are_dates() {
        assert_eq!(utc(0), "1970-01-01 00:00:00 UTC");
        assert_eq!(utc(951_827_696 * SECOND), "2000-02-29 12:34:56 UTC");
        assert_eq!(utc(-SECOND), "1969-12-31 23:59:59 UTC");
        assert_eq!(distance(3 * 3600 * SECOND), "3 h ago");
        assert_eq!(distance(-120 * SECOND), "in 2 min");
        let _ = utc(i64::MAX) + &utc(i64::MIN);
    }

    #[test]
    fn name_of_a_file_is_its_last_part() {
        assert_eq!(file_name("/srv/bank/ledger.cc"), "ledger.cc");
        assert_eq!(file_name(""), "");
    }
}
