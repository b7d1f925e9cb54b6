//! Kernels of contractions with a bias and a relu as epilogue.

use std::path::Path;
use std::process::Command;

use mithril_ir::dim::Dim;
use mithril_ir::dtype::DType::{self, *};
use mithril_kernels::builder::Builder;
use mithril_kernels::code::{Binary, Code, V};
use mithril_kernels::contract::{self, Contraction, Layout, Plan, Side, plan};
use mithril_kernels::host::{self, Host};
use mithril_kernels::isa::Isa;
use mithril_native::Options;

/// A contraction; the extents `batch, m, n, k` of which `dynamic` says so are dims of the launch.
#[derive(Clone, Debug)]
pub struct Case {
    pub batch: i64,
    pub m: i64,
    pub n: i64,
    pub k: i64,
    pub dynamic: [bool; 4],
    pub x: Layout,
    pub y: Layout,
    /// Whether all batches have the same `y`.
    pub shared: bool,
    pub dtype: DType,
    pub acc: DType,
}

/// The dtypes of operands and of sums.
#[allow(dead_code)] // Each user takes a part of it.
pub const PAIRS: [(DType, DType); 16] = [
    (F32, F32),
    (F64, F64),
    (F16, F32),
    (F16, F16),
    (BF16, F32),
    (BF16, BF16),
    (F32, F64),
    (I64, I64),
    (I32, I32),
    (I16, I16),
    (I8, I8),
    (I8, I32),
    (U64, U64),
    (U32, U32),
    (U16, U16),
    (U8, U8),
];

pub const PLAIN: Case = Case {
    batch: 1,
    m: 1,
    n: 1,
    k: 1,
    dynamic: [false; 4],
    x: Layout::AlongK,
    y: Layout::AlongOuter,
    shared: false,
    dtype: DType::F32,
    acc: DType::F32,
};

/// The level that MITHRIL_CPU names, or this machine's, as LLVM and as plans see it.
pub fn host() -> (Options, Isa) {
    let host = host::chosen(None).unwrap_or_else(|e| panic!("{e}"));
    // The optional features beyond a level have their own tests.
    let level = Host::parse(host.level.name).unwrap_or_else(|e| panic!("{e}"));
    (
        Options { cpu: level.level.cpu.into(), features: level.features, ..Options::default() },
        level.isa,
    )
}

impl Case {
    pub fn sizes(&self) -> [i64; 4] {
        [self.batch, self.m, self.n, self.k]
    }

    pub fn tasks(&self, plan: &Plan) -> i64 {
        let [batch, m, n, _] = self.sizes().map(Dim::from);
        plan.tasks(&[batch], &m, &n).as_const().expect("a number")
    }

    /// The kernel over buffers x, y, bias and result.
    pub fn code(&self, isa: &Isa) -> (Code, Plan) {
        let mut b = Builder::new(4, 4);
        let c = self.contraction(&mut b);
        let bias = b.buffer(2, self.acc, true);
        let result = b.buffer(3, self.acc, false);
        let plan = plan(&c.shape(&b), isa);
        let (m, n) = (c.m, c.n);
        let acc = self.acc;
        // Halves are added as singles: machines have no other way.
        let half = acc.is_float() && acc.bits() == 16;
        contract::emit(&mut b, &c, &plan, &mut |b, at, value, mask| {
            let lanes = b.ty(value).lanes;
            let added = b.load(bias, at.col, lanes, mask);
            let [value, added] =
                [value, added].map(|v| if half { b.convert(v, DType::F32) } else { v });
            let mut value = b.add(value, added);
            if acc.is_float() {
                let zero = b.number(b.ty(value), 0.0);
                value = b.binary(Binary::Max, value, zero);
            }
            let value = b.convert(value, acc);
            let row = b.mul(at.batch[0], m);
            let row = b.add(row, at.row);
            let start = b.mul(row, n);
            let to = b.add(start, at.col);
            b.store(result, to, value, mask);
        });
        (b.finish(), plan)
    }

    fn contraction(&self, b: &mut Builder) -> Contraction {
        let sizes = self.sizes();
        let [batch, m, n, k] = std::array::from_fn(|i| match self.dynamic[i] {
            true => b.dim(i),
            false => b.index(sizes[i]),
        });
        let packed = self.y == Layout::Packed;
        let x = side(b, (0, self.dtype, self.x), m, k);
        let y = if packed { Layout::AlongOuter } else { self.y };
        let mut y = side(b, (1, self.dtype, y), n, k);
        if self.shared {
            y.batch = vec![b.index(0)];
        }
        Contraction { dtype: self.dtype, acc: self.acc, batch: vec![batch], m, n, k, x, y, packed }
    }

    /// The kernel that packs `y`, which is as `from` says, for the plan: from buffer 1 to 2.
    pub fn pack_code(&self, from: Layout, plan: &Plan) -> Code {
        let mut b = Builder::new(3, 4);
        let c = Case { y: from, ..self.clone() }.contraction(&mut b);
        let to = Side { mem: b.buffer(2, plan.panel_dtype, false), ..c.y.clone() };
        contract::pack(&mut b, &c, plan, &to);
        b.finish()
    }
}

fn side(b: &mut Builder, (buffer, dtype, layout): (usize, DType, Layout), outer: V, k: V) -> Side {
    let mem = b.buffer(buffer, dtype, true);
    let area = b.mul(outer, k);
    let one = b.index(1);
    let [batch, outer, k] = match layout {
        Layout::AlongK => [area, k, one],
        Layout::AlongOuter => [area, one, outer],
        Layout::Strided => [b.times(area, 2), b.times(k, 2), b.index(2)],
        Layout::Packed => unreachable!("it is packed from another"),
        Layout::Gathered => unreachable!("these cases lie in steps"),
    };
    Side { mem, offset: b.index(0), batch: vec![batch], outer, k, gather: None }
}

/// Makes a library of an object.
pub fn link(object: &[u8], library: &Path) {
    let path = library.with_extension("o");
    std::fs::write(&path, object).expect("the object is written");
    let status = Command::new("cc").arg("-shared").args([&path, Path::new("-o"), library]).status();
    assert!(status.expect("cc runs").success());
}
