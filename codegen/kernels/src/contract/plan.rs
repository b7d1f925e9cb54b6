//! Chooses the sizes of a contraction's tiles, blocks and tasks from its shape alone.

mod scratch;
mod show;
pub(super) mod walk;

use mithril_ir::dtype::DType;

use crate::builder::Builder;
use crate::code::{TILE_BYTES, TILE_ROWS, V};
use crate::contract::task;
use crate::isa::Isa;

/// The axis along which an operand is contiguous.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Layout {
    AlongK,
    AlongOuter,
    Strided,
    /// Elements are gathered: see [`Gather`](super::gather::Gather).
    Gathered,
    /// Packed by [`pack`](super::pack).
    Packed,
}

/// The properties of a contraction that are known when code is generated.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Shape {
    pub dtype: DType,
    pub acc: DType,
    pub m: Option<i64>,
    pub n: Option<i64>,
    pub k: Option<i64>,
    pub x: Layout,
    /// The stride between rows of `x`, in elements.
    pub x_stride: Option<i64>,
    pub y: Layout,
}

/// The loop structure of a contraction.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Scheme {
    /// Computes tiles directly from both operands.
    Direct,
    /// Computes tiles from panels of both operands, copied to scratch memory.
    Panels,
    /// Reads rows of `y` from end to end. Used for few rows of `x`; `rows` is their number. The
    /// sums of all of them stay in the cache while `y` is read.
    Sweep { rows: i64 },
    /// Computes dot products. Used for few rows of `x` if both operands are contiguous along `k`.
    Dots,
}

/// How the rows are divided among tiles.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Rows {
    /// `tiles` tiles: the first `tall` have `height` rows, the others one row less.
    Balanced { height: u32, tall: i64, tiles: i64 },
    /// As many tiles as fit of the first height, then of the next. The heights descend; the last is
    /// 1.
    Greedy(Vec<u32>),
    /// Tiles of this many rows. The last tile may have fewer.
    Steps(u32),
}

/// The sizes of a contraction.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Plan {
    pub scheme: Scheme,
    /// Whether the results are computed as `yᵀ·xᵀ`, which is so if `y` has one column.
    pub swapped: bool,
    /// The dtypes of the sums and of the results.
    pub work: DType,
    pub acc: DType,
    pub fma: bool,
    /// The dtype of panels, and the number of neighbours along `k` that they store next to each
    /// other.
    pub panel_dtype: DType,
    pub group: i64,
    /// The number of steps of `k` that are multiplied at once.
    pub unit: i64,
    /// Whether the sums are in AMX tiles.
    pub amx: bool,
    /// The tile: lanes per vector, vectors per row, and the division of rows among tiles.
    pub lanes: u32,
    pub vectors: u32,
    rows: Rows,
    /// The lanes of a full register.
    pub register: u32,
    /// The number of tiles of rows and the number of columns in a task, and the number of steps of
    /// `k` in a panel.
    block_tiles: i64,
    block_cols: i64,
    pub depth: i64,
    /// Whether `k` may need several panels.
    pub several_panels: bool,
    /// The number of panels of a block of `y` that are stored: all of them, or one.
    pub panels: i64,
    /// Whether `x` is read without packing.
    pub x_in_place: bool,
}

/// The maximum size of a block of `y` in bytes: about half of a second-level cache.
const Y_BLOCK_BYTES: i64 = 512 << 10;
/// The depth of a panel in bytes along `k`, if there are several panels, and if there is a single
/// one. With these depths, the rows of `x` of a tile stay in the first-level cache.
const PANEL_BYTES: i64 = 2048;
const SINGLE_PANEL_BYTES: i64 = 3072;
/// The size of `y` in bytes above which `Scheme::Sweep` reads it row by row, and the bytes of sums
/// that this scheme keeps in the cache.
const SWEEP_BYTES: i64 = 256 << 10;
const SWEEP_SUM_BYTES: i64 = 8 << 10;
/// The depth of a panel for AMX tiles in bytes along `k`, and the maximum number of columns of its
/// block. AMX multiplies so fast that the cost of copying `x` matters, so blocks are wider.
const AMX_PANEL_BYTES: i64 = 1024;
const AMX_COLUMNS: i64 = 512;
/// The bytes of rows of `x` that fit the first-level cache next to the other data.
const L1_BYTES: i64 = 28 << 10;
const MAX_TILE_ROWS: u32 = 24;
const MAX_COLUMNS: i64 = 256;
const MAX_TASK_TILES: i64 = 16;
/// The minimum number of multiplications of a task: about 20 µs of work.
const TASK_PRODUCTS: i64 = 1 << 20;
/// The maximum number of panels of a block of `y` that are all stored for the following rows.
const MAX_STORED_PANELS: i64 = 8;
/// The desired number of tasks for two threads (`PIECES`), and the minimum number that balances
/// their load (`SHARES`). `SWEEP_SHARES` is smaller, because `Scheme::Sweep` is faster on long
/// rows.
const PIECES: i64 = 8;
const SHARES: i64 = 4;
const SWEEP_SHARES: i64 = 2;
/// The assumed number of rows if it is unknown.
const ASSUMED_ROWS: i64 = 1000;

/// Chooses the sizes for a shape.
pub fn plan(shape: &Shape, isa: &Isa) -> Plan {
    if shape.n == Some(1) && shape.m != Some(1) && shape.y != Layout::Packed {
        let swapped =
            Shape { m: shape.n, n: shape.m, x: shape.y, x_stride: None, y: shape.x, ..*shape };
        return Plan { swapped: true, ..plan(&swapped, isa) };
    }
    let work = work_dtype(shape.dtype, shape.acc);
    let register = isa.bytes / work.bytes() as u32;
    let scheme = choose_scheme(shape, work);
    let (panel_dtype, group, unit) = match scheme {
        Scheme::Panels => panel_layout(shape, work, isa),
        _ => (work, 1, 1),
    };
    let amx = group > 1 && isa.extensions.amx;
    let (lanes, vectors) = match scheme {
        // A tile has two AMX blocks side by side if there are enough columns.
        _ if amx => (register, if shape.n.is_some_and(|n| n <= TILE_ROWS) { 1 } else { 2 }),
        Scheme::Dots => (dot_lanes(shape, register), 1),
        Scheme::Sweep { .. } => (register, 2),
        _ => {
            let (lanes, vectors) = tile_width(shape, isa, register);
            // The instructions for pairs need at least 4 lanes.
            (if group > 1 { lanes.max(4) } else { lanes }, vectors)
        }
    };
    let rows = match shape.m {
        Some(..=TILE_ROWS) if amx => Rows::Steps(TILE_ROWS as u32),
        _ if amx => Rows::Steps(2 * TILE_ROWS as u32),
        _ => divide_rows(shape.m, max_tile_rows(scheme, vectors, isa.registers)),
    };
    let mut plan = Plan {
        scheme,
        swapped: false,
        work,
        acc: shape.acc,
        fma: isa.fma && work.is_float(),
        panel_dtype,
        group,
        unit,
        amx,
        lanes,
        vectors,
        rows,
        register,
        block_tiles: 1,
        block_cols: (lanes * vectors) as i64,
        depth: 0,
        several_panels: false,
        panels: 1,
        x_in_place: true,
    };
    match scheme {
        Scheme::Panels => plan.block(shape),
        Scheme::Sweep { rows } => plan.sweep(shape, rows),
        Scheme::Direct | Scheme::Dots => return plan,
    }
    plan.narrow_blocks(shape);
    plan
}

/// Returns the dtype of panels, the number of neighbours along `k` that they store next to each
/// other, and the number of steps of `k` that one instruction multiplies.
fn panel_layout(shape: &Shape, work: DType, isa: &Isa) -> (DType, i64, i64) {
    match (shape.dtype, work) {
        (DType::BF16, DType::F32) if isa.extensions.amx => (DType::BF16, 2, TILE_BYTES / 2),
        (DType::BF16, DType::F32) if isa.extensions.pairs => (DType::BF16, 2, 2),
        _ => (work, 1, 1),
    }
}

/// The dtype of the arithmetic. 8-bit integers are computed in 16 bits, because processors have no
/// 8-bit multiplications. The results wrap to the same values.
fn work_dtype(dtype: DType, acc: DType) -> DType {
    match acc {
        _ if acc.is_float() && (dtype == DType::F64 || acc == DType::F64) => DType::F64,
        _ if acc.is_float() => DType::F32,
        DType::I8 | DType::U8 => DType::I16,
        _ => acc,
    }
}

fn choose_scheme(shape: &Shape, work: DType) -> Scheme {
    let Some(m) = shape.m.filter(|_| shape.x != Layout::Gathered) else {
        return Scheme::Panels;
    };
    if m <= 4 && shape.y == Layout::AlongK && shape.x == Layout::AlongK {
        return Scheme::Dots;
    }
    let small = products(shape).is_some_and(|products| products <= 32 * 32 * 32);
    // Packing pays if there is more than one tile of rows. It pays earlier if elements must be
    // converted, because unpacked elements of `x` are converted one at a time.
    let few = if work == shape.dtype { 14 } else { 4 };
    if shape.y != Layout::AlongOuter || (m > few && !small) {
        return Scheme::Panels;
    }
    let large = |n: i64, k: i64| n * k * work.bytes() as i64 > SWEEP_BYTES;
    match (shape.n, shape.k) {
        (Some(n), Some(k)) if !large(n, k) => Scheme::Direct,
        _ if (1..=few.min(8)).contains(&m) => Scheme::Sweep { rows: m },
        _ if m == 0 => Scheme::Direct,
        _ => Scheme::Panels,
    }
}

/// The number of multiplications, or `None` if a size is unknown.
fn products(shape: &Shape) -> Option<i64> {
    Some(shape.m?.saturating_mul(shape.n?).saturating_mul(shape.k?))
}

/// The number of dot products that are accumulated together, which is the number of lanes of result
/// vectors.
fn dot_lanes(shape: &Shape, register: u32) -> u32 {
    let max = match shape.m {
        Some(..=1) => 16,
        Some(..=3) => 8,
        _ => 4,
    };
    let columns = shape.n.map_or(max, |n| (n.clamp(1, 64) as u32).next_power_of_two());
    max.min(columns).min(register)
}

/// Chooses the lanes per vector and vectors per row of a tile: those with the lowest cost for all
/// columns. A packed `y` serves kernels with any number of rows, so the number of rows is then
/// ignored.
fn tile_width(shape: &Shape, isa: &Isa, register: u32) -> (u32, u32) {
    let m = if shape.y == Layout::Packed { None } else { shape.m };
    let Some(n) = shape.n.map(|n| n.max(1)) else {
        return (register, 2);
    };
    if n <= register as i64 && m != Some(1) {
        return ((n.max(2) as u32).next_power_of_two(), 1);
    }
    if let Some(m @ 1..=4) = m {
        let max = (isa.registers / 2) as i64 / m;
        return (register, max.min(div_ceil(n, register as i64)) as u32);
    }
    let bytes = isa.bytes as i64 / register as i64;
    let cost = |vectors: u32| -> i64 {
        let height = max_tile_rows(Scheme::Panels, vectors, isa.registers) as i64;
        let v = vectors as i64;
        let rows = m.map_or(ASSUMED_ROWS, |m| m.max(1));
        let tiles = div_ceil(rows, height);
        let strips = div_ceil(n, v * register as i64);
        // The cost model: a processor issues two multiplications or two loads per cycle. Loads of
        // `y` come from the second-level cache, and so do loads of `x` if its rows are too long for
        // the first level.
        let far_loads = match shape.k {
            Some(k) if k * bytes <= SINGLE_PANEL_BYTES && height * k * bytes > L1_BYTES => rows * v,
            _ => 0,
        };
        strips * (20 * (rows * v).max(rows + tiles * v) + 6 * tiles * v + 2 * far_loads)
    };
    let max = if isa.registers >= 32 { 5 } else { 3 };
    let vectors = [2, 3, 4, 5, 1].into_iter().filter(|&v| v <= max).min_by_key(|&v| cost(v));
    (register, vectors.expect("the list is not empty"))
}

/// The maximum number of rows of a tile whose sums fit the registers together with a row of `y` and
/// an element of `x`.
fn max_tile_rows(scheme: Scheme, vectors: u32, registers: u32) -> u32 {
    match scheme {
        Scheme::Dots => 4,
        _ => ((registers - vectors - 1) / vectors).clamp(1, MAX_TILE_ROWS),
    }
}

fn divide_rows(m: Option<i64>, tallest: u32) -> Rows {
    match m {
        Some(m) if m > 0 => {
            let tiles = div_ceil(m, tallest as i64);
            let height = div_ceil(m, tiles);
            Rows::Balanced { height: height as u32, tall: m - tiles * (height - 1), tiles }
        }
        _ if tallest > 4 => Rows::Greedy(vec![tallest, 4, 1]),
        _ => Rows::Greedy(vec![tallest, 1]),
    }
}

impl Plan {
    /// The number of columns of a tile.
    pub fn strip(&self) -> i64 {
        (self.lanes * self.vectors) as i64
    }

    /// Whether the last strip of `n` columns is known to be full.
    pub(super) fn whole_strips(&self, b: &Builder, n: V) -> bool {
        b.constant(n).is_some_and(|n| n % self.strip() == 0)
    }

    /// Whether prefetching the next rows of `x` pays.
    pub(super) fn prefetches_rows(&self) -> bool {
        !matches!(self.rows, Rows::Balanced { tiles: ..=4, .. })
    }

    /// The number of elements of a panel in a cache line.
    pub(super) fn line_elements(&self) -> i64 {
        64 / self.panel_dtype.bytes() as i64
    }

    /// The number of elements of a panel in a vector register.
    pub(super) fn register_elements(&self) -> i64 {
        self.register as i64 * self.group
    }

    /// Rounds a number of steps of `k` up to a multiple of the unit.
    pub(super) fn round_up_depth(&self, b: &mut Builder, k: V) -> V {
        match self.unit {
            1 => k,
            unit => {
                let units = task::block_count(b, k, unit);
                b.times(units, unit)
            }
        }
    }

    /// The allocated elements per column of a strip. It includes a row of padding, because strips
    /// at power-of-two distances would compete for the same cache sets.
    pub(super) fn padded_depth(&self) -> i64 {
        self.depth + self.group
    }

    /// The number of rows of the tallest tile.
    fn height(&self) -> i64 {
        match &self.rows {
            Rows::Balanced { height, .. } | Rows::Steps(height) => *height as i64,
            Rows::Greedy(heights) => heights[0] as i64,
        }
    }

    fn sweep(&mut self, shape: &Shape, rows: i64) {
        let max = SWEEP_SUM_BYTES / (self.work.bytes() as i64 * rows);
        let max = max.max(self.strip()) / self.strip() * self.strip();
        self.block_cols = shape.n.map_or(max, |n| even_size(n, max, self.strip()));
    }

    fn block(&mut self, shape: &Shape) {
        let bytes = self.panel_dtype.bytes() as i64;
        let (single, several, max_columns) = match self.amx {
            true => (AMX_PANEL_BYTES, AMX_PANEL_BYTES, AMX_COLUMNS),
            false => (SINGLE_PANEL_BYTES, PANEL_BYTES, MAX_COLUMNS),
        };
        self.depth = several / bytes;
        match shape.k {
            Some(k) if k * bytes <= single => self.depth = round_up(k.max(1), self.unit),
            Some(k) => {
                self.depth = even_size(k, self.depth, self.line_elements());
                let panels = div_ceil(k, self.depth);
                self.several_panels = true;
                self.panels = if panels <= MAX_STORED_PANELS { panels } else { 1 };
            }
            None => self.several_panels = true,
        }
        // Rows whose stride is a multiple of 2048 bytes map to the same cache sets and evict each
        // other.
        let stride = shape.x_stride.map(|s| s * bytes);
        self.x_in_place = shape.dtype == self.panel_dtype
            && shape.x == Layout::AlongK
            && (self.unit == 1 || shape.k.is_some_and(|k| k % self.unit == 0))
            && (!self.amx || shape.m.is_some_and(|m| m % TILE_ROWS == 0))
            && stride.is_some_and(|bytes| bytes % 2048 != 0);
        let max = (Y_BLOCK_BYTES / (self.depth * bytes)).min(max_columns).max(self.strip());
        // A thread copies the block of `y` again for each piece of work that it takes. If each
        // piece has its own block, nothing is copied twice.
        let one_block_each = !self.several_panels && self.x_in_place && shape.y != Layout::Packed;
        let max = match shape.n {
            Some(n) if one_block_each => max.min((n / PIECES).max(self.strip())),
            _ => max,
        };
        let max = max / self.strip() * self.strip();
        self.block_cols = shape.n.map_or(max, |n| even_size(n, max, self.strip()));
        // With several panels, a task reads all of them, so it should have many tiles to use them.
        let max = match self.several_panels {
            false => TASK_PRODUCTS / (self.height() * self.block_cols * self.depth).max(1),
            true => MAX_TASK_TILES,
        };
        let max = max.clamp(1, MAX_TASK_TILES);
        self.block_tiles = match self.rows {
            Rows::Balanced { tiles, .. } => even_size(tiles, max, 1),
            Rows::Greedy(_) | Rows::Steps(_) => {
                shape.m.map_or(max, |m| even_size(div_ceil(m.max(1), self.height()), max, 1))
            }
        };
    }

    /// Makes the blocks of columns narrower if there would be too few tasks for the threads.
    fn narrow_blocks(&mut self, shape: &Shape) {
        let (Some(m), Some(n), Some(products)) = (shape.m, shape.n, products(shape)) else {
            return;
        };
        let rows = div_ceil(div_ceil(m.max(1), self.height()), self.block_tiles);
        let is_sweep = matches!(self.scheme, Scheme::Sweep { .. });
        let max = if is_sweep { SWEEP_SHARES } else { SHARES };
        let columns = div_ceil((products / TASK_PRODUCTS).clamp(1, max), rows);
        if div_ceil(n.max(1), self.block_cols) < columns {
            let max = (n / columns / self.strip() * self.strip()).max(self.strip());
            self.block_cols = even_size(n, max, self.strip());
        }
    }
}

/// Divides `whole` into nearly equal parts, and returns their size: at most `max`, and a multiple
/// of `unit`.
fn even_size(whole: i64, max: i64, unit: i64) -> i64 {
    let parts = (whole.max(1) as u64).div_ceil(max as u64);
    let units = (whole.max(1) as u64).div_ceil(unit as u64);
    units.div_ceil(parts) as i64 * unit
}

/// Divides and rounds up.
pub(super) fn div_ceil(whole: i64, size: i64) -> i64 {
    (whole as u64).div_ceil(size as u64) as i64
}

/// Rounds up to a multiple of `unit`.
fn round_up(size: i64, unit: i64) -> i64 {
    div_ceil(size, unit) * unit
}
