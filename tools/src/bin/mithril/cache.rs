//! `mithril cache`: lists or removes the objects that are cached on disk.

use std::time::Duration;

use clap::Subcommand;
use mithril_driver::native::cache::Cache;
use mithril_ir::diagnostic::Result;

use crate::output::print;

/// A command on the cached objects.
#[derive(Subcommand)]
pub enum Command {
    /// Print the cached objects with their sizes and the time since their last use, most recent
    /// first.
    List,
    /// Remove all cached objects.
    Clear,
}

/// Runs the command. Errors: its output cannot be printed.
pub fn run(command: &Command) -> Result<()> {
    let cache = Cache::open();
    let folder = match cache.folder() {
        Ok(folder) => folder.display(),
        Err(why) => return print(format_args!("nothing is cached: {why}\n")),
    };
    match command {
        Command::List => {
            let entries = cache.entries();
            let lines = entries.iter().map(|entry| {
                let short = &entry.name[..entry.name.len().min(16)];
                format!("{short}  {:>10}  {:>4} ago\n", size(entry.bytes), age(entry.age))
            });
            let lines: String = lines.collect();
            let total = size(entries.iter().map(|entry| entry.bytes).sum());
            let (count, limit) = (entries.len(), size(cache.limit));
            print(format_args!("{lines}{count} objects, {total} of {limit}, in {folder}\n"))
        }
        Command::Clear => {
            let (count, bytes) = cache.clear();
            print(format_args!("{count} files removed, {}, from {folder}\n", size(bytes)))
        }
    }
}

fn size(bytes: u64) -> String {
    match bytes {
        0..1_024 => format!("{bytes} B"),
        1_024..1_048_576 => format!("{:.1} KiB", bytes as f64 / 1_024.0),
        _ => format!("{:.1} MiB", bytes as f64 / 1_048_576.0),
    }
}

fn age(age: Duration) -> String {
    match age.as_secs() {
        seconds @ 0..60 => format!("{seconds} s"),
        seconds @ 60..3_600 => format!("{} m", seconds / 60),
        seconds @ 3_600..86_400 => format!("{} h", seconds / 3_600),
        seconds => format!("{} d", seconds / 86_400),
    }
}
