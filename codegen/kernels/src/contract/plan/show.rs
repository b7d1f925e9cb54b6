//! Prints a plan: the code paths that it selects, without the sizes of blocks.

use std::fmt::{self, Display, Formatter};

use super::{Plan, Rows, Scheme};

impl Display for Plan {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        let scheme = match self.scheme {
            Scheme::Direct => "direct",
            Scheme::Panels => "panels",
            Scheme::Sweep { .. } => "sweep",
            Scheme::Dots => "dots",
        };
        write!(f, "{scheme}")?;
        let several = self.task_columns() > self.strip();
        for (is, what) in [
            (self.swapped, "swapped"),
            (self.amx, "squares"),
            (self.group > 1, "pairs"),
            (self.several_panels && self.panels == 1, "deep, one panel"),
            (self.several_panels && self.panels > 1, "deep, all panels"),
            (self.scheme == Scheme::Panels && self.x_in_place, "x in place"),
            (self.scheme == Scheme::Panels && self.prefetches_rows(), "rows ahead"),
            (several, "blocks of strips"),
        ] {
            if is {
                write!(f, ", {what}")?;
            }
        }
        write!(f, "; {} x {}x{}", self.rows, self.vectors, self.lanes)
    }
}

impl Display for Rows {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        match self {
            Rows::Balanced { height, tall, tiles } => {
                let low = tiles - tall;
                let of = |height: u32, tiles: i64| match tiles {
                    0 => String::new(),
                    1 => format!("{height}"),
                    _ => format!("{height}.."),
                };
                let both = if low > 0 && *tall > 0 { "+" } else { "" };
                write!(f, "{}{both}{}", of(*height, *tall), of(height - 1, low))
            }
            Rows::Greedy(heights) => {
                let heights: Vec<String> = heights.iter().map(u32::to_string).collect();
                write!(f, "[{}]", heights.join(","))
            }
            Rows::Steps(height) => write!(f, "<={height}"),
        }
    }
}
