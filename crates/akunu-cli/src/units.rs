//! Numbers for people.

/// Bytes in binary units with three significant digits: `93.8 MiB`.
pub fn bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    scaled(count, 1024.0, &UNITS).unwrap_or_else(|| format!("{count} B"))
}

/// A count in thousands, millions, billions: `135 M`.
pub fn count(count: u64) -> String {
    const UNITS: [&str; 4] = ["K", "M", "B", "T"];
    scaled(count, 1000.0, &UNITS).unwrap_or_else(|| count.to_string())
}

/// A share of a whole: `68.3 %`.
pub fn percent(part: u64, whole: u64) -> String {
    let share = if whole == 0 { 0.0 } else { part as f64 / whole as f64 * 100.0 };
    format!("{share:.1} %")
}

/// A whole number with its thousands apart: `32,768`.
pub fn grouped(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A number without the zeros it does not need: `10000`, `0.5`.
pub fn number(value: f64) -> String {
    if value.fract() == 0.0 && value.abs() < 1e15 {
        let sign = if value < 0.0 { "-" } else { "" };
        format!("{sign}{}", grouped(value.abs() as u64))
    } else {
        value.to_string()
    }
}

/// A length of time: `5:03`, `1:02:03`.
pub fn minutes(seconds: f64) -> String {
    let seconds = seconds.max(0.0).round() as u64;
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, minutes, seconds) => format!("{minutes}:{seconds:02}"),
        (hours, minutes, seconds) => format!("{hours}:{minutes:02}:{seconds:02}"),
    }
}

/// `None` below the first unit.
fn scaled(count: u64, step: f64, units: &[&str]) -> Option<String> {
    let mut value = count as f64;
    let mut unit = None;
    for &next in units {
        // What would round up to a whole step belongs to the next unit.
        if value < step - 0.5 {
            break;
        }
        value /= step;
        unit = Some(next);
    }
    let decimals = match value {
        value if value < 9.995 => 2,
        value if value < 99.95 => 1,
        _ => 0,
    };
    unit.map(|unit| format!("{value:.decimals$} {unit}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_have_three_digits_and_a_unit() {
        for (count, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.00 KiB"),
            (98_362_432, "93.8 MiB"),
            (1_048_575, "1.00 MiB"),
            (491_400_064, "469 MiB"),
            (u64::MAX, "16384 PiB"),
        ] {
            assert_eq!(bytes(count), text);
        }
    }

    #[test]
    fn counts_are_in_powers_of_a_thousand() {
        for (number, text) in [
            (999, "999"),
            (49_152, "49.2 K"),
            (134_515_008, "135 M"),
            (999_999_999, "1.00 B"),
            (7_240_000_000, "7.24 B"),
        ] {
            assert_eq!(count(number), text);
        }
    }

    #[test]
    fn times_have_hours_where_there_are_any() {
        assert_eq!([0.0, 59.6, 303.0, 3723.2].map(minutes), ["0:00", "1:00", "5:03", "1:02:03"]);
    }

    #[test]
    fn thousands_are_kept_apart() {
        assert_eq!([0, 999, 1000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!([1e6, 0.25, -3.0].map(number), ["1,000,000", "0.25", "-3"]);
    }
}
