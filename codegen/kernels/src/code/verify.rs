//! Verifies loop code: checks the rules that do not depend on the processor.

use mithril_ir::diagnostic::{Diagnostic, Result};
use mithril_ir::dtype::DType;

use super::print::line;
use super::{Binary, Code, Fold, Inst, Mem, Place, Region, Stmt, TileOp, Ty, Unary, V};

/// The number of tile registers.
pub const TILES: u8 = 8;

/// Verifies loop code. Values must be defined once and before their uses. Types must match. Regions
/// must yield the types of their statement's results. Constant memory must not be stored to.
///
/// Errors: a statement breaks a rule; the first one is reported.
pub fn verify(code: &Code) -> Result<()> {
    let mut verifier = Verifier { code, defined: vec![false; code.types.len()], places: true };
    for (at, function) in code.functions.iter().enumerate() {
        verifier.places = false;
        let checked = verifier.function(function);
        checked.map_err(|error| error.at(format!("function @{at}")))?;
    }
    verifier.places = true;
    verifier.block(&code.body)
}

/// `Ok`, or a message about the rule that a statement breaks.
type Check = std::result::Result<(), String>;

fn ensure(holds: bool, what: impl Into<String>) -> Check {
    if holds { Ok(()) } else { Err(what.into()) }
}

struct Verifier<'a> {
    code: &'a Code,
    /// Whether each value is defined at this point.
    defined: Vec<bool>,
    /// Whether memory may be accessed, which private functions must not do.
    places: bool,
}

impl Verifier<'_> {
    fn function(&mut self, function: &Region) -> Result<()> {
        let failed = |what: String| Box::new(Diagnostic::new(what));
        function.params.iter().try_for_each(|&v| self.define(v)).map_err(failed)?;
        self.block(&function.body)?;
        function.yields.iter().try_for_each(|&v| self.known(v)).map_err(failed)?;
        self.forget(function);
        Ok(())
    }

    fn block(&mut self, body: &[Stmt]) -> Result<()> {
        for stmt in body {
            if let Err(what) = self.statement(stmt) {
                return Diagnostic::new(what).got(line(self.code, stmt)).err();
            }
            match &stmt.inst {
                Inst::For { region, carried, .. } => self.region(stmt, region, carried)?,
                Inst::If { yes, no, .. } => {
                    self.region(stmt, yes, &[])?;
                    self.region(stmt, no, &[])?;
                }
                _ => {}
            }
            let defined = stmt.results.iter().try_for_each(|&v| self.define(v));
            if let Err(what) = defined {
                return Diagnostic::new(what).got(line(self.code, stmt)).err();
            }
        }
        Ok(())
    }

    /// Checks a region, its parameters and its yields.
    fn region(&mut self, stmt: &Stmt, region: &Region, carried: &[V]) -> Result<()> {
        let failed = |what: String| Diagnostic::new(what).got(line(self.code, stmt)).err();
        if let Err(what) = self.head(stmt, region, carried) {
            return failed(what);
        }
        region.params.iter().for_each(|v| self.defined[v.0 as usize] = true);
        self.block(&region.body)?;
        let checked = region.yields.iter().try_for_each(|&v| self.known(v));
        let types = checked.and_then(|()| self.same_types(&region.yields, &stmt.results, "yields"));
        if let Err(what) = types {
            return Diagnostic::new(what).got(line(self.code, stmt)).err();
        }
        self.forget(region);
        Ok(())
    }

    fn head(&self, stmt: &Stmt, region: &Region, carried: &[V]) -> Check {
        region.params.iter().try_for_each(|&v| self.unknown(v))?;
        if matches!(stmt.inst, Inst::If { .. }) {
            return ensure(region.params.is_empty(), "the regions of an `if` have no parameters");
        }
        let Some((counter, inner)) = region.params.split_first() else {
            return Err("the loop has no counter parameter".into());
        };
        ensure(self.ty(*counter) == Ty::INDEX, "the counter must be an i64")?;
        self.same_types(inner, carried, "parameters")
    }

    fn same_types(&self, left: &[V], right: &[V], what: &str) -> Check {
        let types = |values: &[V]| values.iter().map(|&v| self.ty(v)).collect::<Vec<_>>();
        ensure(types(left) == types(right), format!("the types of the {what} do not match"))
    }

    /// Removes the values that are defined inside a region, which are not visible after it.
    fn forget(&mut self, region: &Region) {
        let inside = region.body.iter().flat_map(|stmt| &stmt.results);
        inside.chain(&region.params).for_each(|v| self.defined[v.0 as usize] = false);
    }

    fn define(&mut self, v: V) -> Check {
        self.unknown(v)?;
        self.defined[v.0 as usize] = true;
        Ok(())
    }

    fn unknown(&self, v: V) -> Check {
        ensure(self.defined.get(v.0 as usize) == Some(&false), format!("{v} is defined twice"))
    }

    fn known(&self, v: V) -> Check {
        ensure(self.defined.get(v.0 as usize) == Some(&true), format!("{v} is not defined here"))
    }

    fn ty(&self, v: V) -> Ty {
        self.code.ty(v)
    }

    fn statement(&self, stmt: &Stmt) -> Check {
        stmt.inst.operands().into_iter().try_for_each(|v| self.known(v))?;
        match &stmt.inst {
            Inst::For { from, to, step, .. } => {
                let bounds = [from, to, step];
                ensure(bounds.iter().all(|v| self.ty(**v) == Ty::INDEX), "loop bounds must be i64")
            }
            Inst::If { condition, .. } => {
                let bool = Ty::scalar(DType::Bool);
                ensure(self.ty(*condition) == bool, "the condition must be a bool")
            }
            Inst::CallPrivate(number, args) => {
                let Some(function) = self.code.functions.get(*number as usize) else {
                    return Err(format!("there is no function @{number}"));
                };
                self.same_types(args, &function.params, "arguments")?;
                self.same_types(&stmt.results, &function.yields, "results")
            }
            Inst::Store { mem, at, value, mask, streaming } => {
                self.written(*mem, *value)?;
                ensure(self.ty(*at) == Ty::INDEX, "the index must be an i64")?;
                ensure(
                    !streaming || self.code.streams,
                    "streaming store in a kernel without `streams`",
                )?;
                ensure(!streaming || mask.is_none(), "a streaming store must not have a mask")?;
                self.masked(*mask, self.ty(*value).lanes)
            }
            Inst::Scatter { mem, at, value, mask } => {
                self.written(*mem, *value)?;
                self.indices(*at, self.ty(*value).lanes)?;
                self.masked(*mask, self.ty(*value).lanes)
            }
            Inst::Prefetch { mem, at, .. } => {
                self.memory(*mem)?;
                ensure(self.ty(*at) == Ty::INDEX, "the index must be an i64")
            }
            Inst::Tile(op) => self.tile(*op),
            inst => match stmt.results[..] {
                [result] => self.value(self.ty(result), inst),
                _ => Err("the statement must have one result".into()),
            },
        }
    }

    fn is(&self, v: V, wanted: Ty) -> Check {
        let own = self.ty(v);
        ensure(own == wanted, format!("{v} is of type {own}, not {wanted}"))
    }

    fn all_are(&self, values: &[V], wanted: Ty) -> Check {
        values.iter().try_for_each(|&v| self.is(v, wanted))
    }

    fn value(&self, ty: Ty, inst: &Inst) -> Check {
        match *inst {
            Inst::Const(bits) => constant(ty, bits),
            Inst::Iota => ensure(ty.dtype.is_int(), "the result must be an integer"),
            Inst::Dim(n) => {
                ensure(n < self.code.dims, "there is no such dim")?;
                ensure(ty == Ty::INDEX, "a dim must be an i64")
            }
            Inst::First | Inst::Last => ensure(ty == Ty::INDEX, "a task number must be an i64"),
            Inst::Unary(op, x) => {
                self.is(x, ty)?;
                unary(op, ty.dtype)
            }
            Inst::Binary(op, x, y) => {
                self.all_are(&[x, y], ty)?;
                binary(op, ty.dtype)
            }
            Inst::Fma(x, y, z) | Inst::MulAdd(x, y, z) => {
                self.all_are(&[x, y, z], ty)?;
                ensure(ty.dtype.is_float(), "the operands must be floats")
            }
            Inst::Scale(x, n) => {
                self.all_are(&[x, n], ty)?;
                ensure(ty.dtype.is_float(), "the operands must be floats")
            }
            Inst::DotPairs(x, y, sum) => self.pairs([x, y], sum, ty),
            Inst::Compare(_, x, y) => self.compared(x, y, ty),
            Inst::Select(c, x, y) => {
                self.all_are(&[x, y], ty)?;
                self.condition(c, ty.lanes)
            }
            Inst::Convert(x) => self.is(x, ty.with(self.ty(x).dtype)),
            Inst::Bitcast(x) => same_bits(self.ty(x), ty),
            Inst::Splat(x) => self.is(x, Ty::scalar(ty.dtype)),
            Inst::Extract(x, lane) => extracted(self.ty(x), lane, ty),
            Inst::Shuffle(x, y, ref lanes) => {
                self.is(y, self.ty(x))?;
                shuffled(self.ty(x), lanes, ty)
            }
            Inst::Fold(fold, x) => folded(fold, self.ty(x), ty),
            Inst::Load { mem, at, mask } => {
                self.read(mem, ty, mask)?;
                self.is(at, Ty::INDEX)
            }
            Inst::Gather { mem, at, mask } => {
                self.read(mem, ty, mask)?;
                self.indices(at, ty.lanes)
            }
            // Calls get their types from the table of primitives.
            Inst::Call(..) => Ok(()),
            Inst::CallPrivate(..)
            | Inst::Store { .. }
            | Inst::Scatter { .. }
            | Inst::Prefetch { .. }
            | Inst::Tile(_)
            | Inst::For { .. }
            | Inst::If { .. } => Err("the statement has no result".into()),
        }
    }

    fn pairs(&self, operands: [V; 2], sum: V, ty: Ty) -> Check {
        self.all_are(&operands, Ty::vector(DType::BF16, ty.lanes * 2))?;
        self.is(sum, ty)?;
        ensure(ty.dtype == DType::F32, "the sum must be f32")
    }

    fn compared(&self, x: V, y: V, ty: Ty) -> Check {
        self.is(y, self.ty(x))?;
        self.is(x, ty.with(self.ty(x).dtype))?;
        ensure(ty.dtype == DType::Bool, "the result must be a bool")
    }

    fn read(&self, mem: Mem, ty: Ty, mask: Option<V>) -> Check {
        self.memory(mem)?;
        self.element(mem, ty.dtype)?;
        self.masked(mask, ty.lanes)
    }

    fn condition(&self, c: V, lanes: u32) -> Check {
        let own = self.ty(c);
        let fits = own.dtype == DType::Bool && (own.lanes == 1 || own.lanes == lanes);
        ensure(fits, format!("{c} is of type {own}, not boolx{lanes}"))
    }

    fn masked(&self, mask: Option<V>, lanes: u32) -> Check {
        let Some(mask) = mask else { return Ok(()) };
        let own = self.ty(mask);
        let fits = own == Ty::vector(DType::Bool, lanes);
        ensure(fits, format!("the mask {mask} is of type {own}, not boolx{lanes}"))
    }

    fn indices(&self, at: V, lanes: u32) -> Check {
        let own = self.ty(at);
        ensure(own.dtype.is_int() && own.lanes == lanes, "there must be one integer index per lane")
    }

    fn memory(&self, mem: Mem) -> Check {
        let Some(memory) = self.code.memories.get(mem.0 as usize) else {
            return Err(format!("there is no memory {mem}"));
        };
        ensure(self.places, "private functions must not access memory")?;
        match memory.place {
            Place::Buffer(n) => ensure(n < self.code.buffers, format!("there is no buffer {n}")),
            Place::Scratch(offset) => {
                self.known(offset)?;
                ensure(self.ty(offset) == Ty::INDEX, "the offset must be an i64")
            }
            Place::Local(_) => Ok(()),
        }
    }

    fn element(&self, mem: Mem, dtype: DType) -> Check {
        let own = self.code.memories[mem.0 as usize].dtype;
        ensure(own == dtype, format!("{mem} has elements of {}", own.name()))
    }

    fn written(&self, mem: Mem, value: V) -> Check {
        self.memory(mem)?;
        let constant = self.code.memories[mem.0 as usize].constant;
        ensure(!constant, format!("{mem} is constant"))?;
        self.element(mem, self.ty(value).dtype)
    }

    fn tile(&self, op: TileOp) -> Check {
        ensure(self.code.tiles, "tile operation in a kernel without `tiles`")?;
        let numbers = match op {
            TileOp::Zero(tile) => vec![tile],
            TileOp::Load { tile, mem, at, stride } | TileOp::Store { tile, mem, at, stride } => {
                self.memory(mem)?;
                let indices = [at, stride].iter().all(|v| self.ty(*v) == Ty::INDEX);
                ensure(indices, "the index must be an i64")?;
                vec![tile]
            }
            TileOp::Dot { sum, x, y } => vec![sum, x, y],
        };
        ensure(numbers.iter().all(|&tile| tile < TILES), "there is no such tile")
    }
}

fn constant(ty: Ty, bits: u64) -> Check {
    let width = if ty.dtype == DType::Bool { 1 } else { ty.dtype.bits() };
    ensure(bits >> (width - 1) <= 1, "the constant has more bits than its type")
}

fn unary(op: Unary, dtype: DType) -> Check {
    match op {
        Unary::Sqrt | Unary::Floor | Unary::Ceil | Unary::RoundEven => {
            ensure(dtype.is_float(), "the operands must be floats")
        }
        Unary::Not => ensure(!dtype.is_float(), "the operands must be integers or bools"),
        Unary::Neg | Unary::Abs => ensure(dtype != DType::Bool, "the operand must not be a bool"),
    }
}

fn binary(op: Binary, dtype: DType) -> Check {
    match op {
        Binary::And | Binary::Or | Binary::Xor => {
            ensure(!dtype.is_float(), "the operands must be integers or bools")
        }
        Binary::Shl | Binary::Shr => ensure(dtype.is_int(), "the operands must be integers"),
        Binary::Add
        | Binary::Sub
        | Binary::Mul
        | Binary::Div
        | Binary::Rem
        | Binary::Min
        | Binary::Max => ensure(dtype != DType::Bool, "the operands must not be bools"),
    }
}

fn same_bits(from: Ty, to: Ty) -> Check {
    let bits = |ty: Ty| ty.lanes * ty.dtype.bits();
    let bools = [from, to].iter().any(|ty| ty.dtype == DType::Bool);
    ensure(
        bits(from) == bits(to) && !bools,
        "both types must have the same number of bits, and must not be bool",
    )
}

fn extracted(from: Ty, lane: u32, to: Ty) -> Check {
    ensure(lane < from.lanes, "there is no such lane")?;
    ensure(to == Ty::scalar(from.dtype), "the result must be a scalar of the vector's dtype")
}

fn shuffled(from: Ty, lanes: &[u32], to: Ty) -> Check {
    ensure(
        to == Ty { lanes: lanes.len() as u32, ..from },
        "the result must have one lane per lane number",
    )?;
    ensure(lanes.iter().all(|&lane| lane < 2 * from.lanes), "there is no such lane")
}

fn folded(fold: Fold, from: Ty, to: Ty) -> Check {
    ensure(to == Ty::scalar(from.dtype), "the result must be a scalar of the vector's dtype")?;
    let bits = matches!(fold, Fold::And | Fold::Or);
    ensure(!bits || !from.dtype.is_float(), "the operands must be integers or bools")
}
