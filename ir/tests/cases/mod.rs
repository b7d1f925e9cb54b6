//! Random uses of the operations of the table: operands and attributes by what the table says of
//! them, kept where inference accepts them. Of single operations it knows which are symmetric.
#![allow(dead_code)]

pub mod modules;
pub mod shapes;

use mithril_ir::attr::{Attr, AttrKind};
use mithril_ir::builder::Builder;
use mithril_ir::dim::Dim;
use mithril_ir::dtype::DType;
use mithril_ir::graph::{Function, ResultDef, Role, Value};
use mithril_ir::op::{Arity, AttrDef, Class, Default, Kind, Op};
use mithril_ir::shape::{Shape, Type};
use mithril_ir::tensor::Tensor;
use smallvec::SmallVec;

/// Whether every case is tested, not a sample: where `MITHRIL_TESTS` is `all`.
pub fn every() -> bool {
    std::env::var("MITHRIL_TESTS").is_ok_and(|tests| tests == "all")
}

/// The seed of samples: `MITHRIL_SEED`, or 0.
pub fn seed() -> u64 {
    std::env::var("MITHRIL_SEED").map_or(0, |seed| seed.parse().expect("a number"))
}

/// Whether a sample of one case in `part` has this case. Without samples, the shard has it.
pub fn is_sampled(case: usize, part: u64) -> bool {
    match every() {
        true => in_shard(case),
        false => case as u64 % part == seed() % part,
    }
}

/// Whether this case belongs to the part of all cases that `MITHRIL_SHARD` names: `2/4` is the
/// second quarter. Without it, all cases do.
pub fn in_shard(case: usize) -> bool {
    let named = std::env::var("MITHRIL_SHARD").ok().filter(|shard| !shard.is_empty());
    named.is_none_or(|shard| {
        let numbers =
            shard.split_once('/').and_then(|(k, n)| Some((k.parse().ok()?, n.parse().ok()?)));
        let (number, count): (usize, usize) = numbers.expect("MITHRIL_SHARD is like 2/4");
        case % count == number - 1
    })
}

/// A generator of pseudorandom numbers (splitmix64): the same cases in every run.
pub struct Random(pub u64);

impl Random {
    /// Seeded by a name and a number, so that a new operation leaves the inputs of others alone.
    pub fn named(name: &str, number: u64) -> Random {
        let mix = |seed: u64, byte: u8| seed.wrapping_mul(31).wrapping_add(u64::from(byte));
        Random(name.bytes().fold(number, mix))
    }

    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `limit`.
    pub fn below(&mut self, limit: usize) -> usize {
        (self.bits() % limit.max(1) as u64) as usize
    }

    pub fn range(&mut self, low: i64, high: i64) -> i64 {
        low + self.below((high - low) as usize) as i64
    }

    pub fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    /// Uniform in (0, 1).
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64 + 1e-17
    }

    pub fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len())]
    }
}

/// One use of an operation: types of operands and complete attributes.
#[derive(Clone, Debug)]
pub struct Case {
    pub op: Op,
    pub operands: Vec<Type>,
    pub attrs: SmallVec<[Attr; 2]>,
}

/// Operations on symmetric matrices.
const SYMMETRIC: [&str; 3] = ["cholesky", "eigh", "eigvalsh"];

/// The dtypes that an operand of this class may have.
pub fn dtypes(class: Class) -> Vec<DType> {
    DType::ALL.into_iter().filter(|d| class.accepts(*d)).collect()
}

impl Case {
    /// A use that inference accepts. `dtype` chooses the shared dtype, where the class allows it.
    /// `None`: none was found.
    pub fn find(op: Op, random: &mut Random, dtype: Option<DType>) -> Option<Case> {
        (0..100_000).map(|_| Case::guess(op, random, dtype)).find(|case| case.function().is_some())
    }

    /// A use that may be wrong in any way.
    pub fn guess(op: Op, random: &mut Random, dtype: Option<DType>) -> Case {
        let base = shapes::base(random);
        let mut classes = op.operands.iter().filter(|o| o.shared).map(|o| o.class);
        let shared = classes.next().map(|class| {
            let all = dtypes(class);
            match dtype.filter(|d| all.contains(d)) {
                Some(dtype) => dtype,
                None => *random.pick(&all),
            }
        });
        let mut operands = Vec::new();
        for operand in op.operands {
            let count = match operand.arity {
                Arity::One => 1,
                Arity::Optional => random.below(2),
                Arity::Many => 1 + random.below(3),
            };
            for _ in 0..count {
                let own = *random.pick(&dtypes(operand.class));
                let ty = match operand.class {
                    Class::Key => Type::new(DType::U32, Shape::fixed(&[2])),
                    _ => Type::new(
                        if operand.shared { shared.unwrap_or(own) } else { own },
                        Shape::fixed(&match operands.len() {
                            0..=2 => shapes::variation(&base, random),
                            _ => shapes::close_variation(&base, random),
                        }),
                    ),
                };
                operands.push(ty);
            }
            if count == 0 {
                break;
            }
        }
        let mut attrs: SmallVec<[Attr; 2]> = SmallVec::new();
        for def in op.attrs {
            let attr = attr(op, def, &operands, &attrs, &base, random);
            attrs.push(attr);
        }
        Case { op, operands, attrs }
    }

    /// The function that consists of only this operation; `None` if inference reports an error.
    pub fn function(&self) -> Option<Function> {
        let builder = Builder::new("main");
        let values = self.arguments(&builder);
        let value = builder.push(self.op, &values, self.attrs.clone()).ok()?;
        builder.finish(vec![result("output", value)]).ok()
    }

    pub fn arguments(&self, builder: &Builder) -> Vec<Value> {
        let types = self.operands.iter().enumerate();
        types.map(|(i, ty)| builder.arg(format!("x{i}"), Role::Data, ty.clone())).collect()
    }

    /// Operands of these types; their dims are numbers.
    pub fn tensors(&self, random: &mut Random) -> Vec<Tensor> {
        let each = self.operands.iter().enumerate();
        each.map(|(i, ty)| match self.op.operand(i).class {
            Class::Wide => matrices(ty, random),
            _ => tensor(ty, random),
        })
        .collect()
    }

    /// The element that changes along with this one if the operand is a symmetric matrix of this
    /// shape: the operation reads one triangle, and its gradient is symmetric.
    pub fn mirrored(&self, shape: &[usize], at: usize) -> Option<usize> {
        let n = *shape.last()?;
        let (matrix, row, column) = (at / (n * n), at / n % n, at % n);
        let symmetric = SYMMETRIC.contains(&self.op.name) && row != column;
        symmetric.then_some(matrix * n * n + column * n + row)
    }

    /// The numbers above 1 among the dims of its operands, each once.
    fn sizes(&self) -> Vec<i64> {
        let dims = self.operands.iter().flat_map(|ty| ty.shape.dims.iter());
        let mut sizes: Vec<i64> = dims.filter_map(Dim::as_const).filter(|n| *n > 1).collect();
        sizes.sort_unstable();
        sizes.dedup();
        sizes
    }

    /// The case with a symbol for each number above 1 among its dims; `size` says which it was.
    /// Where inference has to know some of them, these stay numbers.
    pub fn symbolic(&self) -> Case {
        let sizes = self.sizes();
        let mut sets: Vec<u32> = (0..1 << sizes.len()).collect();
        sets.sort_by_key(|set| (std::cmp::Reverse(set.count_ones()), *set));
        let form = |set: u32| {
            let open = |n| sizes.iter().position(|own| *own == n).filter(|at| set >> at & 1 == 1);
            self.with_dims(&|n| open(n).map(|_| Dim::symbol(format!("s{n}").as_str())))
        };
        let accepted = sets.iter().map(|set| form(*set)).find(|case| case.function().is_some());
        accepted.unwrap_or_else(|| form(sets[0]))
    }

    /// The case with symbols for all, some or none of the numbers that [`Case::symbolic`] has them
    /// for.
    pub fn opened(&self, random: &mut Random) -> Case {
        let mut sizes = self.sizes();
        let percent = *random.pick(&[0, 50, 100]);
        sizes.retain(|_| random.chance(percent));
        self.with_dims(&|n| sizes.contains(&n).then(|| Dim::symbol(format!("s{n}").as_str())))
    }

    /// The case with other sizes, of up to 33, for those of its operands. `None`: there are none,
    /// inference accepts none that were tried, or the operands have more than 20,000 elements.
    pub fn resized(&self, random: &mut Random) -> Option<Case> {
        let sizes = self.sizes();
        if sizes.is_empty() {
            return None;
        }
        let elements = |case: &Case| -> usize {
            let shapes = case.operands.iter().filter_map(|ty| ty.shape.as_fixed());
            shapes.map(|dims| dims.iter().product::<usize>()).sum()
        };
        let one = |random: &mut Random| {
            let chosen: Vec<i64> = sizes.iter().map(|_| random.range(1, 34)).collect();
            let place = |n| sizes.iter().position(|own| *own == n);
            self.with_dims(&|n| place(n).map(|at| Dim::Const(chosen[at])))
        };
        let mut tried = (0..20).map(|_| one(random));
        tried.find(|case| elements(case) <= 20_000 && case.function().is_some())
    }

    /// The case with other dims: `other` gives them for the numbers of this one.
    fn with_dims(&self, other: &dyn Fn(i64) -> Option<Dim>) -> Case {
        let dim = |d: &Dim| d.as_const().and_then(other).unwrap_or_else(|| d.clone());
        let shape =
            |s: &Shape| Shape { lead: s.lead.clone(), dims: s.dims.iter().map(dim).collect() };
        let seen_key = self.op.operands.iter().any(|o| o.class == Class::Key);
        if seen_key {
            return self.clone();
        }
        let bounds = ["starts", "limits"];
        let names = self.op.attrs.iter().map(|a| a.name);
        let attrs = self.attrs.iter().zip(names).map(|(attr, name)| match attr {
            Attr::Shape(s) if !bounds.contains(&name) => shape(s).into(),
            other => other.clone(),
        });
        let types = self.operands.iter();
        let is_key = |i: usize| self.op.operand(i).class == Class::Key;
        Case {
            op: self.op,
            operands: types
                .enumerate()
                .map(|(i, ty)| match is_key(i) {
                    true => ty.clone(),
                    false => Type::new(ty.dtype, shape(&ty.shape)),
                })
                .collect(),
            attrs: attrs.collect(),
        }
    }
}

/// The number that a symbol of a symbolic case stands for.
pub fn size(symbol: &mithril_ir::dim::Symbol) -> Option<i64> {
    symbol.as_str().strip_prefix('s')?.parse().ok()
}

pub fn result(name: &str, value: Value) -> ResultDef {
    ResultDef { name: name.into(), value, state: None }
}

/// Elements that suit any operation: moderate numbers, and indices that are mostly in range.
pub fn tensor(ty: &Type, random: &mut Random) -> Tensor {
    let shape = ty.shape.as_fixed().expect("the case has fixed shapes");
    let count: usize = shape.iter().product();
    let values: Vec<f64> = (0..count)
        .map(|_| match ty.dtype {
            DType::Bool => random.below(2) as f64,
            d if d.is_float() => (random.unit() - 0.5) * 4.0,
            d if d.is_unsigned_int() => random.below(4) as f64,
            _ => random.range(-2, 5) as f64,
        })
        .collect();
    Tensor::from_f64s(ty.dtype, shape, &values)
}

/// Elements of matrices that can be factorised. Square ones are positive definite by either
/// triangle, and far from singular.
fn matrices(ty: &Type, random: &mut Random) -> Tensor {
    let tensor = tensor(ty, random);
    let &[.., rows, columns] = tensor.shape() else {
        return tensor;
    };
    if rows != columns || rows < 2 {
        return tensor;
    }
    let element = |(at, v): (usize, f64)| match at / columns % rows == at % columns {
        // Eigenvalues are far from each other.
        true => 2.0 + (at % columns) as f64 + v / 8.0,
        false => v / rows as f64,
    };
    let elements: Vec<f64> = tensor.to_f64s().into_iter().enumerate().map(element).collect();
    Tensor::from_f64s(ty.dtype, tensor.shape().to_vec(), &elements)
}

pub fn attr(
    op: Op,
    def: &AttrDef,
    operands: &[Type],
    before: &[Attr],
    base: &[usize],
    random: &mut Random,
) -> Attr {
    if let Some(default) = def.default.value() {
        if random.chance(35) {
            return default;
        }
    }
    // What a symbol stands for does not matter here.
    let size = |d: &Dim| d.as_const().map_or(2, |c| c as usize);
    let sizes = |ty: &Type| -> Vec<usize> { ty.shape.dims.iter().map(size).collect() };
    let first = operands.first().map(sizes);
    // Axes are those of the first operand, or of the result's shape where that is given.
    let given = before.iter().find_map(|a| match a {
        Attr::Shape(s) => s.as_fixed(),
        _ => None,
    });
    let own = first.clone().unwrap_or_default();
    let rank = given.as_ref().unwrap_or(&own).len();
    let listed = before.iter().find_map(|a| match a {
        Attr::Ints(v) => Some(v.len()),
        _ => None,
    });
    let length = listed.unwrap_or(own.len());
    match def.kind {
        AttrKind::Bool => Attr::Bool(random.chance(50)),
        AttrKind::Int => match def.name {
            "count" | "classes" => Attr::Int(random.range(0, 5)),
            "data" => Attr::Int(random.bits() as i64),
            "of" => Attr::Int(random.range(0, 3)),
            _ => Attr::Int(random.range(-(rank as i64) - 1, rank as i64 + 1)),
        },
        AttrKind::Float => Attr::Float(match def.name {
            "min" | "low" => -random.unit(),
            // The slope of a cap far below the scores is a small difference.
            "softcap" => 1.0 + random.unit(),
            _ => random.unit(),
        }),
        AttrKind::Str => match def.name {
            "norm" => Attr::Str((*random.pick(&["backward", "ortho", "forward"])).into()),
            _ => Attr::Str("text".into()),
        },
        AttrKind::DType => Attr::DType(*random.pick(&DType::ALL)),
        AttrKind::Ints => Attr::ints(shapes::ints(def.name, rank, length, random)),
        AttrKind::Shape if length != own.len() || op.attrs[0].name == "axes" => {
            let low = if def.name == "starts" { -2 } else { 0 };
            Shape::new((0..length).map(|_| Dim::Const(random.range(low, 5)))).into()
        }
        AttrKind::Shape => shapes::target(&own, base, random).into(),
        AttrKind::Function => Attr::Function("callee".into()),
        AttrKind::Tensor => {
            tensor(&Type::new(*random.pick(&DType::ALL), Shape::fixed(base)), random).into()
        }
    }
}

/// Whether the attribute may be left out altogether.
pub fn optional(def: &AttrDef) -> bool {
    matches!(def.default, Default::None)
}

/// The operations that stand on their own: all but calls.
pub fn operations() -> impl Iterator<Item = Op> {
    mithril_ir::op::table().filter(|op| op.kind != Kind::Call)
}
