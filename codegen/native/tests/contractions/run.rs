//! Runs the code of contractions between pages that may not be touched.

use mithril_kernels::code;
use mithril_kernels::contract::{Layout, Plan};
use mithril_kernels::legalize::legalize;
use mithril_kernels::mlir;
use mithril_native::{Stage, compile};
use mithril_runtime::code::Code;
use mithril_runtime::kernel::Kernel;

use crate::levels::Level;
use crate::list::Form;
use crate::matmul::Case;
use crate::numbers::Numbers;
use crate::room::Room;

/// Which compiler makes the code.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Compiler {
    Cranelift,
    Llvm,
}

/// Code and the function in it.
struct Made {
    kernel: Kernel,
    _code: Code,
}

/// A contraction's code at a level.
pub struct Contraction<'a> {
    level: &'a Level,
    form: Form,
    case: Case,
    pub plan: Plan,
    kernel: Made,
    /// What packs `y`.
    pack: Option<Made>,
}

/// Memory for operands, results and scratch.
pub struct Memory {
    x: Room,
    y: Room,
    packed: Room,
    bias: Room,
    results: Room,
    scratch: Room,
    /// How often something ran.
    turns: usize,
}

fn make(level: &Level, compiler: Compiler, mut code: code::Code) -> Made {
    legalize(&mut code, &level.isa);
    let code = match compiler {
        Compiler::Cranelift => {
            let machine = level.instant.as_ref().expect("a level of Cranelift's");
            let made = machine.compile(&code).unwrap_or_else(|e| panic!("{e}"));
            Code::of_function("kernel", &made).expect("memory")
        }
        Compiler::Llvm => {
            let text = mlir::print(&code);
            let object = compile(&text, &level.options, Stage::Object);
            let object = object.unwrap_or_else(|e| panic!("{e}\n{text}"));
            Code::load(&object).unwrap_or_else(|e| panic!("{e}\n{text}"))
        }
    };
    Made { kernel: code.kernel("kernel").expect("the kernel"), _code: code }
}

impl Contraction<'_> {
    pub fn new(level: &Level, form: Form, compiler: Compiler) -> Contraction<'_> {
        let case = form.case();
        let (code, plan) = case.code(&level.isa);
        let kernel = make(level, compiler, code);
        let packed = form.y == Layout::Packed;
        let pack = packed.then(|| make(level, compiler, case.pack_code(Layout::AlongK, &plan)));
        Contraction { level, form, case, plan, kernel, pack }
    }

    /// Runs it with these extents, and compares.
    pub fn check(&self, memory: &mut Memory, numbers: &Numbers, sizes: [i64; 3]) {
        let [m, n, k] = sizes;
        let case = Case { m, n, k, ..self.case.clone() };
        let dims = case.sizes();
        let tasks = case.tasks(&self.plan);
        memory.turns += 1;
        let at_end = !memory.turns.is_multiple_of(4);
        memory.scratch(self.plan.scratch_bytes(), memory.turns.is_multiple_of(37) || n == 0);
        memory.operands(numbers, &self.form, sizes, at_end);
        if let Some(pack) = &self.pack {
            let strips = (n as u64).div_ceil(self.plan.strip() as u64) as i64;
            let depth = (k as u64).next_multiple_of(self.plan.unit as u64) as i64;
            let bytes =
                (strips * self.plan.strip() * depth) as usize * self.plan.panel_dtype.bytes();
            memory.packed.take(bytes, at_end).fill(0xFF);
            let buffers = [memory.x.start(), memory.y.start(), memory.packed.start()];
            // SAFETY: it is a kernel for these buffers.
            unsafe {
                (pack.kernel)(memory.scratch.start(), buffers.as_ptr(), dims.as_ptr(), 0, strips);
            }
        }
        let bytes = (m * n) as usize * self.form.dtypes.1.bytes();
        memory.results.take(bytes, at_end).fill(0xCC);
        let y = if self.pack.is_some() { &mut memory.packed } else { &mut memory.y };
        let y = y.start();
        let buffers = [memory.x.start(), y, memory.bias.start(), memory.results.start()];
        let split = tasks / 3;
        let ranges = match memory.turns % 2 {
            0 => [(split, tasks), (0, split)],
            _ => [(0, tasks), (tasks, tasks)],
        };
        for (first, last) in ranges {
            let scratch = memory.scratch.start();
            // SAFETY: it is a kernel for these buffers.
            unsafe { (self.kernel.kernel)(scratch, buffers.as_ptr(), dims.as_ptr(), first, last) };
        }
        memory.scratch.read();
        if self.pack.is_some() {
            memory.packed.read();
        }
        if let Some(at) = numbers.differs(sizes, memory.results.read()) {
            let Contraction { level, form, plan, .. } = self;
            panic!("{}: {form:?}\nof {sizes:?} differs at {at:?}\n{plan:?}", level.name);
        }
    }
}

impl Memory {
    pub fn new() -> Memory {
        let [x, y, packed, bias, results, scratch] = std::array::from_fn(|_| Room::new());
        Memory { x, y, packed, bias, results, scratch, turns: 0 }
    }

    /// Scratch memory of which no bit is zero, anew where `fresh`.
    fn scratch(&mut self, bytes: usize, fresh: bool) {
        let scratch = self.scratch.take(bytes.next_multiple_of(64), true);
        if fresh {
            scratch.fill(0xFF);
        }
    }

    fn operands(&mut self, numbers: &Numbers, form: &Form, [m, n, k]: [i64; 3], at_end: bool) {
        let bytes = form.dtypes.0.bytes();
        let operand = |room: &mut Room, y: bool, layout: Layout, outer: i64| {
            let to = room.take(Numbers::room(layout, outer, k) * bytes, at_end);
            if layout == Layout::Strided {
                to.fill(0xFF);
            }
            numbers.write(y, layout, [outer, k], to);
        };
        operand(&mut self.x, false, form.x, m);
        operand(&mut self.y, true, form.y, n);
        let bias = numbers.bias(n);
        self.bias.take(bias.len(), at_end).copy_from_slice(bias);
    }
}
