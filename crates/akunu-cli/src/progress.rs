//! Progress on stderr: a bar on a terminal, a line now and then elsewhere.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use crate::units;

/// How often a line is written where there is no terminal.
const LINE_INTERVAL: Duration = Duration::from_secs(10);

/// Shows how far something is, in bytes.
pub struct Meter {
    bar: Option<ProgressBar>,
    last_line: Instant,
}

impl Meter {
    /// A meter that has nothing to show yet.
    pub fn new() -> Meter {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new_spinner();
            bar.enable_steady_tick(Duration::from_millis(120));
            bar
        });
        Meter { bar, last_line: Instant::now() }
    }

    /// Something new begins.
    pub fn stage(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.set_message(text.to_owned()),
            None => line(text),
        }
    }

    /// What is being worked on: too small to be worth a line.
    pub fn detail(&self, text: &str) {
        if let Some(bar) = &self.bar {
            bar.set_message(text.to_owned());
        }
    }

    /// So much is done, of so much where that is known.
    pub fn bytes(&mut self, done: u64, total: Option<u64>) {
        match &self.bar {
            Some(bar) => set_bytes(bar, done, total),
            None if self.last_line.elapsed() >= LINE_INTERVAL => {
                self.last_line = Instant::now();
                match total {
                    Some(total) => line(&format!("{} of {}", units::bytes(done), units::bytes(total))),
                    None => line(&units::bytes(done)),
                }
            }
            None => {}
        }
    }

    /// Takes the bar away.
    pub fn clear(self) {
        if let Some(bar) = self.bar {
            bar.finish_and_clear();
        }
    }
}

/// Something that takes a while, shown on a terminal and nowhere else.
pub struct Spinner(Option<ProgressBar>);

impl Spinner {
    /// A spinner with a text beside it.
    pub fn new(text: &str) -> Spinner {
        Spinner(std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new_spinner();
            bar.set_message(text.to_owned());
            bar.enable_steady_tick(Duration::from_millis(120));
            bar
        }))
    }

    /// Shows how far it is, in bytes: from then on as a bar.
    pub fn bytes(&self, done: u64, total: u64) {
        if let Some(bar) = &self.0 {
            set_bytes(bar, done, Some(total));
        }
    }

    /// Shows another text.
    pub fn set(&self, text: &str) {
        if let Some(bar) = &self.0 {
            bar.set_message(text.to_owned());
        }
    }

    /// Takes it away.
    pub fn clear(self) {
        if let Some(bar) = self.0 {
            bar.finish_and_clear();
        }
    }
}

/// How much of a recording is done: a bar on a terminal, under what is printed meanwhile.
pub struct SoundMeter(Option<ProgressBar>);

impl SoundMeter {
    /// A meter for so many seconds of sound; none where that is not worth one.
    pub fn new(seconds: Option<f64>) -> SoundMeter {
        let bar = seconds.filter(|_| std::io::stderr().is_terminal()).map(|seconds| {
            const TEMPLATE: &str = "{bar:40} {percent:>3} % of {msg} {eta:>4}";
            let style = ProgressStyle::with_template(TEMPLATE)
                .map_or_else(|_| ProgressStyle::default_bar(), |style| style.progress_chars("━╸─"));
            let bar = ProgressBar::new(seconds as u64).with_style(style);
            bar.set_message(units::minutes(seconds));
            bar.enable_steady_tick(Duration::from_millis(500));
            bar
        });
        SoundMeter(bar)
    }

    /// So many seconds are done.
    pub fn set(&self, seconds: f64) {
        if let Some(bar) = &self.0 {
            bar.set_position(seconds as u64);
        }
    }

    /// A line above the bar, on terminals only.
    pub fn note(&self, text: &str) {
        if let Some(bar) = &self.0 {
            bar.println(text);
        }
    }

    /// Does something that writes to the terminal, without the bar in the way.
    pub fn above<T>(&self, write: impl FnOnce() -> T) -> T {
        match &self.0 {
            Some(bar) => bar.suspend(write),
            None => write(),
        }
    }

    /// Takes it away.
    pub fn clear(self) {
        if let Some(bar) = self.0 {
            bar.finish_and_clear();
        }
    }
}

fn set_bytes(bar: &ProgressBar, done: u64, total: Option<u64>) {
    if let Some(total) = total.filter(|&total| bar.length() != Some(total)) {
        bar.set_length(total);
        bar.set_style(bar_style());
    }
    bar.set_position(done);
}

fn bar_style() -> ProgressStyle {
    const TEMPLATE: &str = "{wide_msg} {bar:24} {percent:>3} % {binary_bytes_per_sec:>12} {eta:>4}";
    ProgressStyle::with_template(TEMPLATE)
        .map_or_else(|_| ProgressStyle::default_bar(), |style| style.progress_chars("━╸─"))
}

/// A line on stderr; nobody is left to tell when that is closed.
pub fn line(text: &str) {
    let _ = writeln!(anstream::stderr(), "{text}");
}
