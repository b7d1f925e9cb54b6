//! `mithril-opt`: run passes over a `.mir` file and print the result.

use clap::Parser;

/// Run passes over Mithril IR.
#[derive(Parser)]
#[command(name = "mithril-opt", version = mithril::VERSION, arg_required_else_help = true)]
struct Options {}

fn main() {
    Options::parse();
}
