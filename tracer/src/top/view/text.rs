//! Text for screen cells: escapes untrusted names, cuts text by display width, formats figures.
//!
//! Independent of the contents shown. `units.rs` has the formats of reports.

use crate::print::clean;
pub(crate) use crate::text::file_name;
use crate::units;
use std::time::Duration;
use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

/// Maximum characters of untrusted text that are processed; no screen is wider.
const LONGEST: usize = 4096;

/// Text safe for a cell: escaped (`gctrace_analysis::clean`), without zero-width characters, and bounded.
pub(crate) fn clean(text: &str) -> String {
    let start = text.char_indices().nth(LONGEST).map(|(end, _)| end);
    let text = clean::line(start.and_then(|end| text.get(..end)).unwrap_or(text));
    let shown = |char: &char| matches!(char.width(), Some(1..));
    text.chars().filter(shown).take(LONGEST).collect()
}

/// The rest of `whole` columns or lines after `used`; 0 if `used` is more.
pub(crate) fn rest(whole: usize, used: usize) -> usize {
    whole.saturating_sub(used)
}

/// A number of columns or lines as a coordinate; no area is larger than the largest.
pub(crate) fn cells(count: usize) -> u16 {
    count.try_into().unwrap_or(u16::MAX)
}

/// Display width of `text` in columns.
pub(crate) fn width(text: &str) -> usize {
    text.width()
}

/// `text` cut to at most `width` columns, with an ellipsis if anything was cut.
pub(crate) fn cut(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let mut kept = String::new();
    let mut used = 0;
    for char in text.chars() {
        used += char.width().unwrap_or(0);
        if used >= width {
            break;
        }
        kept.push(char);
    }
    if width > 0 {
        kept.push('…');
    }
    kept
}

/// `text` cut or padded to exactly `width` columns, left- or right-aligned.
pub(crate) fn fill(text: &str, width: usize, left: bool) -> String {
    let text = cut(text, width);
    let blanks = " ".repeat(rest(width, text.width()));
    if left { text + &blanks } else { blanks + &text }
}

/// A duration in at most seven columns: `1.23 ms`, `16.7min`.
pub(crate) fn brief(ns: u64) -> String {
    let text = units::duration(ns);
    if text.width() > 7 {
        return text.replace(' ', "");
    }
    text
}

/// Memory in at most six columns: `812`, `1.5K`, `34.2G`.
pub(crate) fn memory(bytes: u64) -> String {
    if bytes < 1000 {
        return bytes.to_string();
    }
    let (value, unit) = scaled(bytes as f64 / 1024.0, 1024.0, ["K", "M", "G", "T", "P", "E"]);
    match value {
        value if value >= 99.95 => format!("{value:.0}{unit}"),
        value if value >= 9.995 => format!("{value:.1}{unit}"),
        value => format!("{value:.2}{unit}"),
    }
}

/// The value in the first unit that gives it at most three digits, or else in the last.
fn scaled<const N: usize>(value: f64, factor: f64, units: [&str; N]) -> (f64, &str) {
    let (mut value, mut chosen) = (value, "");
    for (index, unit) in units.into_iter().enumerate() {
        value /= if index == 0 { 1.0 } else { factor };
        chosen = unit;
        if value < 999.5 {
            break;
        }
    }
    (value, chosen)
}

/// A count in at most six columns: `12,345`, `4.42M`.
pub(crate) fn brief_count(value: u64) -> String {
    match value {
        0..100_000 => units::count(value),
        100_000..1_000_000 => format!("{}K", value / 1000),
        _ => units::short_count(value).replace(' ', ""),
    }
}

/// A rate: `0`, `0.3`, `48.2`, `1,234`.
pub(crate) fn rate(value: f64) -> String {
    match value {
        value if value <= 0.0 => "0".to_owned(),
        value if value < 0.05 => "<0.1".to_owned(),
        value if value < 999.95 => format!("{value:.1}"),
        value => brief_count(value.round() as u64),
    }
}

/// A rate in at most four columns, for several side by side: `0`, `<0.1`, `3.1`, `48`, `999`, `1.9K`, `12M`.
pub(crate) fn short_rate(value: f64) -> String {
    let (value, unit) = scaled(value, 1000.0, ["", "K", "M", "G", "T"]);
    match value {
        value if value <= 0.0 => "0".to_owned(),
        value if value < 0.05 => "<0.1".to_owned(),
        value if value < 9.95 => format!("{value:.1}{unit}"),
        value if value < 999.5 => format!("{value:.0}{unit}"),
        _ => ">999".to_owned(),
    }
}

/// Ppm as a percentage for a narrow column: `12.4`, `0.03`, `100`.
pub(crate) fn percent(ppm: u64) -> String {
    let percent = ppm as f64 / 10_000.0;
    match ppm {
        0 => "0".to_owned(),
        1..50 => "<0.01".to_owned(),
        50..9_995 => format!("{percent:.2}"),
        9_995..999_500 => format!("{percent:.1}"),
        _ => format!("{percent:.0}"),
    }
}

/// A duration in seconds: `1 s`, `0.5 s`.
pub(crate) fn seconds(time: Duration) -> String {
    let text = format!("{:.1}", time.as_secs_f64());
    format!("{} s", text.strip_suffix(".0").unwrap_or(&text))
}

/// An elapsed time: `4 s`, `12 min 34 s`, `3 h 05 min`, `2 d 3 h`.
pub(crate) fn elapsed(ns: u64) -> String {
    let seconds = ns / 1_000_000_000;
    let (minutes, hours) = (seconds / 60, seconds / 3600);
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{minutes} min {:02} s", seconds % 60),
        3600..172_800 => format!("{hours} h {:02} min", minutes % 60),
        _ => format!("{} d {} h", hours / 24, hours % 24),
    }
}

/// A command line without the Python interpreter and its options, and without directories.
pub(crate) fn command(line: &str) -> String {
    let words: Vec<&str> = line.split(' ').map(without_directory).collect();
    let python = matches!(words.first(), Some(word) if word.starts_with("python"));
    let options = words.iter().skip(1).take_while(|word| is_plain_option(word));
    let skipped = 1 + options.count();
    let kept = match words.get(skipped..) {
        Some(kept) if python && !kept.is_empty() => kept,
        _ => &words,
    };
    clean(&kept.join(" "))
}

fn without_directory(word: &str) -> &str {
    let is_path = word.starts_with('/') && !word.ends_with('/');
    if is_path { file_name(word) } else { word }
}

/// Options of python that take no value and do not select the code to run.
fn is_plain_option(word: &str) -> bool {
    let is_plain = |letter| "bBdEiIOPqsSuvx".contains(letter);
    let Some(letters) = word.strip_prefix('-') else { return false };
    !letters.is_empty() && letters.chars().all(is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn control_characters_are_escaped() {
        assert_eq!(clean("a\x1b[2Jb\n\u{9b}c\t"), r"a\x1b[2Jb\n\x9bc\t");
        assert_eq!(clean("evil\u{202e}txt.py"), r"evil\u{202e}txt.py");
        assert_eq!(clean("e\u{301}x"), "ex");
        assert_eq!(clean("训练.py"), "训练.py");
        assert_eq!(clean(&"x".repeat(1 << 20)).len(), LONGEST);
    }

    #[test]
    fn cut_by_width() {
        assert_eq!(cut("训练训练", 8), "训练训练");
        assert_eq!(cut("训练训练", 7), "训练训…");
        assert_eq!(cut("训练训练", 4), "训…");
        assert_eq!(cut("ab", 1), "…");
        assert_eq!(cut("ab", 0), "");
        assert_eq!(fill("训", 4, false), "  训");
    }

    proptest! {
        #[test]
        fn any_text_fits(text in any::<String>(), width in 0_usize..50) {
            let clean = clean(&text);
            prop_assert!(clean.chars().all(|char| !char.is_control()));
            prop_assert!(super::width(&cut(&clean, width)) <= width);
        }

        #[test]
        fn any_rate_fits(value in 0.0..1e20_f64) {
            prop_assert!(short_rate(value).len() <= 4);
        }
    }

    #[test]
    fn figures() {
        assert_eq!(brief(1_230_000), "1.23 ms");
        assert_eq!(brief(1_002_000_000_000), "16.7min");
        assert_eq!((memory(812), memory(1536)), ("812".into(), "1.50K".into()));
        assert_eq!(memory(34 << 30), "34.0G");
        assert_eq!(memory(u64::MAX), "16.0E");
        assert_eq!(brief_count(4_420_000), "4.42M");
        assert_eq!(brief_count(123_456), "123K");
        assert_eq!(
            (rate(0.0), rate(0.01), rate(48.24)),
            ("0".into(), "<0.1".into(), "48.2".into())
        );
        let short = [0.0, 0.01, 3.12, 48.2, 999.4, 1_878.0, 171_000.0, 12e6, 1e30].map(short_rate);
        assert_eq!(short, ["0", "<0.1", "3.1", "48", "999", "1.9K", "171K", "12M", ">999"]);
        assert_eq!(
            (percent(124_000), percent(312), percent(1_000_000)),
            ("12.4".into(), "0.03".into(), "100".into())
        );
        assert_eq!(seconds(Duration::from_millis(500)), "0.5 s");
        assert_eq!(seconds(Duration::from_secs(10)), "10 s");
        assert_eq!(elapsed(754_000_000_000), "12 min 34 s");
    }

    #[test]
    fn commands_without_directorys() {
        for (line, shown) in [
            ("/usr/bin/python3 -u /home/a/train.py --out /tmp/x/", "train.py --out /tmp/x/"),
            ("python3.12 -m torch.distributed.run x", "-m torch.distributed.run x"),
            ("python -X dev -c pass", "-X dev -c pass"),
            ("/usr/bin/python3", "python3"),
            ("python -", "-"),
            ("/bin/sh -u /x/y", "sh -u y"),
        ] {
            assert_eq!(command(line), shown);
        }
    }
}
