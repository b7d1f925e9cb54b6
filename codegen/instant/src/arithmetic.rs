//! Arithmetic, comparisons and selects: piece by piece if there is a vector instruction, otherwise
//! lane by lane.

use cranelift_codegen::ir::condcodes::{FloatCC, IntCC};
use cranelift_codegen::ir::types::{I8, I64};
use cranelift_codegen::ir::{InstBuilder, Type, Value};
use mithril_ir::dtype::DType;
use mithril_kernels::code::{Binary, Cmp, Ty, Unary, V};

use crate::representation::{PIECE, Pieces, Representation, lane, piece};
use crate::translator::Translator;
use crate::{Result, unsupported};

/// Whether numbers of this dtype have a sign.
pub fn is_signed(dtype: DType) -> bool {
    dtype.is_float() || dtype.is_signed_int()
}

/// Whether Cranelift has arithmetic on the representation of this dtype.
fn is_number(dtype: DType) -> bool {
    !matches!(dtype, DType::F16 | DType::BF16)
}

impl Translator<'_> {
    pub fn unary(&mut self, op: Unary, x: V) -> Result<Representation> {
        let ty = self.ty(x);
        if ty.dtype == DType::Bool {
            return self.not(op, x);
        }
        self.check_is_number(ty)?;
        self.per_piece([x], |t, [x]| t.unary_value(op, ty.dtype, x))
    }

    fn check_is_number(&self, ty: Ty) -> Result<()> {
        match is_number(ty.dtype) {
            true => Ok(()),
            false => unsupported(format!("arithmetic in {}", ty.dtype.name())),
        }
    }

    fn not(&mut self, op: Unary, x: V) -> Result<Representation> {
        if op != Unary::Not {
            return unsupported(format!("{op:?} of bools"));
        }
        if self.ty(x).lanes == 1 {
            let x = self.scalar(x)?;
            return Ok(Representation::Scalar(self.b.ins().bxor_imm(x, 1)));
        }
        let of = self.mask_lane(x);
        let pieces = self.mask(x, of)?;
        Ok(Representation::Mask(of, pieces.into_iter().map(|x| self.b.ins().bnot(x)).collect()))
    }

    /// Applies a function to scalars, or to each piece of vectors.
    fn per_piece<const N: usize>(
        &mut self,
        operands: [V; N],
        mut make: impl FnMut(&mut Self, [Value; N]) -> Result<Value>,
    ) -> Result<Representation> {
        if self.ty(operands[0]).lanes == 1 {
            let mut scalars = [Value::from_u32(0); N];
            for (scalar, v) in scalars.iter_mut().zip(operands) {
                *scalar = self.scalar(v)?;
            }
            return Ok(Representation::Scalar(make(self, scalars)?));
        }
        let mut all: [Pieces; N] = std::array::from_fn(|_| Pieces::new());
        for (pieces, v) in all.iter_mut().zip(operands) {
            *pieces = self.pieces(v)?;
        }
        let count = all[0].len();
        let results = (0..count).map(|at| make(self, std::array::from_fn(|i| all[i][at])));
        Ok(Representation::Vector(results.collect::<Result<Pieces>>()?))
    }

    fn type_of(&self, value: Value) -> Type {
        self.b.func.dfg.value_type(value)
    }

    fn unary_value(&mut self, op: Unary, dtype: DType, x: Value) -> Result<Value> {
        let float = dtype.is_float();
        let ins = self.b.ins();
        Ok(match op {
            Unary::Neg if float => ins.fneg(x),
            Unary::Neg => ins.ineg(x),
            Unary::Abs if float => ins.fabs(x),
            Unary::Abs => ins.iabs(x),
            Unary::Sqrt => ins.sqrt(x),
            Unary::Floor => ins.floor(x),
            Unary::Ceil => ins.ceil(x),
            Unary::RoundEven => ins.nearest(x),
            Unary::Not => ins.bnot(x),
        })
    }

    pub fn binary(&mut self, op: Binary, x: V, y: V) -> Result<Representation> {
        let ty = self.ty(x);
        if ty.dtype == DType::Bool {
            return self.logic(op, x, y);
        }
        self.check_is_number(ty)?;
        if let (Binary::Shl | Binary::Shr, true) = (op, ty.lanes > 1) {
            return self.shift(op, x, y);
        }
        if matches!(op, Binary::Div | Binary::Rem) && !ty.dtype.is_float() && self.is_short(ty) {
            return unsupported("integer division of short vectors, whose unused lanes may be 0");
        }
        self.per_piece([x, y], |t, [x, y]| t.binary_value(op, ty.dtype, x, y))
    }

    /// Whether values of this type are vectors shorter than a piece.
    fn is_short(&self, ty: Ty) -> bool {
        ty.lanes > 1 && ty.lanes * (ty.dtype.bytes() as u32) < PIECE
    }

    fn logic(&mut self, op: Binary, x: V, y: V) -> Result<Representation> {
        let ty = self.ty(x);
        if !matches!(op, Binary::And | Binary::Or | Binary::Xor) {
            return unsupported(format!("{op:?} of bools"));
        }
        if ty.lanes == 1 {
            let (x, y) = (self.scalar(x)?, self.scalar(y)?);
            return Ok(Representation::Scalar(self.bitwise(op, x, y)));
        }
        let of = self.mask_lane(if self.constant(x).is_some() { y } else { x });
        let (x, y) = (self.mask(x, of)?, self.mask(y, of)?);
        let pairs = x.into_iter().zip(y);
        Ok(Representation::Mask(of, pairs.map(|(x, y)| self.bitwise(op, x, y)).collect()))
    }

    fn bitwise(&mut self, op: Binary, x: Value, y: Value) -> Value {
        match op {
            Binary::And => self.b.ins().band(x, y),
            Binary::Or => self.b.ins().bor(x, y),
            _ => self.b.ins().bxor(x, y),
        }
    }

    /// A binary operation on scalars, or on pieces.
    pub fn binary_value(&mut self, op: Binary, dtype: DType, x: Value, y: Value) -> Result<Value> {
        match dtype.is_float() {
            true => self.binary_float(op, x, y),
            false => self.binary_integer(op, dtype, x, y),
        }
    }

    fn binary_float(&mut self, op: Binary, x: Value, y: Value) -> Result<Value> {
        Ok(match op {
            Binary::Add => self.b.ins().fadd(x, y),
            Binary::Sub => self.b.ins().fsub(x, y),
            Binary::Mul => self.b.ins().fmul(x, y),
            Binary::Div => self.b.ins().fdiv(x, y),
            Binary::Min => self.select_if_less(x, y, [x, y]),
            Binary::Max => self.select_if_less(y, x, [x, y]),
            _ => return unsupported(format!("{op:?} of floats")),
        })
    }

    /// Compares floats: scalars, or pieces.
    pub fn compare_floats(&mut self, condition: FloatCC, x: Value, y: Value) -> Value {
        let ty = self.type_of(x);
        if !ty.is_vector() || self.machine.avx {
            return self.b.ins().fcmp(condition, x, y);
        }
        // Without AVX, a memory operand of `cmpps` must be aligned to 16 bytes, but Cranelift 0.124
        // gives it unaligned loads too. The result of a cast is in a register.
        let [x, y] = [x, y].map(|value| {
            let bits = self.recast(piece(I8), value);
            self.recast(ty, bits)
        });
        self.b.ins().fcmp(condition, x, y)
    }

    /// Selects `yes` where `x < y`, otherwise `no`. This pattern becomes one instruction.
    fn select_if_less(&mut self, x: Value, y: Value, [yes, no]: [Value; 2]) -> Value {
        let less = self.compare_floats(FloatCC::LessThan, x, y);
        self.select_value(less, yes, no)
    }

    /// Selects by a scalar bool, or lane by lane by the mask of a piece.
    pub fn select_value(&mut self, condition: Value, yes: Value, no: Value) -> Value {
        let ty = self.type_of(yes);
        if !self.type_of(condition).is_vector() {
            return self.b.ins().select(condition, yes, no);
        }
        let mask = self.recast(ty, condition);
        self.b.ins().bitselect(mask, yes, no)
    }

    fn binary_integer(&mut self, op: Binary, dtype: DType, x: Value, y: Value) -> Result<Value> {
        let (ty, signed) = (self.type_of(x), is_signed(dtype));
        Ok(match op {
            Binary::Add => self.b.ins().iadd(x, y),
            Binary::Sub => self.b.ins().isub(x, y),
            Binary::Mul if ty == piece(I8) => return self.lane_by_lane(op, dtype, x, y),
            Binary::Mul => self.b.ins().imul(x, y),
            Binary::Div | Binary::Rem if ty.is_vector() => {
                return self.lane_by_lane(op, dtype, x, y);
            }
            Binary::Div if signed => self.b.ins().sdiv(x, y),
            Binary::Div => self.b.ins().udiv(x, y),
            Binary::Rem if signed => self.b.ins().srem(x, y),
            Binary::Rem => self.b.ins().urem(x, y),
            Binary::Min => {
                let less = self.compare_integers(Cmp::Lt, dtype, x, y);
                self.select_value(less, x, y)
            }
            Binary::Max => {
                let less = self.compare_integers(Cmp::Lt, dtype, x, y);
                self.select_value(less, y, x)
            }
            Binary::And | Binary::Or | Binary::Xor => self.bitwise(op, x, y),
            Binary::Shl | Binary::Shr if ty.is_vector() => {
                return self.lane_by_lane(op, dtype, x, y);
            }
            Binary::Shl => self.b.ins().ishl(x, y),
            Binary::Shr if signed => self.b.ins().sshr(x, y),
            Binary::Shr => self.b.ins().ushr(x, y),
        })
    }

    fn lane_by_lane(&mut self, op: Binary, dtype: DType, x: Value, y: Value) -> Result<Value> {
        let ty = self.type_of(x);
        let mut result = x;
        for at in 0..ty.lane_count() as u8 {
            let (x, y) = (self.b.ins().extractlane(x, at), self.b.ins().extractlane(y, at));
            let lane_result = self.binary_integer(op, dtype, x, y)?;
            result = self.b.ins().insertlane(result, lane_result, at);
        }
        Ok(result)
    }

    /// Shifts all lanes of a vector by the same count at once, and by different counts lane by
    /// lane.
    fn shift(&mut self, op: Binary, x: V, y: V) -> Result<Representation> {
        let dtype = self.ty(x).dtype;
        let by = match *self.representation(y) {
            Representation::Constant(bits) => self.b.ins().iconst(I64, bits as i64),
            Representation::Splat(scalar, _) => self.sign_extended(scalar),
            // The unused lanes of a short vector may hold any count: their results are not used.
            _ => return self.per_piece([x, y], |t, [x, y]| t.binary_value(op, dtype, x, y)),
        };
        self.per_piece([x], |t, [x]| {
            let ins = t.b.ins();
            Ok(match op {
                Binary::Shl => ins.ishl(x, by),
                _ if is_signed(dtype) => ins.sshr(x, by),
                _ => ins.ushr(x, by),
            })
        })
    }

    /// Sign-extends a scalar integer to an index.
    pub fn sign_extended(&mut self, scalar: Value) -> Value {
        match self.type_of(scalar) {
            I64 => scalar,
            _ => self.b.ins().sextend(I64, scalar),
        }
    }

    pub fn fma(&mut self, x: V, y: V, z: V) -> Result<Representation> {
        if !self.machine.fma {
            return unsupported("fused arithmetic");
        }
        self.per_piece([x, y, z], |t, [x, y, z]| Ok(t.b.ins().fma(x, y, z)))
    }

    /// Multiplies by `2ⁿ` as two powers of two. For an `x` near 1 the first product is exact, so
    /// only the second rounds: see [`mithril_kernels::code::Inst::Scale`].
    pub fn scale(&mut self, x: V, n: V) -> Result<Representation> {
        let dtype = self.ty(x).dtype;
        let (bits, bias): (_, i64) = if dtype == DType::F32 { (23, 127) } else { (52, 1023) };
        let number = |x: f64| match dtype {
            DType::F32 => (x as f32).to_bits() as u64,
            _ => x.to_bits(),
        };
        // Adding this to a whole number puts its biased exponent into the lowest bits of the sum.
        let rounder = 1.5 * 2f64.powi(bits) + bias as f64;
        let end = (2 * bias - 2) as f64;
        self.per_piece([x, n], |t, [x, n]| {
            let ty = t.type_of(x);
            let int = piece(lane(dtype)?.as_int());
            let [low, high, half, rounder, infinite] =
                [-end, end, 0.5, rounder, f64::INFINITY].map(|x| t.bits(ty, number(x)));
            let whole = t.select_if_less(low, n, [n, low]);
            let whole = t.select_if_less(whole, high, [whole, high]);
            let first = t.b.ins().fmul(whole, half);
            let first = t.b.ins().floor(first);
            let second = t.b.ins().fsub(whole, first);
            let by = t.b.ins().iconst(I64, i64::from(bits));
            let scaled = [first, second].into_iter().fold(x, |x, part| {
                let sum = t.b.ins().fadd(part, rounder);
                let sum = t.recast(int, sum);
                let power = t.b.ins().ishl(sum, by);
                let power = t.recast(ty, power);
                t.b.ins().fmul(x, power)
            });
            // False for a NaN too, so that `n` is the result there.
            let finite = t.compare_floats(FloatCC::LessThan, n, infinite);
            Ok(t.select_value(finite, scaled, n))
        })
    }

    pub fn compare(&mut self, op: Cmp, x: V, y: V) -> Result<Representation> {
        let ty = self.ty(x);
        if ty.dtype == DType::Bool {
            return self.compare_bools(op, x, y);
        }
        self.check_is_number(ty)?;
        let results = self.per_piece([x, y], |t, [x, y]| {
            Ok(match ty.dtype.is_float() {
                true => t.compare_floats(float_condition(op), x, y),
                false => t.compare_integers(op, ty.dtype, x, y),
            })
        })?;
        Ok(match results {
            Representation::Vector(pieces) => {
                Representation::Mask(lane(ty.dtype)?.as_int(), pieces)
            }
            scalar => scalar,
        })
    }

    /// Compares integers: scalars, or pieces. The processor compares vectors of 64-bit integers as
    /// signed ones only, so unsigned ones get their sign bits flipped first.
    fn compare_integers(&mut self, op: Cmp, dtype: DType, x: Value, y: Value) -> Value {
        let ty = self.type_of(x);
        if ty == piece(I64) && !is_signed(dtype) && !matches!(op, Cmp::Eq | Cmp::Ne) {
            let sign = self.bits(ty, 1 << 63);
            let (x, y) = (self.b.ins().bxor(x, sign), self.b.ins().bxor(y, sign));
            return self.b.ins().icmp(condition(op, true), x, y);
        }
        self.b.ins().icmp(condition(op, is_signed(dtype)), x, y)
    }

    fn compare_bools(&mut self, op: Cmp, x: V, y: V) -> Result<Representation> {
        let ty = self.ty(x);
        if ty.lanes == 1 {
            let (x, y) = (self.scalar(x)?, self.scalar(y)?);
            return Ok(Representation::Scalar(self.b.ins().icmp(condition(op, false), x, y)));
        }
        let of = self.mask_lane(x);
        let (x, y) = (self.mask(x, of)?, self.mask(y, of)?);
        // True is -1 here, which is less than 0 as a signed integer, so the operands are swapped.
        let compare = |(x, y)| self.b.ins().icmp(condition(op, true), y, x);
        Ok(Representation::Mask(of, x.into_iter().zip(y).map(compare).collect()))
    }

    pub fn select(&mut self, c: V, x: V, y: V) -> Result<Representation> {
        let Ty { dtype, lanes } = self.ty(x);
        if lanes == 1 {
            let [c, x, y] = [self.scalar(c)?, self.scalar(x)?, self.scalar(y)?];
            return Ok(Representation::Scalar(self.b.ins().select(c, x, y)));
        }
        let bools = dtype == DType::Bool;
        let whole = self.ty(c).lanes == 1;
        let of = match bools {
            true => self.mask_lane(if whole { x } else { c }),
            false => lane(dtype)?.as_int(),
        };
        let (yes, no) = match bools {
            true => (self.mask(x, of)?, self.mask(y, of)?),
            false => (self.pieces(x)?, self.pieces(y)?),
        };
        let conditions = match whole {
            true => std::iter::repeat_n(self.scalar(c)?, yes.len()).collect(),
            false => self.mask(c, of)?,
        };
        let all = conditions.into_iter().zip(yes.into_iter().zip(no));
        let results = all.map(|(c, (yes, no))| self.select_value(c, yes, no)).collect();
        Ok(if bools { Representation::Mask(of, results) } else { Representation::Vector(results) })
    }
}

fn float_condition(op: Cmp) -> FloatCC {
    match op {
        Cmp::Eq => FloatCC::Equal,
        Cmp::Ne => FloatCC::NotEqual,
        Cmp::Lt => FloatCC::LessThan,
        Cmp::Le => FloatCC::LessThanOrEqual,
        Cmp::Gt => FloatCC::GreaterThan,
        Cmp::Ge => FloatCC::GreaterThanOrEqual,
    }
}

fn condition(op: Cmp, signed: bool) -> IntCC {
    match (op, signed) {
        (Cmp::Eq, _) => IntCC::Equal,
        (Cmp::Ne, _) => IntCC::NotEqual,
        (Cmp::Lt, true) => IntCC::SignedLessThan,
        (Cmp::Le, true) => IntCC::SignedLessThanOrEqual,
        (Cmp::Gt, true) => IntCC::SignedGreaterThan,
        (Cmp::Ge, true) => IntCC::SignedGreaterThanOrEqual,
        (Cmp::Lt, false) => IntCC::UnsignedLessThan,
        (Cmp::Le, false) => IntCC::UnsignedLessThanOrEqual,
        (Cmp::Gt, false) => IntCC::UnsignedGreaterThan,
        (Cmp::Ge, false) => IntCC::UnsignedGreaterThanOrEqual,
    }
}
