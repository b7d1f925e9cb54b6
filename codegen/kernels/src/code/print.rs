//! Prints loop code as text that [`parse`](super::parse) reads back.
//!
//! ```text
//! kernel buffers 2 dims 1 {
//!   memory %m0 = buffer 0 : f32 readonly
//!   memory %m1 = buffer 1 : f32
//!   %0 = first : i64
//!   %1 = last : i64
//!   %2 = const 1 : i64
//!   for %3 = %0 to %1 step %2 {
//!     %4 = load %m0[%3] : f32
//!     %5 = mul %4, %4 : f32
//!     store %m1[%3], %5
//!   }
//! }
//! ```

use std::fmt::{self, Display, Write};

use mithril_ir::dtype::DType;
use mithril_ir::scalar::round;

use super::{Code, Inst, Mem, Memory, Place, Region, Stmt, TileOp, Ty, V};

impl Display for Ty {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(self.dtype.name())?;
        if self.lanes == 1 { Ok(()) } else { write!(f, "x{}", self.lanes) }
    }
}

impl Display for V {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "%{}", self.0)
    }
}

impl Display for Mem {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "%m{}", self.0)
    }
}

impl Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self.place {
            Place::Buffer(n) => write!(f, "buffer {n}"),
            Place::Scratch(offset) => write!(f, "scratch {offset}"),
            Place::Local(count) => write!(f, "local {count}"),
        }?;
        write!(f, " : {}", self.dtype.name())?;
        f.write_str(if self.constant { " readonly" } else { "" })
    }
}

impl Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "kernel buffers {} dims {}", self.buffers, self.dims)?;
        for (is, word) in [(self.streams, " streams"), (self.tiles, " tiles")] {
            f.write_str(if is { word } else { "" })?;
        }
        writeln!(f, " {{")?;
        for (at, memory) in self.memories.iter().enumerate() {
            writeln!(f, "  memory {} = {memory}", Mem(at as u32))?;
        }
        let mut text = Text { code: self, text: String::new() };
        for (at, function) in self.functions.iter().enumerate() {
            text.function(at, function);
        }
        text.block(2, &self.body);
        writeln!(f, "{}}}", text.text)
    }
}

/// Prints a statement without the contents of its regions, for error messages.
pub fn line(code: &Code, stmt: &Stmt) -> String {
    let mut text = Text { code, text: String::new() };
    match &stmt.inst {
        Inst::For { from, to, step, carried, region } => {
            text.loop_head(&stmt.results, [*from, *to, *step], carried, region);
        }
        Inst::If { condition, .. } => text.put(format_args!("if {condition}")),
        _ => text.statement(0, stmt),
    }
    text.text.trim_end().to_string()
}

struct Text<'a> {
    code: &'a Code,
    text: String,
}

impl Text<'_> {
    fn put(&mut self, text: impl Display) {
        // Writing to a string does not fail.
        let _ = write!(self.text, "{text}");
    }

    fn indent(&mut self, indent: usize) {
        self.text.extend(std::iter::repeat_n(' ', indent));
    }

    fn list(&self, values: &[V]) -> String {
        values.iter().map(V::to_string).collect::<Vec<_>>().join(", ")
    }

    fn types(&self, values: &[V]) -> String {
        values.iter().map(|&v| self.code.ty(v).to_string()).collect::<Vec<_>>().join(", ")
    }

    fn function(&mut self, number: usize, function: &Region) {
        let param = |&v: &V| format!("{v}: {}", self.code.ty(v));
        let params: Vec<String> = function.params.iter().map(param).collect();
        let head = format!("  function @{number}({}) {{\n", params.join(", "));
        self.put(head);
        self.region(4, function);
        self.put("  }\n");
    }

    fn block(&mut self, indent: usize, body: &[Stmt]) {
        for stmt in body {
            self.indent(indent);
            self.statement(indent, stmt);
        }
    }

    fn region(&mut self, indent: usize, region: &Region) {
        self.block(indent, &region.body);
        if !region.yields.is_empty() {
            self.indent(indent);
            self.put(format_args!("yield {}\n", self.list(&region.yields)));
        }
    }

    fn statement(&mut self, indent: usize, stmt: &Stmt) {
        match &stmt.inst {
            Inst::For { from, to, step, carried, region } => {
                self.loop_head(&stmt.results, [*from, *to, *step], carried, region);
                self.put(" {\n");
                self.region(indent + 2, region);
            }
            Inst::If { condition, yes, no } => {
                self.results(&stmt.results);
                self.put(format_args!("if {condition}"));
                self.result_types(&stmt.results);
                self.put(" {\n");
                self.region(indent + 2, yes);
                if !no.body.is_empty() || !no.yields.is_empty() {
                    self.indent(indent);
                    self.put("} else {\n");
                    self.region(indent + 2, no);
                }
            }
            inst => {
                self.results(&stmt.results);
                self.inst(stmt, inst);
                self.result_types(&stmt.results);
                return self.put("\n");
            }
        }
        self.indent(indent);
        self.put("}\n");
    }

    fn results(&mut self, results: &[V]) {
        if !results.is_empty() {
            self.put(format_args!("{} = ", self.list(results)));
        }
    }

    fn result_types(&mut self, results: &[V]) {
        if !results.is_empty() {
            self.put(format_args!(" : {}", self.types(results)));
        }
    }

    fn loop_head(&mut self, results: &[V], bounds: [V; 3], carried: &[V], region: &Region) {
        self.results(results);
        let (counter, inner) = region.params.split_first().expect("a counter");
        let [from, to, step] = bounds;
        self.put(format_args!("for {counter} = {from} to {to} step {step}"));
        if !carried.is_empty() {
            let pairs =
                inner.iter().zip(carried).map(|(inner, first)| format!("{inner} = {first}"));
            self.put(format_args!(" carry {}", pairs.collect::<Vec<_>>().join(", ")));
        }
        self.result_types(results);
    }

    fn inst(&mut self, stmt: &Stmt, inst: &Inst) {
        let masked = |mask: &Option<V>| mask.map_or(String::new(), |mask| format!(" mask {mask}"));
        match inst {
            Inst::Const(bits) => {
                let literal = literal(self.code.ty(stmt.results[0]).dtype, *bits);
                self.put(format_args!("const {literal}"));
            }
            Inst::Iota => self.put("iota"),
            Inst::Dim(n) => self.put(format_args!("dim {n}")),
            Inst::First => self.put("first"),
            Inst::Last => self.put("last"),
            Inst::Unary(op, x) => self.put(format_args!("{} {x}", op.word())),
            Inst::Binary(op, x, y) => self.put(format_args!("{} {x}, {y}", op.word())),
            Inst::Fma(x, y, z) => self.put(format_args!("fma {x}, {y}, {z}")),
            Inst::MulAdd(x, y, z) => self.put(format_args!("mul_add {x}, {y}, {z}")),
            Inst::Call(own, args) => {
                self.put(format_args!("call {}({})", own.word(), self.list(args)));
            }
            Inst::CallPrivate(number, args) => {
                self.put(format_args!("call @{number}({})", self.list(args)));
            }
            Inst::Scale(x, n) => self.put(format_args!("scale {x}, {n}")),
            Inst::DotPairs(x, y, sum) => self.put(format_args!("dot_pairs {x}, {y}, {sum}")),
            Inst::Compare(op, x, y) => {
                self.put(format_args!("compare {} {x}, {y}", op.word()));
            }
            Inst::Select(c, x, y) => self.put(format_args!("select {c}, {x}, {y}")),
            Inst::Convert(x) => self.put(format_args!("convert {x}")),
            Inst::Bitcast(x) => self.put(format_args!("bitcast {x}")),
            Inst::Splat(x) => self.put(format_args!("splat {x}")),
            Inst::Extract(x, lane) => self.put(format_args!("extract {x} [{lane}]")),
            Inst::Shuffle(x, y, lanes) => {
                let lanes: Vec<String> = lanes.iter().map(u32::to_string).collect();
                self.put(format_args!("shuffle {x}, {y} [{}]", lanes.join(", ")));
            }
            Inst::Fold(fold, x) => self.put(format_args!("fold {} {x}", fold.word())),
            Inst::Load { mem, at, mask } => {
                self.put(format_args!("load {mem}[{at}]{}", masked(mask)));
            }
            Inst::Gather { mem, at, mask } => {
                self.put(format_args!("gather {mem}[{at}]{}", masked(mask)));
            }
            Inst::Store { mem, at, value, mask, streaming } => {
                let past = if *streaming { " streaming" } else { "" };
                self.put(format_args!("store {mem}[{at}], {value}{}{past}", masked(mask)));
            }
            Inst::Scatter { mem, at, value, mask } => {
                self.put(format_args!("scatter {mem}[{at}], {value}{}", masked(mask)));
            }
            Inst::Prefetch { mem, at, write } => {
                let what = if *write { "write" } else { "read" };
                self.put(format_args!("prefetch {mem}[{at}] {what}"));
            }
            Inst::Tile(op) => self.tile(*op),
            Inst::For { .. } | Inst::If { .. } => {}
        }
    }

    fn tile(&mut self, op: TileOp) {
        match op {
            TileOp::Zero(tile) => self.put(format_args!("tile_zero {tile}")),
            TileOp::Load { tile, mem, at, stride } => {
                self.put(format_args!("tile_load {tile}, {mem}[{at}] stride {stride}"));
            }
            TileOp::Store { tile, mem, at, stride } => {
                self.put(format_args!("tile_store {tile}, {mem}[{at}] stride {stride}"));
            }
            TileOp::Dot { sum, x, y } => self.put(format_args!("tile_dot {sum}, {x}, {y}")),
        }
    }
}

/// Prints a constant as a decimal number, or as bits if no decimal represents it exactly.
fn literal(dtype: DType, bits: u64) -> String {
    if dtype == DType::Bool {
        return (bits & 1 != 0).to_string();
    }
    if dtype.is_float() {
        let number = round::decode(dtype, bits);
        let same = number.is_finite() && round::encode(dtype, number) == bits;
        return if same { format!("{number:?}") } else { format!("0x{bits:x}") };
    }
    let unused = 64 - dtype.bits();
    match dtype.is_signed_int() {
        true => (((bits << unused) as i64) >> unused).to_string(),
        false => (bits << unused >> unused).to_string(),
    }
}
