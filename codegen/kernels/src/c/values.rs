//! Prints instructions as C expressions.

use mithril_ir::dtype::DType;
use mithril_ir::scalar::Prim;

use super::expression::{Expr, Level, variable_type};
use super::functions::Function;
use super::kernel::Printer;
use crate::code::{Binary, Callee, Cmp, Inst, Unary, V};
use crate::scalar::has_formula;

impl Printer<'_> {
    /// Returns the expression of an instruction. Returns `None` for statements, and for
    /// instructions that portable code does not contain.
    pub(super) fn expression(&mut self, v: V, inst: &Inst) -> Option<Expr> {
        let dtype = self.dtype(v);
        Some(match inst {
            Inst::Dim(n) => self.dim(*n),
            Inst::Unary(op, x) => {
                let x = self.take(*x);
                self.unary(*op, dtype, x)
            }
            Inst::Binary(op, x, y) => self.binary(*op, dtype, *x, *y),
            Inst::Fma(x, y, z) => {
                let args = [x, y, z].map(|&v| self.take(v));
                Expr::call(&library("fma", dtype), &args)
            }
            Inst::MulAdd(x, y, z) => {
                let args = [x, y, z].map(|&v| self.take(v));
                self.function(Function::MulAdd(dtype), &args)
            }
            Inst::Call(callee, args) => self.call(*callee, dtype, args),
            Inst::Compare(op, x, y) => {
                let [x, y] = match x == y {
                    true => [self.take_name(*x), self.take_name(*y)],
                    false => [self.take(*x), self.take(*y)],
                };
                Expr::binary(&x, comparison(*op), &y, Level::Comparison)
            }
            Inst::Select(c, x, y) => {
                let (x, y) = (self.select_operand(*x, Some(*c)), self.select_operand(*y, None));
                let c = self.take(*c);
                self.select(dtype, [c, x, y])
            }
            Inst::Convert(x) => {
                let (from, x) = (self.dtype(*x), self.take(*x));
                self.convert(x, from, dtype)
            }
            Inst::Bitcast(x) => self.bits(*x, dtype),
            Inst::Load { mem, at, mask } | Inst::Gather { mem, at, mask } => {
                let element = self.element(*mem, *at);
                self.masked(v, element, *mask)
            }
            // Vectors have a single lane in portable code.
            Inst::Splat(x) | Inst::Extract(x, _) | Inst::Fold(_, x) | Inst::Shuffle(x, _, _) => {
                self.take(*x)
            }
            Inst::Iota | Inst::First | Inst::Last => Expr::atom("0"),
            Inst::Const(_)
            | Inst::Scale(..)
            | Inst::DotPairs(..)
            | Inst::Store { .. }
            | Inst::Scatter { .. }
            | Inst::Prefetch { .. }
            | Inst::Tile(_)
            | Inst::For { .. }
            | Inst::If { .. }
            | Inst::CallPrivate(..) => return None,
        })
    }

    /// Reinterprets the bits of a number as another dtype of the same size.
    fn bits(&mut self, x: V, to: DType) -> Expr {
        let (from, x) = (self.dtype(x), self.take(x));
        match from.is_float() || to.is_float() {
            true => self.function(Function::Bits { from, to }, &[x]),
            false => Expr::cast(variable_type(to), &x),
        }
    }

    /// Returns an element of memory, or 0 if the mask is false.
    fn masked(&mut self, v: V, element: Expr, mask: Option<V>) -> Expr {
        let Some(mask) = mask else { return element };
        self.masked.insert(v, (mask, element.clone()));
        let zero = super::expression::literal(self.dtype(v), 0);
        Expr::choice(&self.take(mask), &element, &zero)
    }

    /// Returns an operand of a selection. `c` is the condition under which it is used. Unmasked
    /// loads are moved before the selection, because GCC 12 miscompiles conditional reads when it
    /// vectorizes them, and other compilers make them slower.
    fn select_operand(&mut self, v: V, c: Option<V>) -> Expr {
        if !self.is_pending(v) {
            return self.take(v);
        }
        match self.masked.get(&v) {
            Some((mask, element)) if Some(*mask) == c => {
                let element = element.clone();
                self.take(v);
                element
            }
            Some(_) => self.take(v),
            None if self.reads(v) => self.take_name(v),
            None => self.take(v),
        }
    }

    fn select(&mut self, dtype: DType, [c, x, y]: [Expr; 3]) -> Expr {
        // Compilers turn a conditional expression with computed operands into a branch. If it
        // selects the index of a read in another conditional expression, GCC 12 miscompiles both
        // when it vectorizes them. With masks of AVX-512 it miscompiles selections of both kinds by
        // one variable. So a branch-free function selects instead. Reads stay in conditional
        // expressions, because the memory may not exist if they are not selected.
        let computes = |e: &Expr| e.level > Level::Unary || e.text.contains('(');
        let named = c.text.chars().all(|c| c.is_alphanumeric() || c == '_');
        let branches = computes(&x) || computes(&y) || named || dtype == DType::I64;
        let branches = branches && !x.reads && !y.reads;
        let numbers = matches!(dtype, DType::F32 | DType::F64 | DType::I32 | DType::I64);
        match numbers && (self.formula || branches) {
            true => self.function(Function::Select(dtype), &[c, x, y]),
            false => Expr::choice(&c, &x, &y),
        }
    }

    /// Calls a helper for wrapping integer arithmetic. `running` says whether the first operand is
    /// an unsigned variable, which an addition may update in place.
    fn wrapping_call(&mut self, prim: Prim, dtype: DType, args: &[Expr], running: bool) -> Expr {
        let sum = match args {
            [x, y] if running && prim == Prim::Add => Some((x.text.clone(), y.text.clone())),
            _ => None,
        };
        Expr { sum, ..self.function(Function::Prim(prim, dtype), args) }
    }

    fn function(&mut self, function: Function, args: &[Expr]) -> Expr {
        if self.functions.insert(function) {
            self.functions.extend(function.needs());
        }
        Expr::call(&function.name(), args)
    }

    fn unary(&mut self, op: Unary, dtype: DType, x: Expr) -> Expr {
        let float = dtype.is_float();
        let name = match op {
            Unary::Neg if float => {
                let inner = x.at(Level::Atom);
                return Expr::new(format!("-{inner}"), Level::Unary).reading(x.reads);
            }
            Unary::Neg => return self.function(Function::Prim(Prim::Neg, dtype), &[x]),
            Unary::Not if dtype == DType::Bool => {
                // A low precedence adds parentheses next to bit operations, which avoids warnings.
                let inner = x.at(Level::Atom);
                return Expr::new(format!("!{inner}"), Level::Comparison).reading(x.reads);
            }
            Unary::Not => {
                let flipped =
                    Expr::new(format!("~{}", x.at(Level::Atom)), Level::Unary).reading(x.reads);
                return Expr::cast(variable_type(dtype), &flipped);
            }
            Unary::Abs if !float => return self.function(Function::Prim(Prim::Abs, dtype), &[x]),
            Unary::Abs => "fabs",
            Unary::Sqrt => "sqrt",
            Unary::Floor => "floor",
            Unary::Ceil => "ceil",
            Unary::RoundEven => "rint",
        };
        Expr::call(&library(name, dtype), &[x])
    }

    fn binary(&mut self, op: Binary, dtype: DType, x: V, y: V) -> Expr {
        if matches!(op, Binary::Min | Binary::Max) {
            return self.extreme(op, dtype, x, y);
        }
        // 64-bit integers are indices, which do not overflow.
        let is_index = dtype == DType::I64 && !self.formula;
        let plain =
            dtype.is_float() || is_index || matches!(dtype, DType::U64 | DType::U32 | DType::Bool);
        let running = self.wrapping.contains(&x);
        let [x, y] = [self.take(x), self.take(y)];
        if op == Binary::Add && is_index && y.text.starts_with('-') {
            let less = Expr::atom(y.text[1..].to_string());
            return Expr::binary(&x, "-", &less, Level::Sum);
        }
        let (sign, level) = match op {
            Binary::Add => ("+", Level::Sum),
            Binary::Sub => ("-", Level::Sum),
            Binary::Mul => ("*", Level::Product),
            Binary::Div => ("/", Level::Product),
            Binary::Rem => ("%", Level::Product),
            Binary::And => ("&", Level::Other),
            Binary::Or => ("|", Level::Other),
            Binary::Xor if dtype == DType::Bool => ("!=", Level::Other),
            Binary::Xor => ("^", Level::Other),
            Binary::Shl => ("<<", Level::Other),
            Binary::Shr | Binary::Min | Binary::Max => (">>", Level::Other),
        };
        let wraps = match op {
            Binary::Add => Some(Prim::Add),
            Binary::Sub => Some(Prim::Sub),
            Binary::Mul => Some(Prim::Mul),
            _ => None,
        };
        match wraps {
            Some(prim) if !plain => return self.wrapping_call(prim, dtype, &[x, y], running),
            _ => {}
        }
        if op == Binary::Shl && dtype.is_signed_int() {
            let unsigned = if dtype.bits() == 64 { "uint64_t" } else { "uint32_t" };
            let shifted = Expr::binary(&Expr::cast(unsigned, &x), sign, &y, level);
            return Expr::cast(variable_type(dtype), &shifted);
        }
        if op == Binary::Add && is_index {
            // Sums of indices are associative, so they need no parentheses.
            let text = format!("{} + {}", x.at(Level::Sum), y.at(Level::Sum));
            return Expr { text, level, reads: x.reads | y.reads, sum: None };
        }
        let value = Expr::binary(&x, sign, &y, level);
        // C computes operands narrower than an int as int, so the result is cast back.
        match dtype.bits() < 32 && dtype != DType::Bool {
            true => Expr::cast(variable_type(dtype), &value),
            false => value,
        }
    }

    /// Returns the minimum or maximum. For floats, returns the second operand if either is NaN.
    fn extreme(&mut self, op: Binary, dtype: DType, x: V, y: V) -> Expr {
        let (prim, sign) = match op {
            Binary::Min => (Prim::Min, "<"),
            _ => (Prim::Max, ">"),
        };
        if !dtype.is_float() {
            let args = [self.take(x), self.take(y)];
            return self.function(Function::Prim(prim, dtype), &args);
        }
        let [x, y] = [self.take_name(x), self.take_name(y)];
        let compared = Expr::binary(&x, sign, &y, Level::Comparison);
        if self.formula {
            // Compilers would turn a conditional expression with a constant operand into a branch.
            return self.function(Function::Select(dtype), &[compared, x, y]);
        }
        Expr::choice(&compared, &x, &y)
    }

    fn convert(&mut self, x: Expr, from: DType, to: DType) -> Expr {
        let narrow = |dtype: DType| dtype.is_float() && dtype.bits() < 32;
        if narrow(from) {
            let wide = self.function(Function::Widen(from), &[x]);
            return if to == DType::F32 { wide } else { self.convert(wide, DType::F32, to) };
        }
        if narrow(to) {
            let single = match from {
                DType::F32 => x,
                DType::F64 => self.function(Function::ToOdd, &[x]),
                _ => Expr::cast("float", &x),
            };
            return self.function(Function::Narrow(to), &[single]);
        }
        match to {
            DType::Bool => Expr::binary(&x, "!=", &Expr::atom("0"), Level::Comparison),
            _ if variable_type(from) == variable_type(to) => x,
            _ => Expr::cast(variable_type(to), &x),
        }
    }

    /// Calls a function of the C library or of the file.
    fn call(&mut self, callee: Callee, dtype: DType, args: &[V]) -> Expr {
        let from = self.dtype(args[0]);
        match callee {
            Callee::Prim(prim) if !has_formula(prim, from) => self.primitive(prim, dtype, args),
            _ => {
                let args: Vec<Expr> = args.iter().map(|&v| self.take(v)).collect();
                self.function(Function::Formula(callee, from), &args)
            }
        }
    }

    fn primitive(&mut self, prim: Prim, dtype: DType, args: &[V]) -> Expr {
        let from = self.dtype(args[0]);
        let running = self.wrapping.contains(&args[0]);
        let args: Vec<Expr> = args.iter().map(|&v| self.take(v)).collect();
        let own = match prim {
            Prim::Cast => Some(Function::ToInteger { from, to: dtype }),
            Prim::FloorDiv | Prim::Mod => Some(Function::Prim(prim, dtype)),
            _ if !dtype.is_float() => Some(Function::Prim(prim, dtype)),
            _ => None,
        };
        // Unsigned 32-bit and 64-bit integers already wrap in C.
        let sign = match prim {
            Prim::Add => Some(("+", Level::Sum)),
            Prim::Sub => Some(("-", Level::Sum)),
            Prim::Mul => Some(("*", Level::Product)),
            _ => None,
        };
        match (own, sign, &args[..]) {
            (_, Some((sign, level)), [x, y]) if matches!(dtype, DType::U64 | DType::U32) => {
                Expr::binary(x, sign, y, level)
            }
            (Some(_), Some(_), _) => self.wrapping_call(prim, dtype, &args, running),
            (Some(function), ..) => self.function(function, &args),
            (None, ..) => Expr::call(&library(prim.name(), dtype), &args),
        }
    }
}

/// The name of a C library function for a float dtype.
fn library(name: &str, dtype: DType) -> String {
    if dtype == DType::F64 { name.to_string() } else { format!("{name}f") }
}

fn comparison(op: Cmp) -> &'static str {
    match op {
        Cmp::Eq => "==",
        Cmp::Ne => "!=",
        Cmp::Lt => "<",
        Cmp::Le => "<=",
        Cmp::Gt => ">",
        Cmp::Ge => ">=",
    }
}
