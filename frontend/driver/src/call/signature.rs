//! The types that the arrays of a call must have, and the symbols that their sizes share.

use std::sync::Arc;

use mithril_ir::dim::{Dim, Symbol};
use mithril_ir::dtype::DType;
use mithril_ir::graph::Role;
use mithril_ir::loc::Loc;
use mithril_ir::shape::{Guard, Shape, Type};
use mithril_passes::indexed::Indexed;
use smallvec::SmallVec;

use crate::compile::{Checks, Program};

/// The sizes of an array, one for each axis.
pub type Sizes = SmallVec<[i64; 6]>;

/// The argument of a call that an array belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Group {
    Params,
    Inputs,
    State,
    OutputGradients,
}

impl Group {
    pub const ALL: [Group; 4] =
        [Group::Params, Group::Inputs, Group::State, Group::OutputGradients];

    pub fn name(self) -> &'static str {
        match self {
            Group::Params => "params",
            Group::Inputs => "inputs",
            Group::State => "state",
            Group::OutputGradients => "output_gradients",
        }
    }

    fn of(role: Role) -> Group {
        match role {
            Role::Param => Group::Params,
            Role::Data | Role::Key | Role::Constant => Group::Inputs,
            Role::State => Group::State,
            Role::Cotangent => Group::OutputGradients,
        }
    }
}

/// One array of a call.
pub struct Slot {
    pub name: Arc<str>,
    pub group: Group,
    /// Whether it may be omitted. Omitted output gradients are zeros.
    pub optional: bool,
    /// Whether its dtype comes from the array of a call. An array of another dtype then needs
    /// another program.
    pub dtype_of_call: bool,
    pub ty: Type,
    /// The symbol of the leading rank variable, if any, and the rule for each dim.
    pub lead: Option<usize>,
    pub dims: SmallVec<[SizeRule; 4]>,
    /// The blocks that read it.
    pub readers: Loc,
    /// Whether integers of other dtypes are converted.
    pub any_integer: bool,
    /// Whether some of its elements index an axis.
    pub indexes: bool,
    /// Whether a dim is an expression, which can be checked only when all symbols are known.
    late: bool,
}

/// The rule that one size must satisfy.
pub enum SizeRule {
    Is(i64),
    /// The value of this symbol, which the first array that has the symbol sets.
    Symbol(usize),
    Equals(Dim),
    Anything,
}

/// All arrays of a program, with the constraints between their sizes.
pub struct Signature {
    pub slots: Vec<Slot>,
    pub symbols: Vec<Symbol>,
    pub leads: Vec<Symbol>,
    pub guards: Vec<Guard>,
    /// The named values inside the model, each with the block that computes it.
    pub inner: Vec<(Arc<str>, Arc<str>)>,
    /// The checks of indices, each with the slot that it reads.
    pub indexed: Vec<(usize, Indexed)>,
    /// Whether indices are also checked on devices.
    pub everywhere: bool,
}

/// The values of the symbols in one call.
#[derive(Clone)]
pub struct Binding {
    /// A negative value is not known yet.
    pub values: SmallVec<[i64; 8]>,
    pub leads: SmallVec<[Option<Sizes>; 1]>,
    /// The sizes of slots that are checked once all symbols are known.
    late: SmallVec<[(usize, Sizes); 1]>,
}

/// A mismatch that is found once all symbols are known.
pub enum Mismatch {
    Slot(usize),
    /// The position of the guard, and the values of the dims.
    Guard(usize, Box<Binding>),
}

impl Signature {
    /// `rename` maps a dtype to the dtype that the framework uses instead.
    pub fn new(program: &Program, rename: &dyn Fn(DType) -> DType) -> Signature {
        let mut signature = Signature {
            slots: Vec::new(),
            symbols: Vec::new(),
            leads: Vec::new(),
            guards: program.guards.clone(),
            inner: program.inner.clone(),
            indexed: Vec::new(),
            everywhere: program.checks() == Checks::All,
        };
        for (at, arg) in program.arguments.iter().enumerate() {
            let readers = arg.readers.clone();
            signature.add(&arg.name, Group::of(arg.role), &arg.ty, readers, rename);
            let own = program.indexed.iter().filter(|own| own.argument == arg.name);
            signature.indexed.extend(own.map(|own| (at, own.clone())));
            let indexes = signature.indexed.iter().any(|(own, _)| *own == at);
            let slot = &mut signature.slots[at];
            (slot.dtype_of_call, slot.indexes) = (arg.dtype_of_call, indexes);
            slot.any_integer = arg.takes_any_integer(slot.ty.dtype);
        }
        for result in program.results.iter().filter(|r| r.state.is_none()) {
            if result.ty.dtype.is_float() {
                let (group, readers) = (Group::OutputGradients, Loc::unknown());
                signature.add(&result.name, group, &result.ty, readers, rename);
            }
        }
        signature
    }

    fn add(
        &mut self,
        name: &Arc<str>,
        group: Group,
        ty: &Type,
        readers: Loc,
        rename: &dyn Fn(DType) -> DType,
    ) -> &mut Slot {
        let lead = ty.shape.lead.as_ref().map(|own| position(&mut self.leads, own));
        ty.shape.for_each_symbol(&mut |own| {
            if ty.shape.lead.as_ref() != Some(own) {
                position(&mut self.symbols, own);
            }
        });
        let dims = self.size_rules(&ty.shape);
        let slot = Slot {
            name: name.clone(),
            group,
            optional: group == Group::OutputGradients,
            dtype_of_call: false,
            readers,
            any_integer: false,
            indexes: false,
            lead,
            ty: Type::new(rename(ty.dtype), ty.shape.clone()),
            late: dims.iter().any(|want| matches!(want, SizeRule::Equals(_))),
            dims,
        };
        self.slots.push(slot);
        self.slots.last_mut().expect("it has just been added")
    }

    /// The rules for the dims of a shape.
    pub fn size_rules(&self, shape: &Shape) -> SmallVec<[SizeRule; 4]> {
        let position = |own: &Symbol| self.symbols.iter().position(|symbol| symbol == own);
        let want = |dim: &Dim| match (dim.as_const(), dim.as_symbol().and_then(position)) {
            (Some(size), _) => SizeRule::Is(size),
            (None, Some(symbol)) => SizeRule::Symbol(symbol),
            _ if dim.is_unknown() => SizeRule::Anything,
            _ => SizeRule::Equals(dim.clone()),
        };
        shape.dims.iter().map(want).collect()
    }

    pub fn binding(&self) -> Binding {
        Binding {
            values: SmallVec::from_elem(-1, self.symbols.len()),
            leads: SmallVec::from_elem(None, self.leads.len()),
            late: SmallVec::new(),
        }
    }

    /// Binds the symbols of a slot to the sizes of its array. Returns false if they do not fit.
    pub fn take(&self, at: usize, sizes: &[i64], binding: &mut Binding) -> bool {
        let slot = &self.slots[at];
        if slot.late {
            binding.late.push((at, sizes.into()));
        }
        binding.take(slot, sizes)
    }

    /// Checks the dims that are expressions, and the guards. They need the values of all symbols.
    pub fn check_late(&self, binding: &Binding) -> Result<(), Mismatch> {
        for (at, sizes) in &binding.late {
            let dims = &self.slots[*at].dims;
            let front = sizes.len() - dims.len();
            let fits = dims.iter().zip(&sizes[front..]).all(|(want, size)| match want {
                SizeRule::Equals(dim) => self.evaluate(dim, binding).is_none_or(|v| v == *size),
                SizeRule::Is(_) | SizeRule::Symbol(_) | SizeRule::Anything => true,
            });
            if !fits {
                return Err(Mismatch::Slot(*at));
            }
        }
        for (at, guard) in self.guards.iter().enumerate() {
            let sides = [&guard.left, &guard.right].map(|side| self.evaluate(side, binding));
            if let [Some(left), Some(right)] = sides {
                if left != right {
                    return Err(Mismatch::Guard(at, Box::new(binding.clone())));
                }
            }
        }
        Ok(())
    }

    /// The value of a dim. `None` if it has unknown symbols.
    pub fn evaluate(&self, dim: &Dim, binding: &Binding) -> Option<i64> {
        dim.evaluate(&|symbol| {
            let at = self.symbols.iter().position(|s| s == symbol)?;
            (binding.values[at] >= 0).then_some(binding.values[at])
        })
    }
}

/// The position of a symbol, which is appended if it is new.
fn position(all: &mut Vec<Symbol>, own: &Symbol) -> usize {
    all.iter().position(|symbol| symbol == own).unwrap_or_else(|| {
        all.push(own.clone());
        all.len() - 1
    })
}

impl Binding {
    fn take(&mut self, slot: &Slot, sizes: &[i64]) -> bool {
        let Some(front) = sizes.len().checked_sub(slot.dims.len()) else {
            return false;
        };
        let (leading, trailing) = sizes.split_at(front);
        match slot.lead.map(|at| &mut self.leads[at]) {
            None if front > 0 => return false,
            None => {}
            Some(Some(known)) if known[..] != *leading => return false,
            Some(known) => *known = Some(leading.into()),
        }
        slot.dims.iter().zip(trailing).all(|(want, size)| match want {
            SizeRule::Is(own) => own == size,
            SizeRule::Symbol(at) if self.values[*at] < 0 => {
                self.values[*at] = *size;
                true
            }
            SizeRule::Symbol(at) => self.values[*at] == *size,
            SizeRule::Equals(_) | SizeRule::Anything => true,
        })
    }
}
