//! Amounts of memory as people write them.

const UNITS: [(&str, u64); 9] = [
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
    ("KB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
    ("B", 1),
];

/// Parses `2GB`, `512 MiB` or a plain number of bytes; `None` if the text is not a size. A size
/// above the range of `u64` becomes the largest `u64`.
pub fn bytes(text: &str) -> Option<u64> {
    let text = text.trim();
    let ends = |unit: &str| {
        let at = text.len().checked_sub(unit.len())?;
        let (number, end) = text.split_at_checked(at)?;
        end.eq_ignore_ascii_case(unit).then(|| number.trim_end())
    };
    let found = UNITS.iter().find_map(|(unit, bytes)| Some((ends(unit)?, *bytes)));
    let (number, unit) = found.unwrap_or((text, 1));
    let plain = number.starts_with(|c: char| c.is_ascii_digit());
    let number = number.parse::<f64>().ok().filter(|_| plain)?;
    Some((number * unit as f64) as u64)
}
