//! Prints loop code as an MLIR module in the dialects arith, scf, vector and llvm.
//!
//! The module has one public function, `kernel(scratch, buffers, dims, first, last)`, which the
//! runtime calls. The loops are in a separate function whose pointer parameters are `noalias`.

mod memory;
mod tiles;
mod words;

use std::fmt::Write;

use mithril_ir::dtype::DType;

use crate::code::{Binary, Cmp, Code, Fold, Inst, Mem, Region, Stmt, Ty, Unary, V};
use words::{Mlir, comparison, constant, folding, is_signed};

/// Prints the module.
pub fn print(code: &Code) -> String {
    let mut printer = Printer { code, text: String::new(), names: Vec::new(), fresh: 0 };
    printer.names.resize(code.types.len(), None);
    printer.module();
    printer.text
}

struct Printer<'a> {
    code: &'a Code,
    text: String,
    /// The names of values that are not `%` followed by their number.
    names: Vec<Option<Box<str>>>,
    fresh: u32,
}

macro_rules! line {
    ($printer:expr, $($arg:tt)*) => {{
        // Writing to a string does not fail.
        let _ = writeln!($printer.text, $($arg)*);
    }};
}
use line;

impl Printer<'_> {
    fn module(&mut self) {
        if self.code.tiles {
            self.tile_sizes();
        }
        let buffers: Vec<String> = (0..self.code.buffers).map(|i| format!("%b{i}")).collect();
        let dims: Vec<String> = (0..self.code.dims).map(|i| format!("%d{i}")).collect();
        let each = |names: &[String], ty: &str| -> String {
            names.iter().map(|n| format!("{n}: {ty}, ")).collect()
        };
        for (i, function) in self.code.functions.iter().enumerate() {
            self.function(i, function);
        }
        line!(
            self,
            "func.func private @body({}{}%scratch: !llvm.ptr {{llvm.noalias}}, %first: i64, \
             %last: i64) attributes {{llvm.linkage = #llvm.linkage<internal>, passthrough = \
             [\"alwaysinline\", [\"reciprocal-estimates\", \"vec-divf:1\"]]}} {{",
            each(&buffers, "!llvm.ptr {llvm.noalias}"),
            each(&dims, "i64"),
        );
        if self.code.tiles {
            self.configure_tiles();
        }
        self.block(&self.code.body);
        if self.code.tiles {
            self.release_tiles();
        }
        if self.code.streams {
            line!(self, "llvm.call_intrinsic \"llvm.x86.sse.sfence\"() : () -> ()");
        }
        line!(self, "return\n}}");
        // Aligns the stack for spilled vectors, which LLVM does not do by default. Without it,
        // vectors that crossed cache lines and pages made kernels up to 2.4 times slower, depending
        // on the caller's stack pointer.
        line!(
            self,
            "func.func @kernel(%scratch: !llvm.ptr, %buffers: !llvm.ptr, %dims: !llvm.ptr, \
             %first: i64, %last: i64) attributes {{passthrough = [\"nounwind\", \
             [\"alignstack\", \"64\"], [\"reciprocal-estimates\", \"vec-divf:1\"]]}} {{"
        );
        for (names, array, ty) in [(&buffers, "%buffers", "!llvm.ptr"), (&dims, "%dims", "i64")] {
            for (i, name) in names.iter().enumerate() {
                line!(
                    self,
                    "{name}p = llvm.getelementptr {array}[{i}] : (!llvm.ptr) -> !llvm.ptr, i64"
                );
                line!(self, "{name} = llvm.load {name}p : !llvm.ptr -> {ty}");
            }
        }
        let arguments: String =
            buffers.iter().chain(&dims).map(|name| format!("{name}, ")).collect();
        let count = |n: usize, ty: &str| format!("{ty}, ").repeat(n);
        line!(
            self,
            "call @body({arguments}%scratch, %first, %last) : ({}{}!llvm.ptr, i64, i64) -> ()",
            count(buffers.len(), "!llvm.ptr"),
            count(dims.len(), "i64"),
        );
        line!(self, "return\n}}");
    }

    fn block(&mut self, body: &[Stmt]) {
        body.iter().for_each(|stmt| self.stmt(stmt));
    }

    fn name(&self, v: V) -> String {
        match &self.names[v.0 as usize] {
            Some(name) => name.to_string(),
            None => format!("%{}", v.0),
        }
    }

    fn list(&self, values: &[V]) -> String {
        values.iter().map(|&v| self.name(v)).collect::<Vec<_>>().join(", ")
    }

    fn types(&self, values: &[V]) -> String {
        let types = values.iter().map(|&v| Mlir(self.code.ty(v)).to_string());
        types.collect::<Vec<_>>().join(", ")
    }

    /// Returns a new value name.
    fn fresh(&mut self) -> String {
        self.fresh += 1;
        format!("%t{}", self.fresh)
    }

    fn rename(&mut self, v: V, name: String) {
        self.names[v.0 as usize] = Some(name.into());
    }

    fn stmt(&mut self, stmt: &Stmt) {
        // Returns the result of an instruction with a single result.
        let r = || stmt.results[0];
        match &stmt.inst {
            Inst::Const(bits) => self.constant(r(), *bits),
            Inst::Iota => self.iota(r()),
            Inst::Dim(n) => self.rename(r(), format!("%d{n}")),
            Inst::First => self.rename(r(), "%first".into()),
            Inst::Last => self.rename(r(), "%last".into()),
            Inst::Unary(op, x) => self.unary(r(), *op, *x),
            Inst::Binary(op, x, y) => self.binary(r(), *op, *x, *y),
            Inst::Fma(x, y, z) => self.fma(r(), [*x, *y, *z]),
            Inst::Scale(x, n) => self.scale(r(), *x, *n),
            Inst::DotPairs(x, y, sum) => self.dot_pairs(r(), [*x, *y], *sum),
            Inst::Compare(op, x, y) => self.compare(r(), *op, [*x, *y]),
            Inst::Select(c, x, y) => self.select(r(), *c, [*x, *y]),
            Inst::Convert(x) => self.convert(r(), *x),
            Inst::Bitcast(x) => self.bitcast(r(), *x),
            Inst::Splat(x) => self.splat(r(), *x),
            Inst::Extract(x, lane) => self.extract(r(), *x, *lane),
            Inst::Shuffle(x, y, lanes) => self.shuffle(r(), [*x, *y], lanes),
            Inst::Fold(fold, x) => self.fold(r(), *fold, *x),
            Inst::Load { mem, at, mask } => self.load(r(), *mem, *at, *mask),
            Inst::Gather { mem, at, mask } => self.gather(r(), *mem, *at, *mask),
            Inst::Store { mem, at, value, mask, streaming } => {
                self.store(*mem, *at, *value, *mask, *streaming);
            }
            Inst::Scatter { mem, at, value, mask } => self.scatter(*mem, *at, *value, *mask),
            Inst::Prefetch { mem, at, write } => self.prefetch(*mem, *at, *write),
            Inst::Tile(op) => self.tile(*op),
            Inst::CallPrivate(function, args) => self.call(&stmt.results, *function, args),
            Inst::For { from, to, step, carried, region } => {
                self.repeat(&stmt.results, [*from, *to, *step], carried, region);
            }
            Inst::If { condition, yes, no } => self.choose(&stmt.results, *condition, yes, no),
            Inst::MulAdd(..) | Inst::Call(..) => {
                unreachable!("code for C is not printed as MLIR")
            }
        }
    }

    fn constant(&mut self, result: V, bits: u64) {
        let (r, ty) = (self.name(result), self.code.ty(result));
        line!(self, "{r} = arith.constant {}", constant(ty, bits));
    }

    fn iota(&mut self, result: V) {
        let (r, ty) = (self.name(result), self.code.ty(result));
        let lanes: Vec<String> = (0..ty.lanes).map(|i| i.to_string()).collect();
        line!(self, "{r} = arith.constant dense<[{}]> : {}", lanes.join(", "), Mlir(ty));
    }

    fn fma(&mut self, result: V, operands: [V; 3]) {
        let (r, ty) = (self.name(result), Mlir(self.code.ty(result)));
        let list = self.list(&operands);
        line!(self, "{r} = llvm.intr.fma({list}) : ({ty}, {ty}, {ty}) -> {ty}");
    }

    fn dot_pairs(&mut self, result: V, [x, y]: [V; 2], sum: V) {
        let (r, ty) = (self.name(result), self.code.ty(result));
        let (t, pairs) = (Mlir(ty), Mlir(self.code.ty(x)));
        let (list, bits) = (self.list(&[sum, x, y]), ty.lanes * 32);
        line!(
            self,
            "{r} = llvm.call_intrinsic \"llvm.x86.avx512bf16.dpbf16ps.{bits}\"({list}) : \
             ({t}, {pairs}, {pairs}) -> {t}"
        );
    }

    fn compare(&mut self, result: V, op: Cmp, operands: [V; 2]) {
        let (r, operand) = (self.name(result), self.code.ty(operands[0]));
        let text = comparison(op, operand.dtype);
        line!(self, "{r} = arith.{text}, {} : {}", self.list(&operands), Mlir(operand));
    }

    fn select(&mut self, result: V, condition: V, [x, y]: [V; 2]) {
        let (r, ty) = (self.name(result), self.code.ty(result));
        let list = self.list(&[condition, x, y]);
        let condition = self.code.ty(condition);
        match condition.lanes {
            1 => line!(self, "{r} = arith.select {list} : {}", Mlir(ty)),
            _ => line!(self, "{r} = arith.select {list} : {}, {}", Mlir(condition), Mlir(ty)),
        }
    }

    fn bitcast(&mut self, result: V, x: V) {
        let (r, ty, from) = (self.name(result), self.code.ty(result), self.code.ty(x));
        let same = from.dtype.is_float() == ty.dtype.is_float();
        let (from, to) = (Mlir(from), Mlir(ty));
        match from.0.lanes == ty.lanes {
            true if same => self.rename(result, self.name(x)),
            true => line!(self, "{r} = arith.bitcast {} : {from} to {to}", self.name(x)),
            false => line!(self, "{r} = llvm.bitcast {} : {from} to {to}", self.name(x)),
        }
    }

    fn splat(&mut self, result: V, x: V) {
        let (r, ty, from) = (self.name(result), self.code.ty(result), self.code.ty(x));
        let x = self.name(x);
        line!(self, "{r} = vector.broadcast {x} : {} to {}", Mlir(from), Mlir(ty));
    }

    fn extract(&mut self, result: V, x: V, lane: u32) {
        let (r, ty, from) = (self.name(result), self.code.ty(result), self.code.ty(x));
        let x = self.name(x);
        line!(self, "{r} = vector.extract {x}[{lane}] : {} from {}", Mlir(ty), Mlir(from));
    }

    fn shuffle(&mut self, result: V, operands: [V; 2], lanes: &[u32]) {
        let (r, from) = (self.name(result), Mlir(self.code.ty(operands[0])));
        let lanes: Vec<String> = lanes.iter().map(u32::to_string).collect();
        let (list, lanes) = (self.list(&operands), lanes.join(", "));
        line!(self, "{r} = vector.shuffle {list} [{lanes}] : {from}, {from}");
    }

    fn fold(&mut self, result: V, fold: Fold, x: V) {
        let (r, ty, from) = (self.name(result), self.code.ty(result), self.code.ty(x));
        let (kind, flags) = folding(fold, from.dtype);
        let x = self.name(x);
        line!(
            self,
            "{r} = vector.reduction <{kind}>, {x}{flags} : {} into {}",
            Mlir(from),
            Mlir(ty)
        );
    }

    fn prefetch(&mut self, mem: Mem, at: V, write: bool) {
        let pointer = self.address(mem, at);
        let rw = i32::from(write);
        line!(
            self,
            "\"llvm.intr.prefetch\"({pointer}) <{{cache = 1 : i32, hint = 3 : i32, \
             rw = {rw} : i32}}> : (!llvm.ptr) -> ()"
        );
    }

    /// Prints the AVX-512 instruction for [`Inst::Scale`]: all lanes, in the current rounding mode.
    fn scale(&mut self, result: V, x: V, n: V) {
        let ty = self.code.ty(result);
        let (r, list, t) = (self.name(result), self.list(&[x, n]), Mlir(ty));
        let suffix = if ty.dtype == DType::F64 { "pd" } else { "ps" };
        let (mask, rounding) = (self.fresh(), self.fresh());
        line!(self, "{mask} = arith.constant -1 : i{}", ty.lanes);
        line!(self, "{rounding} = arith.constant 4 : i32");
        line!(
            self,
            "{r} = llvm.call_intrinsic \"llvm.x86.avx512.mask.scalef.{suffix}.512\"({list}, {}, \
             {mask}, {rounding}) : ({t}, {t}, {t}, i{}, i32) -> {t}",
            self.name(x),
            ty.lanes
        );
    }

    fn unary(&mut self, result: V, op: Unary, x: V) {
        let ty = self.code.ty(result);
        let (r, x, t) = (self.name(result), self.name(x), Mlir(ty));
        let float = ty.dtype.is_float();
        let intrinsic = match op {
            Unary::Neg if float => {
                line!(self, "{r} = arith.negf {x} : {t}");
                return;
            }
            Unary::Neg | Unary::Not => {
                let bits = if op == Unary::Neg { 0 } else { u64::MAX };
                let constant = self.splat_literal(ty, bits);
                let name = if op == Unary::Neg { "subi" } else { "xori" };
                line!(self, "{r} = arith.{name} {constant}, {x} : {t}");
                return;
            }
            Unary::Abs if !float => {
                line!(
                    self,
                    "{r} = \"llvm.intr.abs\"({x}) <{{is_int_min_poison = false}}> : ({t}) -> {t}"
                );
                return;
            }
            Unary::Abs => "fabs",
            Unary::Sqrt => "sqrt",
            Unary::Floor => "floor",
            Unary::Ceil => "ceil",
            Unary::RoundEven => "roundeven",
        };
        line!(self, "{r} = llvm.intr.{intrinsic}({x}) : ({t}) -> {t}");
    }

    fn splat_literal(&mut self, ty: Ty, bits: u64) -> String {
        let name = self.fresh();
        let width = ty.dtype.bits();
        let bits =
            if ty.dtype == DType::Bool { bits & 1 } else { bits & (u64::MAX >> (64 - width)) };
        line!(self, "{name} = arith.constant {}", constant(ty, bits));
        name
    }

    fn binary(&mut self, result: V, op: Binary, x: V, y: V) {
        let ty = self.code.ty(result);
        let (r, list, t) = (self.name(result), self.list(&[x, y]), Mlir(ty));
        let float = ty.dtype.is_float();
        if let (true, Binary::Min | Binary::Max) = (float, op) {
            let condition = self.fresh();
            let order = if op == Binary::Min { "olt" } else { "ogt" };
            let bools = Mlir(ty.with(DType::Bool));
            line!(self, "{condition} = arith.cmpf {order}, {list} : {t}");
            match ty.lanes {
                1 => line!(self, "{r} = arith.select {condition}, {list} : {t}"),
                _ => line!(self, "{r} = arith.select {condition}, {list} : {bools}, {t}"),
            }
            return;
        }
        let sign = if is_signed(ty.dtype) { "s" } else { "u" };
        let name = match op {
            Binary::Add if float => "addf".into(),
            Binary::Sub if float => "subf".into(),
            Binary::Mul if float => "mulf".into(),
            Binary::Div if float => "divf".into(),
            Binary::Rem if float => "remf".into(),
            Binary::Add => "addi".into(),
            Binary::Sub => "subi".into(),
            Binary::Mul => "muli".into(),
            Binary::Div => format!("div{sign}i"),
            Binary::Rem => format!("rem{sign}i"),
            Binary::Min => format!("min{sign}i"),
            Binary::Max => format!("max{sign}i"),
            Binary::And => "andi".into(),
            Binary::Or => "ori".into(),
            Binary::Xor => "xori".into(),
            Binary::Shl => "shli".into(),
            Binary::Shr => format!("shr{sign}i"),
        };
        line!(self, "{r} = arith.{name} {list} : {t}");
    }

    fn convert(&mut self, result: V, x: V) {
        let (from, to) = (self.code.ty(x), self.code.ty(result));
        let r = self.name(result);
        let (a, b) = (from.dtype, to.dtype);
        let name = match (a.is_float(), b.is_float()) {
            (true, true) if a.bits() < b.bits() => "extf",
            (true, true) if a.bits() > b.bits() => "truncf",
            (true, true) => return self.convert_via_f32(result, x),
            (true, false) if is_signed(b) => "fptosi",
            (true, false) => "fptoui",
            (false, true) if is_signed(a) => "sitofp",
            (false, true) => "uitofp",
            (false, false) if b == DType::Bool => {
                let zero = self.splat_literal(from, 0);
                line!(self, "{r} = arith.cmpi ne, {}, {zero} : {}", self.name(x), Mlir(from));
                return;
            }
            (false, false) if a == DType::Bool => "extui",
            (false, false) if a.bits() > b.bits() => "trunci",
            (false, false) if a.bits() == b.bits() => return self.rename(result, self.name(x)),
            (false, false) if is_signed(a) => "extsi",
            (false, false) => "extui",
        };
        line!(self, "{r} = arith.{name} {} : {} to {}", self.name(x), Mlir(from), Mlir(to));
    }

    fn convert_via_f32(&mut self, result: V, x: V) {
        let (from, to) = (self.code.ty(x), self.code.ty(result));
        let (wide, middle) = (from.with(DType::F32), self.fresh());
        let (x, r) = (self.name(x), self.name(result));
        line!(self, "{middle} = arith.extf {x} : {} to {}", Mlir(from), Mlir(wide));
        line!(self, "{r} = arith.truncf {middle} : {} to {}", Mlir(wide), Mlir(to));
    }

    /// Prints several results as one group, `%5:3 = `, and records the name of each result.
    fn results(&mut self, results: &[V]) -> String {
        let Some(first) = results.first() else {
            return String::new();
        };
        let group = format!("%r{}", first.0);
        for (i, &v) in results.iter().enumerate() {
            self.rename(v, format!("{group}#{i}"));
        }
        format!("{group}:{} = ", results.len())
    }

    fn repeat(&mut self, results: &[V], [from, to, step]: [V; 3], carried: &[V], region: &Region) {
        let bounds = [from, to, step].map(|v| self.name(v));
        let (counter, inner) = region.params.split_first().expect("a counter");
        let pairs = inner.iter().zip(carried);
        let pairs: Vec<String> =
            pairs.map(|(&i, &c)| format!("{} = {}", self.name(i), self.name(c))).collect();
        let head = self.results(results);
        let counter = self.name(*counter);
        let [from, to, step] = bounds;
        let _ = write!(self.text, "{head}scf.for {counter} = {from} to {to} step {step}");
        if !pairs.is_empty() {
            let types = self.types(carried);
            let _ = write!(self.text, " iter_args({}) -> ({types})", pairs.join(", "));
        }
        line!(self, " : i64 {{");
        self.inside(region);
        line!(self, "}}");
    }

    /// Prints a private function of the kernel. It is marked as cold, so that the code around its
    /// calls keeps values in registers.
    fn function(&mut self, number: usize, function: &Region) {
        let params: Vec<String> = function
            .params
            .iter()
            .map(|&v| format!("{}: {}", self.name(v), Mlir(self.code.ty(v))))
            .collect();
        line!(
            self,
            "func.func private @rare{number}({}) -> ({}) attributes {{llvm.linkage = \
             #llvm.linkage<internal>, passthrough = [\"noinline\", \"cold\", \"nounwind\", \
             [\"reciprocal-estimates\", \"vec-divf:1\"]]}} {{",
            params.join(", "),
            self.types(&function.yields),
        );
        self.block(&function.body);
        let (list, types) = (self.list(&function.yields), self.types(&function.yields));
        line!(self, "return {list} : {types}\n}}");
    }

    fn call(&mut self, results: &[V], function: u32, args: &[V]) {
        let (list, given) = (self.list(args), self.types(args));
        let types = self.types(results);
        let head = self.results(results);
        line!(self, "{head}func.call @rare{function}({list}) : ({given}) -> ({types})");
    }

    fn choose(&mut self, results: &[V], condition: V, yes: &Region, no: &Region) {
        let types = self.types(results);
        let head = self.results(results);
        let arrow = if results.is_empty() { String::new() } else { format!(" -> ({types})") };
        line!(self, "{head}scf.if {}{arrow} {{", self.name(condition));
        self.inside(yes);
        if !results.is_empty() || !no.body.is_empty() {
            line!(self, "}} else {{");
            self.inside(no);
        }
        line!(self, "}}");
    }

    fn inside(&mut self, region: &Region) {
        self.block(&region.body);
        if !region.yields.is_empty() {
            let (list, types) = (self.list(&region.yields), self.types(&region.yields));
            line!(self, "scf.yield {list} : {types}");
        }
    }
}
