//! The date and time a template may ask for.

use std::fmt::Write;
use std::time::{SystemTime, UNIX_EPOCH};

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const DAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];

/// A moment as a calendar and a clock on the wall show it, in whichever time zone the caller lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DateTime {
    /// The year, 1 to 9999.
    pub year: u16,
    /// The month, 1 to 12.
    pub month: u8,
    /// The day of the month, from 1.
    pub day: u8,
    /// Hours since midnight, 0 to 23.
    pub hour: u8,
    /// Minutes, 0 to 59.
    pub minute: u8,
    /// Seconds, 0 to 59.
    pub second: u8,
}

impl DateTime {
    /// The current moment in UTC.
    pub fn now_utc() -> Self {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self::from_unix(since_epoch.as_secs())
    }

    /// The moment so many seconds after 1970 in UTC; moments after the year 9999 become its last second.
    pub fn from_unix(seconds: u64) -> Self {
        /// The last second of the year 9999.
        const LAST: u64 = 253_402_300_799;
        let seconds = seconds.min(LAST);
        let (mut days, second_of_day) = (seconds / 86_400, seconds % 86_400);
        let mut year = 1970;
        while days >= year_length(year) {
            days -= year_length(year);
            year += 1;
        }
        let mut month = 1;
        while days >= month_length(year, month) {
            days -= month_length(year, month);
            month += 1;
        }
        Self {
            year,
            month,
            day: days as u8 + 1,
            hour: (second_of_day / 3600) as u8,
            minute: (second_of_day / 60 % 60) as u8,
            second: (second_of_day % 60) as u8,
        }
    }

    /// Days since the first of January.
    fn day_of_year(self) -> u64 {
        let months = (1..self.month).map(|month| month_length(self.year, month)).sum::<u64>();
        months + u64::from(self.day.max(1)) - 1
    }

    /// Days since Sunday.
    fn weekday(self) -> usize {
        let before = u64::from(self.year.max(1)) - 1;
        let days = before * 365 + before / 4 - before / 100 + before / 400 + self.day_of_year();
        // The first of January of the year 1 was a Monday.
        ((days + 1) % 7) as usize
    }

    /// The moment written by a format of the C library's `strftime`, in the C locale. Unknown directives stay
    /// as they are.
    pub fn strftime(self, format: &str) -> String {
        let mut out = String::new();
        let mut chars = format.chars();
        while let Some(c) = chars.next() {
            if c != '%' {
                out.push(c);
                continue;
            }
            let mut directive = chars.clone();
            let unpadded = directive.as_str().starts_with('-');
            if unpadded {
                directive.next();
            }
            match directive.next() {
                Some(letter) if self.write_directive(letter, unpadded, &mut out) => chars = directive,
                _ => out.push('%'),
            }
        }
        out
    }

    /// Writes one directive; false if there is none of that letter.
    fn write_directive(self, letter: char, unpadded: bool, out: &mut String) -> bool {
        let month = MONTHS[usize::from(self.month.clamp(1, 12)) - 1];
        let weekday = DAYS[self.weekday()];
        let hour12 = match self.hour % 12 {
            0 => 12,
            hour => hour,
        };
        let nested = |format: &str, out: &mut String| out.push_str(&self.strftime(format));
        let (number, width, fill) = match letter {
            'Y' => (u64::from(self.year), 1, '0'),
            'y' => (u64::from(self.year % 100), 2, '0'),
            'C' => (u64::from(self.year / 100), 2, '0'),
            'm' => (u64::from(self.month), 2, '0'),
            'd' => (u64::from(self.day), 2, '0'),
            'e' => (u64::from(self.day), 2, ' '),
            'H' => (u64::from(self.hour), 2, '0'),
            'k' => (u64::from(self.hour), 2, ' '),
            'I' => (u64::from(hour12), 2, '0'),
            'l' => (u64::from(hour12), 2, ' '),
            'M' => (u64::from(self.minute), 2, '0'),
            'S' => (u64::from(self.second), 2, '0'),
            'j' => (self.day_of_year() + 1, 3, '0'),
            'u' => (if self.weekday() == 0 { 7 } else { self.weekday() as u64 }, 1, '0'),
            'w' => (self.weekday() as u64, 1, '0'),
            'U' => ((self.day_of_year() + 7 - self.weekday() as u64) / 7, 2, '0'),
            'W' => ((self.day_of_year() + 7 - (self.weekday() as u64 + 6) % 7) / 7, 2, '0'),
            _ => {
                match letter {
                    'B' => out.push_str(month),
                    'b' | 'h' => out.push_str(&month[..3]),
                    'A' => out.push_str(weekday),
                    'a' => out.push_str(&weekday[..3]),
                    'p' => out.push_str(if self.hour < 12 { "AM" } else { "PM" }),
                    'f' => out.push_str("000000"),
                    'F' => nested("%Y-%m-%d", out),
                    'T' | 'X' => nested("%H:%M:%S", out),
                    'D' | 'x' => nested("%m/%d/%y", out),
                    'R' => nested("%H:%M", out),
                    'r' => nested("%I:%M:%S %p", out),
                    'c' => nested("%a %b %e %H:%M:%S %Y", out),
                    'n' => out.push('\n'),
                    't' => out.push('\t'),
                    '%' => out.push('%'),
                    // No time zone is known: Python writes nothing for a naive moment.
                    'z' | 'Z' => {}
                    _ => return false,
                }
                return true;
            }
        };
        let digits = number.to_string();
        if !unpadded {
            out.extend(std::iter::repeat_n(fill, usize::saturating_sub(width, digits.len())));
        }
        // Writing to a string cannot fail.
        let _ = write!(out, "{digits}");
        true
    }
}

fn is_leap(year: u16) -> bool {
    year.is_multiple_of(4) && !year.is_multiple_of(100) || year.is_multiple_of(400)
}

fn year_length(year: u16) -> u64 {
    365 + u64::from(is_leap(year))
}

fn month_length(year: u16, month: u8) -> u64 {
    match month {
        2 => 28 + u64::from(is_leap(year)),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_what_python_writes() {
        // Expected: datetime.strftime of CPython 3.11 on Linux.
        let moment = DateTime { year: 2026, month: 3, day: 5, hour: 14, minute: 7, second: 9 };
        for (format, expected) in [
            ("%Y-%m-%d", "2026-03-05"),
            ("%d %b %Y", "05 Mar 2026"),
            ("%B %d, %Y", "March 05, 2026"),
            ("%A, %-d %B", "Thursday, 5 March"),
            ("%a %e %j %U %W %u %w", "Thu  5 064 09 09 4 4"),
            ("%I:%M:%S %p|%H", "02:07:09 PM|14"),
            ("%y%%", "26%"),
            ("%F %T", "2026-03-05 14:07:09"),
            ("100%", "100%"),
        ] {
            assert_eq!(moment.strftime(format), expected, "{format}");
        }
    }

    #[test]
    fn counts_days_since_1970() {
        let at = |seconds| DateTime::from_unix(seconds).strftime("%A %F %T");
        assert_eq!(at(0), "Thursday 1970-01-01 00:00:00");
        assert_eq!(at(951_782_400), "Tuesday 2000-02-29 00:00:00");
        assert_eq!(at(1_772_719_629), "Thursday 2026-03-05 14:07:09");
        assert_eq!(at(u64::MAX), "Friday 9999-12-31 23:59:59");
    }
}
