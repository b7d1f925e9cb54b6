//! Computes tiles from packed panels of both operands, block by block.
//!
//! A task is a block of columns and a block of rows. The block of `y` stays in the second-level
//! cache. It is copied only if it is not the previous task's block. Panels of `x` are copied or
//! read one after the other.

use crate::builder::Builder;
use crate::code::{Binary, Cmp, Mem, Ty, V};
use crate::contract::amx::AmxTile;
use crate::contract::pack::{Copy, Gathered};
use crate::contract::plan::walk::{Results, Strips, TileRows, Walk};
use crate::contract::plan::{Layout, Plan, div_ceil};
use crate::contract::tile::{self, Columns, Panel, PrefetchShare, Tile};
use crate::contract::{Contraction, Epilogue, task};
use crate::loops::Loops;

pub fn emit(b: &mut Builder, c: &Contraction, plan: &Plan, epilogue: Epilogue) {
    let walk = Walk::new(b, c, plan);
    let panels = match plan.several_panels {
        true => {
            let (panels, one) = (task::block_count(b, c.k, plan.depth), b.index(1));
            b.binary(Binary::Max, panels, one)
        }
        false => b.index(1),
    };
    let none = b.index(-1);
    walk.each_task(b, &[none], |b, task, copied| {
        let batch = task.batch;
        let mut key = b.index(0);
        for (&digit, &extent) in batch.iter().chain([&task.block]).zip(&walk.extents) {
            let scaled = b.mul(key, extent);
            key = b.add(scaled, digit);
        }
        let col = task.results.first_column(b);
        let block = Block {
            c,
            plan,
            batch,
            x: task::start(b, &c.x, batch),
            y: task::start(b, &c.y, batch),
            task: task.results,
            strips: task.results.strips(b, col),
            key,
            panels,
            results: plan.scratch(b, plan.results_offset()),
        };
        let zero = b.index(0);
        match plan.several_panels {
            false => vec![block.panel(b, zero, copied[0], epilogue)],
            true if plan.panels > 1 => {
                b.each(zero, panels, 1, |b, panel| {
                    block.panel(b, panel, copied[0], epilogue);
                });
                vec![key]
            }
            true => b.repeat(zero, panels, 1, copied, |b, panel, copied| {
                vec![block.panel(b, panel, copied[0], epilogue)]
            }),
        }
    });
}

/// A task.
struct Block<'a> {
    c: &'a Contraction,
    plan: &'a Plan,
    batch: &'a [V],
    /// The offsets of the operands at this batch index.
    x: V,
    y: V,
    /// The results of the task, and their columns.
    task: Results<'a, V>,
    strips: Strips<V>,
    /// A unique number of the block of `y`.
    key: V,
    /// The number of panels along `k`.
    panels: V,
    results: Mem,
}

/// The rows of a tile, the number of them that are used, and their panel of `x`.
struct Band {
    rows: TileRows<V>,
    count: V,
    x: Panel,
}

/// The operands of the tiles of one panel.
struct Operands {
    panel: V,
    k: V,
    depth: V,
    y: Mem,
    x: Mem,
}

impl Block<'_> {
    /// Adds the products of one panel. Returns the key of the block of `y` that was copied last.
    fn panel(&self, b: &mut Builder, panel: V, copied: V, epilogue: Epilogue) -> V {
        let (c, plan) = (self.c, self.plan);
        let k = b.times(panel, plan.depth);
        let depth = match plan.several_panels {
            true => task::part_size(b, c.k, k, plan.depth),
            false => c.k,
        };
        let y = if c.packed { c.y.mem } else { plan.panel_scratch(b, plan.y_offset()) };
        let x = if plan.x_in_place { c.x.mem } else { plan.panel_scratch(b, plan.x_offset()) };
        let operands = Operands { panel, k, depth, y, x };
        let key = match plan.panels {
            1 => {
                let before = b.mul(self.key, self.panels);
                b.add(before, panel)
            }
            _ => self.key,
        };
        if !c.packed {
            let differs = b.compare(Cmp::Ne, key, copied);
            b.when(differs, |b| self.copy_y(b, &operands));
        }
        self.task.each_tile(b, |b, rows| {
            let count = rows.count(b);
            let x = self.x_panel(b, &operands, rows.row, count);
            let band = Band { rows, count, x };
            self.strips.each(b, |b, strip| {
                self.tile(b, &operands, &band, strip, &mut *epilogue);
            });
        });
        key
    }

    /// The index in scratch memory where the panel of `y` is stored.
    fn block_at(&self, b: &mut Builder, o: &Operands) -> V {
        match self.plan.panels {
            1 => b.index(0),
            _ => b.times(o.panel, self.plan.block_elements()),
        }
    }

    fn copy_y(&self, b: &mut Builder, o: &Operands) {
        let (c, plan) = (self.c, self.plan);
        let (across, along) = (b.mul(self.strips.first, c.y.outer), b.mul(o.k, c.y.k));
        let at = b.add(self.y, across);
        let from = Panel { mem: c.y.mem, at: b.add(at, along), outer: c.y.outer, k: c.y.k };
        let copy = Copy {
            plan,
            layout: c.y.layout(b),
            from,
            gathered: Gathered::of(b, &c.y, self.batch, [self.strips.first, o.k]),
            count: self.strips.columns(),
            whole: plan.whole_strips(b, c.n),
            depth: o.depth,
            lanes: plan.lanes,
            width: plan.strip(),
            strip_depth: plan.padded_depth(),
        };
        let to = self.block_at(b, o);
        copy.to_strips(b, (o.y, to));
    }

    fn x_panel(&self, b: &mut Builder, o: &Operands, row: V, count: V) -> Panel {
        let (c, plan) = (self.c, self.plan);
        let from = self.x_at(b, o, row);
        if plan.x_in_place {
            return from;
        }
        let (zero, one) = (b.index(0), b.index(1));
        let layout = c.x.layout(b);
        let copy = Copy {
            plan,
            layout,
            from,
            gathered: Gathered::of(b, &c.x, self.batch, [row, o.k]),
            count,
            whole: false,
            depth: o.depth,
            lanes: plan.register,
            width: plan.x_width(),
            strip_depth: 0,
        };
        if layout == Layout::AlongK || plan.amx {
            match layout {
                Layout::AlongK => copy.to_rows(b, plan.x_pitch(), (o.x, zero)),
                _ => copy.to_rows_transposed(b, plan.x_pitch(), (o.x, zero)),
            }
            return Panel { mem: o.x, at: zero, outer: b.index(plan.x_pitch()), k: one };
        }
        copy.to_strips(b, (o.x, zero));
        Panel { mem: o.x, at: zero, outer: b.index(plan.group), k: b.index(plan.x_width()) }
    }

    /// The unpacked panel of `x` from `row` on.
    fn x_at(&self, b: &mut Builder, o: &Operands, row: V) -> Panel {
        let x = &self.c.x;
        let (across, along) = (b.mul(row, x.outer), b.mul(o.k, x.k));
        let at = b.add(self.x, across);
        Panel { mem: x.mem, at: b.add(at, along), outer: x.outer, k: x.k }
    }

    /// The cache lines of the next panel of `x`, after the one at `row`, that a tile of this strip
    /// prefetches.
    fn prefetch_share(
        &self,
        b: &mut Builder,
        o: &Operands,
        (row, height): (V, u32),
        strip: V,
    ) -> PrefetchShare {
        let plan = self.plan;
        let width = b.index(plan.strip());
        let strip = b.div(strip, width);
        let strips = plan.task_columns() / plan.strip();
        let below = b.offset(row, height as i64);
        let panel = self.x_at(b, o, below);
        let along_k = b.constant(panel.k) == Some(1);
        let lines = if along_k { height as i64 } else { plan.line_elements() };
        let count = div_ceil(lines, strips);
        let step = if along_k { panel.outer } else { panel.k };
        let first = b.times(strip, count);
        let first = b.mul(first, step);
        PrefetchShare { panel: Panel { at: b.add(panel.at, first), ..panel }, step, count }
    }

    fn tile(&self, b: &mut Builder, o: &Operands, band: &Band, strip: V, epilogue: Epilogue) {
        let (c, plan) = (self.c, self.plan);
        let col = b.add(self.strips.first, strip);
        let at = match c.packed {
            true => {
                let depth = plan.round_up_depth(b, c.k);
                let (before, along) = (b.mul(col, depth), b.times(o.k, plan.strip()));
                let at = b.add(self.y, before);
                b.add(at, along)
            }
            false => {
                let (block, before) = (self.block_at(b, o), b.times(strip, plan.padded_depth()));
                b.add(block, before)
            }
        };
        let y = Panel { mem: o.y, at, outer: b.index(plan.group), k: b.index(plan.strip()) };
        let unmasked = vec![None; plan.vectors as usize];
        let &Band { rows: TileRows { row, height, .. }, count, x } = band;
        let prefetches = plan.prefetches_rows() && c.x.gather.is_none();
        let next = prefetches.then(|| self.prefetch_share(b, o, (row, height), strip));
        let stored = (self.results, self.stored_at(b, row, height, strip));
        if plan.amx {
            let resumes = plan.several_panels.then(|| self.has_earlier_sums(b, o));
            let tile = AmxTile { plan, x, y, next, stored, resumes };
            tile.sum(b, o.depth, (height, count));
        } else {
            let tile = Tile { plan, height, x, y, masks: &unmasked, next };
            let start = self.start(b, o, stored, (height * plan.vectors) as usize);
            let sums = tile.sum(b, o.depth, start);
            tile::store_sums(b, plan, stored, &sums);
        }
        let mut finish = |b: &mut Builder| {
            let columns = Columns::new(b, plan, col, c.n);
            tile::pass_stored_to_epilogue(
                b,
                plan,
                stored,
                (self.batch, row, count),
                &columns,
                epilogue,
            );
        };
        if !plan.several_panels {
            return finish(b);
        }
        let next_panel = b.offset(o.panel, 1);
        let last = b.compare(Cmp::Ge, next_panel, self.panels);
        b.when(last, finish);
    }

    /// The index at which the sums of a tile are stored. If `k` fits one panel, all tiles use the
    /// same memory.
    fn stored_at(&self, b: &mut Builder, row: V, height: u32, strip: V) -> V {
        let zero = b.index(0);
        if !self.plan.several_panels {
            return zero;
        }
        let first = self.task.first_row(b);
        let above = b.sub(row, first);
        let above = b.times(above, self.plan.task_columns());
        let before = b.times(strip, height as i64);
        let at = b.add(above, before);
        let one = b.index(1);
        let single = b.compare(Cmp::Le, self.panels, one);
        b.select(single, zero, at)
    }

    /// Whether the sums of earlier panels must be loaded.
    fn has_earlier_sums(&self, b: &mut Builder, o: &Operands) -> V {
        let none = b.index(0);
        b.compare(Cmp::Ne, o.panel, none)
    }

    fn start(&self, b: &mut Builder, o: &Operands, stored: (Mem, V), count: usize) -> Vec<V> {
        let plan = self.plan;
        let zero = b.number(Ty::vector(plan.work, plan.lanes), 0.0);
        let zeros = vec![zero; count];
        if !plan.several_panels {
            return zeros;
        }
        // The mask is all false for the first panel, which has no earlier sums.
        let resumes = self.has_earlier_sums(b, o);
        let mask = b.splat(resumes, plan.lanes);
        tile::load_sums(b, plan, stored, count, Some(mask))
    }
}
