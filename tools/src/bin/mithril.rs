//! `mithril`: compile, run, import, explain, compare and time models from the command line.

use clap::Parser;

/// Write a model once, run it on any backend.
#[derive(Parser)]
#[command(name = "mithril", version = mithril::VERSION, arg_required_else_help = true)]
struct Options {}

fn main() {
    Options::parse();
}
