//! Translates loop code to Cranelift functions: statements, loops and branches.

use std::collections::HashMap;

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::I64;
use cranelift_codegen::ir::{
    AbiParam, Block, BlockArg, Function, InstBuilder, MemFlags, Signature, Type, UserFuncName,
    Value,
};
use cranelift_codegen::isa::CallConv;
use cranelift_frontend::{FunctionBuilder, FunctionBuilderContext};
use mithril_kernels::code::{Binary, Code, Inst, Region, Stmt, Ty, V};

use crate::machine::Machine;
use crate::representation::Representation;
use crate::translator::{KernelArguments, Translator};
use crate::{Result, calls, unsupported};

/// The function of a kernel, which has the runtime's signature, followed by its private functions
/// in order.
pub fn translate(code: &Code, machine: &Machine) -> Result<Vec<Function>> {
    let mut signature = Signature::new(CallConv::SystemV);
    signature.params = vec![AbiParam::new(I64); 5];
    let mut functions = vec![function(code, machine, signature, |translator, params| {
        let [scratch, buffers, dims, first, last] = params[..] else {
            return unsupported("a function without its parameters");
        };
        let mut each = |count: u32, array: Value| -> Vec<Value> {
            let offsets = (0..count as i32).map(|at| at * 8);
            let b = &mut translator.b;
            offsets.map(|at| b.ins().load(I64, MemFlags::trusted(), array, at)).collect()
        };
        let (buffers, dims) = (each(code.buffers, buffers), each(code.dims, dims));
        translator.arguments = Some(KernelArguments { buffers, dims, scratch, first, last });
        translator.block(&code.body)
    })?];
    for own in &code.functions {
        functions.push(function(code, machine, calls::signature(), |translator, params| {
            translator.function(own, params[0])
        })?);
    }
    Ok(functions)
}

/// Builds a function of this signature. `body` emits its statements, given its parameters.
fn function(
    code: &Code,
    machine: &Machine,
    signature: Signature,
    body: impl FnOnce(&mut Translator, &[Value]) -> Result<()>,
) -> Result<Function> {
    let mut function = Function::with_name_signature(UserFuncName::default(), signature);
    let mut context = FunctionBuilderContext::new();
    let mut b = FunctionBuilder::new(&mut function, &mut context);
    let entry = b.create_block();
    b.append_block_params_for_function_params(entry);
    b.switch_to_block(entry);
    let params: Vec<Value> = b.block_params(entry).to_vec();
    let mut translator = Translator {
        code,
        machine,
        b,
        values: vec![Representation::Undefined; code.types.len()],
        sums: vec![None; code.types.len()],
        arguments: None,
        constants: HashMap::new(),
        addresses: HashMap::new(),
        slots: [None; 2],
    };
    body(&mut translator, &params)?;
    translator.b.ins().return_(&[]);
    translator.b.seal_all_blocks();
    translator.b.finalize();
    Ok(function)
}

impl Translator<'_> {
    pub fn block(&mut self, body: &[Stmt]) -> Result<()> {
        body.iter().try_for_each(|stmt| self.stmt(stmt))
    }

    fn stmt(&mut self, stmt: &Stmt) -> Result<()> {
        match &stmt.inst {
            Inst::For { from, to, step, carried, region } => {
                self.repeat(&stmt.results, [*from, *to, *step], carried, region)
            }
            Inst::If { condition, yes, no } => self.choose(&stmt.results, *condition, yes, no),
            // A streaming store only affects speed, so it becomes a plain one.
            Inst::Store { mem, at, value, mask, streaming: _ } => {
                self.store(*mem, *at, *value, *mask)
            }
            Inst::Scatter { mem, at, value, mask } => self.scatter(*mem, *at, *value, *mask),
            Inst::Prefetch { .. } => Ok(()),
            Inst::Tile(_) => unsupported("tiles"),
            Inst::CallPrivate(number, args) => self.call(&stmt.results, *number, args),
            inst => {
                let result = stmt.results[0];
                let ty = self.ty(result);
                if !ty.lanes.is_power_of_two() {
                    return unsupported(format!("vectors of {} lanes", ty.lanes));
                }
                let representation = self.value(ty, inst)?;
                self.set(result, representation);
                self.record_sum(result, inst);
                Ok(())
            }
        }
    }

    fn value(&mut self, ty: Ty, inst: &Inst) -> Result<Representation> {
        match inst {
            Inst::Const(bits) => Ok(Representation::Constant(*bits)),
            Inst::Iota => self.iota(ty),
            Inst::Dim(n) => Ok(Representation::Scalar(self.arguments()?.dims[*n as usize])),
            Inst::First => Ok(Representation::Scalar(self.arguments()?.first)),
            Inst::Last => Ok(Representation::Scalar(self.arguments()?.last)),
            Inst::Unary(op, x) => self.unary(*op, *x),
            Inst::Binary(op, x, y) => self.binary(*op, *x, *y),
            Inst::Fma(x, y, z) => self.fma(*x, *y, *z),
            Inst::Scale(x, n) => self.scale(*x, *n),
            Inst::Compare(op, x, y) => self.compare(*op, *x, *y),
            Inst::Select(c, x, y) => self.select(*c, *x, *y),
            Inst::Convert(x) => self.convert(*x, ty),
            Inst::Bitcast(x) => self.bitcast(*x, ty),
            Inst::Splat(x) => self.splat(*x, ty),
            Inst::Extract(x, lane) => self.extract(*x, *lane),
            Inst::Shuffle(x, y, lanes) => self.shuffle(*x, *y, lanes),
            Inst::Fold(fold, x) => self.fold(*fold, *x),
            Inst::Load { mem, at, mask } => self.load(ty, *mem, *at, *mask),
            Inst::Gather { mem, at, mask } => self.gather(ty, *mem, *at, *mask),
            Inst::DotPairs(..) => unsupported("products of pairs"),
            Inst::MulAdd(..) | Inst::Call(..) => unsupported("portable code"),
            Inst::Store { .. }
            | Inst::Scatter { .. }
            | Inst::Prefetch { .. }
            | Inst::Tile(_)
            | Inst::For { .. }
            | Inst::If { .. }
            | Inst::CallPrivate(..) => unsupported("a statement in place of a value"),
        }
    }

    /// Records a result that is an index plus a constant, since an address can include one
    /// constant.
    fn record_sum(&mut self, result: V, inst: &Inst) {
        let Inst::Binary(op @ (Binary::Add | Binary::Sub), x, y) = *inst else { return };
        if self.ty(result) != Ty::INDEX {
            return;
        }
        let (root, constant) = match (self.constant(x), self.constant(y)) {
            (None, Some(c)) if op == Binary::Add => (x, c as i64),
            (None, Some(c)) => (x, (c as i64).wrapping_neg()),
            (Some(c), None) if op == Binary::Add => (y, c as i64),
            _ => return,
        };
        let (root, before) = self.split_sum(root);
        self.sums[result.0 as usize] = Some((root, before.wrapping_add(constant)));
    }

    /// Splits an index into another index and a constant.
    pub fn split_sum(&self, v: V) -> (V, i64) {
        self.sums[v.0 as usize].unwrap_or((v, 0))
    }

    // Control flow.

    /// Creates a block whose parameters are of these types.
    pub fn new_block(&mut self, types: impl IntoIterator<Item = Type>) -> Block {
        let block = self.b.create_block();
        for ty in types {
            self.b.append_block_param(block, ty);
        }
        block
    }

    /// Continues in this block, which has no constants yet. Returns its parameters.
    pub fn enter(&mut self, block: Block) -> Vec<Value> {
        self.b.switch_to_block(block);
        self.constants.clear();
        self.b.block_params(block).to_vec()
    }

    pub fn flat_all(&mut self, values: &[V]) -> Result<Vec<Value>> {
        let mut flat = Vec::new();
        values.iter().try_for_each(|&v| self.flat(v, &mut flat))?;
        Ok(flat)
    }

    pub fn flat_all_types(&self, values: &[V]) -> Result<Vec<Type>> {
        let mut types = Vec::new();
        for &v in values {
            let (ty, count) = self.flat_types(self.ty(v))?;
            types.extend(std::iter::repeat_n(ty, count));
        }
        Ok(types)
    }

    pub fn set_all(&mut self, values: &[V], flat: &[Value]) -> Result<()> {
        let mut rest = flat;
        for &v in values {
            let (own, others) = rest.split_at(self.flat_types(self.ty(v))?.1);
            self.set_flat(v, own);
            rest = others;
        }
        Ok(())
    }

    /// Emits the statements of a region and returns the values that it yields. Addresses computed
    /// in the region are not reused after it.
    fn region(&mut self, region: &Region) -> Result<Vec<Value>> {
        let addresses = self.addresses.clone();
        self.block(&region.body)?;
        self.addresses = addresses;
        self.flat_all(&region.yields)
    }

    fn repeat(
        &mut self,
        results: &[V],
        [from, to, step]: [V; 3],
        carried: &[V],
        region: &Region,
    ) -> Result<()> {
        let types = self.flat_all_types(carried)?;
        let body = self.new_block([I64].into_iter().chain(types.iter().copied()));
        let exit = self.new_block(types);
        let (begin, end) = (self.scalar(from)?, self.scalar(to)?);
        let start = self.flat_all(carried)?;
        let runs = self.b.ins().icmp(IntCC::SignedLessThan, begin, end);
        self.branch(runs, (body, begin, &start), exit);
        let params = self.enter(body);
        let (counter, inner) = region.params.split_first().expect("a counter");
        self.set(*counter, Representation::Scalar(params[0]));
        self.set_all(inner, &params[1..])?;
        let next = self.region(region)?;
        let (end, step) = (self.scalar(to)?, self.scalar(step)?);
        let after = self.b.ins().iadd(params[0], step);
        let again = self.b.ins().icmp(IntCC::SignedLessThan, after, end);
        self.branch(again, (body, after, &next), exit);
        let left = self.enter(exit);
        self.set_all(results, &left)
    }

    /// Branches to the next iteration of a loop with this counter and these values, or to its exit
    /// with the values.
    fn branch(
        &mut self,
        again: Value,
        (body, counter, values): (Block, Value, &[Value]),
        exit: Block,
    ) {
        let left: Vec<BlockArg> = values.iter().map(|&v| v.into()).collect();
        let next: Vec<BlockArg> = [counter.into()].into_iter().chain(left.clone()).collect();
        self.b.ins().brif(again, body, &next, exit, &left);
    }

    fn choose(&mut self, results: &[V], condition: V, yes: &Region, no: &Region) -> Result<()> {
        let types = self.flat_all_types(results)?;
        let [first, second] = [(); 2].map(|()| self.b.create_block());
        let after = self.new_block(types);
        let condition = self.scalar(condition)?;
        self.b.ins().brif(condition, first, &[], second, &[]);
        for (block, region) in [(first, yes), (second, no)] {
            self.enter(block);
            let left = self.region(region)?;
            self.jump(after, &left);
        }
        let left = self.enter(after);
        self.set_all(results, &left)
    }

    pub fn jump(&mut self, block: Block, values: &[Value]) {
        let values: Vec<BlockArg> = values.iter().map(|&v| v.into()).collect();
        self.b.ins().jump(block, &values);
    }
}
