//! Progress bars; nothing where standard error is not a terminal.

use firndb::{RecoveryPhase, RecoveryProgress};
pub use indicatif::ProgressBar;
use indicatif::ProgressStyle;
use std::sync::Mutex;
use std::time::Duration;

/// A bar with a title, for `total` units.
pub fn bar(title: &str, total: u64) -> ProgressBar {
    let style = ProgressStyle::with_template("{prefix:<18} [{bar:40}] {percent:>3} %  {msg}  {eta} left");
    let bar = ProgressBar::new(total).with_prefix(title.to_owned());
    if let Ok(style) = style {
        bar.set_style(style.progress_chars("=> "));
    }
    bar
}

/// A line that turns, for work of unknown length.
pub fn spinner(title: &str) -> ProgressBar {
    let bar = ProgressBar::new_spinner().with_message(title.to_owned());
    bar.enable_steady_tick(Duration::from_millis(100));
    bar
}

/// Shows recovery's progress until the opening returns, as one bar for each phase.
pub fn recovery() -> impl Fn(RecoveryProgress) + Send + Sync {
    let current: Mutex<Option<(RecoveryPhase, ProgressBar)>> = Mutex::new(None);
    move |step| {
        if step.in_background {
            // Others write to the terminal by now.
            return;
        }
        let Ok(mut current) = current.lock() else { return };
        if current.as_ref().is_none_or(|(phase, _)| *phase != step.phase) {
            if let Some((_, bar)) = current.take() {
                bar.finish_and_clear();
            }
            *current = Some((step.phase, bar(step.phase.name(), step.total)));
        }
        if let Some((_, bar)) = current.as_ref() {
            // What a phase has to do may turn out to be more.
            bar.set_length(step.total);
            bar.set_position(step.done);
            if step.total > 0 && step.done >= step.total {
                bar.finish_and_clear();
            }
        }
    }
}
