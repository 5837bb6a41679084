//! A bar on a terminal, lines elsewhere: bytes, rate, time left, ranks done.

use std::cell::RefCell;
use std::io::IsTerminal;
use std::time::Duration;
use std::time::Instant;

use flux_bcast::file::Totals;
use flux_bcast::units::show_size;
use indicatif::ProgressBar;
use indicatif::ProgressDrawTarget;
use indicatif::ProgressStyle;

use super::args::When;
use super::output;

const BAR: &str = "{bar:20} {bytes}/{total_bytes} {binary_bytes_per_sec} ETA {eta} {msg}";
const SPINNER: &str = "{spinner} {bytes} {binary_bytes_per_sec} {msg}";

/// Lines come at most so often.
const PERIOD: Duration = Duration::from_secs(1);

/// Shows how far a transfer is.
#[derive(Debug)]
pub(crate) struct Meter(RefCell<Show>);

#[derive(Debug)]
enum Show {
    Nothing,
    /// A terminal.
    Bar {
        bar: ProgressBar,
        ranks: usize,
    },
    /// Anything else.
    Lines {
        total: Option<u64>,
        ranks: usize,
        start: Instant,
        last: Option<Instant>,
    },
}

impl Meter {
    /// Shows nothing before [`Meter::start`].
    pub(crate) fn new(when: When) -> Self {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        // A terminal that cannot move its cursor (TERM=dumb) gets lines.
        let terminal = std::io::stderr().is_terminal() && !bar.is_hidden();
        Self(RefCell::new(match (when, terminal) {
            (When::Never, _) | (When::Auto, false) => Show::Nothing,
            (When::Auto | When::Always, true) => Show::Bar { bar, ranks: 0 },
            (When::Always, false) => Show::Lines {
                total: None,
                ranks: 0,
                start: Instant::now(),
                last: None,
            },
        }))
    }

    /// Data begins to flow to so many ranks.
    pub(crate) fn start(&self, totals: Totals, targets: usize) {
        let known = totals.exact.then_some(totals.bytes);
        match &mut *self.0.borrow_mut() {
            Show::Nothing => {}
            Show::Bar { bar, ranks } => {
                *ranks = targets;
                if let Some(bytes) = known {
                    bar.set_length(bytes);
                }
                let style = if known.is_some() { BAR } else { SPINNER };
                if let Ok(style) = ProgressStyle::with_template(style) {
                    bar.set_style(style);
                }
            }
            Show::Lines {
                total,
                ranks,
                start,
                ..
            } => {
                *total = known;
                *ranks = targets;
                *start = Instant::now();
            }
        }
        self.update(0, 0);
    }

    /// The slowest rank has so many bytes, so many ranks have everything.
    pub(crate) fn update(&self, bytes: u64, done: u32) {
        match &mut *self.0.borrow_mut() {
            Show::Nothing => {}
            Show::Bar { bar, ranks } => {
                bar.set_message(format!("ranks {done}/{ranks}"));
                bar.set_position(bytes);
            }
            Show::Lines {
                total,
                ranks,
                start,
                last,
            } => {
                let now = Instant::now();
                if last.is_some_and(|last| now.duration_since(last) < PERIOD) {
                    return;
                }
                *last = Some(now);
                output::note(&line(bytes, *total, start.elapsed(), done, *ranks));
            }
        }
    }

    /// Takes the bar away, or says the last word.
    pub(crate) fn finish(&self, complete: bool) {
        match &mut *self.0.borrow_mut() {
            Show::Nothing => {}
            Show::Bar { bar, .. } => bar.finish_and_clear(),
            Show::Lines {
                total,
                ranks,
                start,
                last,
            } => {
                if complete && last.is_some() {
                    let done = u32::try_from(*ranks).unwrap_or(u32::MAX);
                    let bytes = total.unwrap_or(0);
                    if total.is_some() {
                        output::note(&line(bytes, *total, start.elapsed(), done, *ranks));
                    }
                }
            }
        }
    }
}

fn line(bytes: u64, total: Option<u64>, elapsed: Duration, done: u32, ranks: usize) -> String {
    let rate = bytes as f64 / elapsed.as_secs_f64().max(1e-3);
    let rest = match total {
        Some(total) if rate >= 1. && bytes < total => {
            format!(", ETA {:.0} s", (total - bytes) as f64 / rate)
        }
        _ => String::new(),
    };
    let of = match total {
        Some(0) | None => String::new(),
        Some(total) => format!(
            " of {} ({:.0}%)",
            show_size(total),
            bytes as f64 * 100. / total as f64
        ),
    };
    format!(
        "{}{of}, {}/s{rest}, ranks {done}/{ranks}",
        show_size(bytes),
        show_size(rate as u64)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_say_how_far_it_is() {
        let second = Duration::from_secs(1);
        assert_eq!(
            line(1 << 20, Some(4 << 20), second, 0, 8),
            "1.0 MiB of 4.0 MiB (25%), 1.0 MiB/s, ETA 3 s, ranks 0/8"
        );
        assert_eq!(
            line(4 << 20, Some(4 << 20), second * 2, 8, 8),
            "4.0 MiB of 4.0 MiB (100%), 2.0 MiB/s, ranks 8/8"
        );
        assert_eq!(line(10, None, second, 0, 2), "10 B, 10 B/s, ranks 0/2");
    }
}
