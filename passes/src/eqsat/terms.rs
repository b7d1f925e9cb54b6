//! The e-graph of a function: classes of equal terms.

use std::sync::Arc;

use egg::{Analysis, DidMerge, EGraph, Id, Language};
use indexmap::IndexSet;
use mithril_ir::attr::Attr;
use mithril_ir::dim::Dim;
use mithril_ir::graph::{Function, Operation, Value};
use mithril_ir::loc::Loc;
use mithril_ir::op::infer::{Infer, infer};
use mithril_ir::op::{Kind, Meaning, Op};
use mithril_ir::shape::Type;
use mithril_ir::symbolic;
use mithril_ir::tensor::Tensor;
use rustc_hash::{FxBuildHasher, FxHashSet};
use smallvec::SmallVec;

use crate::fold_constants;
use crate::rules::Rule;
use crate::rules::matched::{Facts, Producer, uniform};

/// An operation on classes of equal terms. The origin is not part of its identity.
#[derive(Clone, Debug)]
pub struct Term {
    /// Index in [`Operators::operators`].
    pub operator: u32,
    pub operands: SmallVec<[Id; 3]>,
    /// Index in [`Terms::origins`].
    pub origin: u32,
}

/// The operator of a term: everything but its operands.
#[derive(PartialEq, Eq, Hash, Debug)]
// There are few leaves, so their size does not matter.
#[allow(clippy::large_enum_variant)]
pub enum Operator {
    /// A value that is opaque to rules, with the index of its type: an argument, or a result of a
    /// call.
    Leaf(Value, u32),
    Op {
        op: Op,
        attrs: SmallVec<[Attr; 2]>,
        ty: u32,
        known: Option<Arc<[Dim]>>,
    },
}

/// Operators and types, interned: terms refer to them by index.
#[derive(Default)]
pub struct Operators {
    pub operators: IndexSet<Operator, FxBuildHasher>,
    pub types: IndexSet<Type, FxBuildHasher>,
}

/// Facts that hold for all terms of a class.
#[derive(Clone, Debug)]
pub struct Fact {
    /// Index in [`Operators::types`].
    pub ty: u32,
    pub known: Option<Arc<[Dim]>>,
    pub uniform: Option<f64>,
    /// Whether it is computed at compile time.
    pub literal: bool,
}

/// Where a term comes from.
pub struct Origin {
    pub loc: Loc,
    /// The index of the operation in the function; `None` if a rule added the term.
    pub operation: Option<u32>,
    pub rule: Option<&'static Rule>,
    /// The origins of the terms that the rule matched.
    pub from: SmallVec<[u32; 4]>,
}

/// Classes that can become slices of one value, all or none: each with the origin of its slice.
pub type Batch = Vec<(Id, u32)>;

/// A function as an e-graph.
pub struct Terms<'f> {
    pub source: &'f Function,
    pub graph: EGraph<Term, Operators>,
    pub origins: Vec<Origin>,
    /// The class of each value of the source.
    pub classes: Vec<Id>,
    /// Rules that merged a class with an existing one: the rule, the origin of the term that became
    /// unnecessary, and the class.
    pub dropped: Vec<(&'static Rule, u32, Id)>,
    /// The origins of terms that are avoided where the class has another term.
    pub superseded: FxHashSet<u32>,
    /// The term that was last added or found.
    pub newest: Option<Term>,
    /// The operations that are preferred in a class over others.
    pub preferred: Vec<(Id, Op)>,
    /// Groups of terms that are chosen together or not at all.
    pub batches: Vec<Batch>,
}

impl PartialEq for Term {
    fn eq(&self, other: &Term) -> bool {
        self.operator == other.operator && self.operands == other.operands
    }
}

impl Eq for Term {}

impl PartialOrd for Term {
    fn partial_cmp(&self, other: &Term) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Term {
    fn cmp(&self, other: &Term) -> std::cmp::Ordering {
        (self.operator, &self.operands).cmp(&(other.operator, &other.operands))
    }
}

impl std::hash::Hash for Term {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        (self.operator, &self.operands).hash(state);
    }
}

impl Language for Term {
    type Discriminant = u32;

    fn discriminant(&self) -> u32 {
        self.operator
    }

    fn matches(&self, other: &Term) -> bool {
        self.operator == other.operator && self.operands.len() == other.operands.len()
    }

    fn children(&self) -> &[Id] {
        &self.operands
    }

    fn children_mut(&mut self) -> &mut [Id] {
        &mut self.operands
    }
}

impl Analysis<Term> for Operators {
    type Data = Fact;

    fn make(graph: &mut EGraph<Term, Operators>, term: &Term, _: Id) -> Fact {
        match &graph.analysis.operators[term.operator as usize] {
            Operator::Leaf(_, ty) => Fact { ty: *ty, known: None, uniform: None, literal: false },
            Operator::Op { op, attrs, ty, known } => {
                let operand = |i: usize| graph[term.operands[i]].data.uniform;
                let uniform = uniform(*op, attrs, term.operands.len(), &operand);
                let operands = term.operands.iter().all(|id| graph[*id].data.literal);
                let computed =
                    !term.operands.is_empty() && matches!(op.meaning, Meaning::Scalar(_));
                let small = is_small(&graph.analysis.types[*ty as usize]);
                let array = matches!(attrs.first(), Some(Attr::Tensor(_)));
                let literal = operands
                    && match op.kind {
                        Kind::Constant => array || small,
                        _ => fold_constants::is_joined(*op) || (computed && small),
                    };
                Fact { ty: *ty, known: known.clone(), uniform, literal }
            }
        }
    }

    fn merge(&mut self, a: &mut Fact, b: Fact) -> DidMerge {
        let (gains, lacks) = (more(a, &b), more(&b, a));
        a.literal |= b.literal;
        a.known = a.known.take().or(b.known);
        a.uniform = a.uniform.or(b.uniform);
        DidMerge(gains, lacks)
    }
}

/// Whether `b` has facts that `a` lacks.
fn more(a: &Fact, b: &Fact) -> bool {
    (a.known.is_none() && b.known.is_some())
        || (a.uniform.is_none() && b.uniform.is_some())
        || (!a.literal && b.literal)
}

/// Whether it is small enough to be computed at compile time.
fn is_small(ty: &Type) -> bool {
    let count = ty.shape.elements().and_then(|count| count.as_const());
    count.is_some_and(|count| count <= fold_constants::LIMIT as i64)
}

impl<'f> Terms<'f> {
    pub fn new(source: &'f Function) -> Terms<'f> {
        let mut terms = Terms {
            source,
            graph: EGraph::new(Operators::default()),
            origins: Vec::new(),
            classes: Vec::with_capacity(source.values.len()),
            dropped: Vec::new(),
            superseded: FxHashSet::default(),
            newest: None,
            preferred: Vec::new(),
            batches: Vec::new(),
        };
        for (value, _) in source.arguments() {
            terms.leaf(value);
        }
        for (number, op) in source.ops.iter().enumerate() {
            if is_opaque(op) {
                op.results().for_each(|value| terms.leaf(value));
            } else {
                terms.operation(number as u32, op);
            }
        }
        terms.graph.rebuild();
        terms
    }

    fn leaf(&mut self, value: Value) {
        let ty = self.type_number(self.source.ty(value));
        let origin = self.origin(Loc::unknown(), None, None, SmallVec::new());
        let class = self.add(Operator::Leaf(value, ty), SmallVec::new(), origin);
        self.classes.push(class);
    }

    fn operation(&mut self, number: u32, op: &Operation) {
        let info = self.source.info(op.result());
        let ty = self.type_number(&info.ty);
        let operator =
            Operator::Op { op: op.op, attrs: op.attrs.clone(), ty, known: info.known.clone() };
        let operands = op.operands.iter().map(|v| self.classes[v.index()]).collect();
        let origin = self.origin(op.loc.clone(), Some(number), None, SmallVec::new());
        let class = self.add(operator, operands, origin);
        self.classes.push(class);
    }

    pub fn origin(
        &mut self,
        loc: Loc,
        operation: Option<u32>,
        rule: Option<&'static Rule>,
        from: SmallVec<[u32; 4]>,
    ) -> u32 {
        self.origins.push(Origin { loc, operation, rule, from });
        self.origins.len() as u32 - 1
    }

    fn type_number(&mut self, ty: &Type) -> u32 {
        let types = &mut self.graph.analysis.types;
        match types.get_index_of(ty) {
            Some(at) => at as u32,
            None => types.insert_full(ty.clone()).0 as u32,
        }
    }

    fn add(&mut self, operator: Operator, operands: SmallVec<[Id; 3]>, origin: u32) -> Id {
        let operator = self.graph.analysis.operators.insert_full(operator).0 as u32;
        let term = Term { operator, operands, origin }.map_children(|id| self.graph.find(id));
        self.newest = Some(term.clone());
        self.graph.add(term)
    }

    /// Adds an operation; `None` if its operands do not allow it, or if it holds only under guards
    /// on dims.
    pub fn operation_on(
        &mut self,
        op: Op,
        attrs: SmallVec<[Attr; 2]>,
        operands: SmallVec<[Id; 3]>,
        origin: u32,
    ) -> Option<Id> {
        let (ty, known) = self.infer(op, &attrs, &operands)?;
        let ty = self.type_number(&ty);
        Some(self.add(Operator::Op { op, attrs, ty, known }, operands, origin))
    }

    /// The type that an operation would have, and its elements as dims if they are known.
    pub fn infer(
        &self,
        op: Op,
        attrs: &[Attr],
        operands: &[Id],
    ) -> Option<(Type, Option<Arc<[Dim]>>)> {
        let facts = operands.iter().map(|id| &self.graph[*id].data);
        let facts: SmallVec<[&Fact; 3]> = facts.collect();
        let types: SmallVec<[&Type; 3]> =
            facts.iter().map(|fact| &self.graph.analysis.types[fact.ty as usize]).collect();
        let known: SmallVec<[Option<&[Dim]>; 3]> =
            facts.iter().map(|fact| fact.known.as_deref()).collect();
        let (mut guards, mut open) = (Vec::new(), false);
        let mut fresh = || {
            open = true;
            "_".into()
        };
        let mut cx = Infer {
            op,
            operands: &types,
            attrs,
            known: &known,
            guards: &mut guards,
            fresh: &mut fresh,
        };
        let ty = infer(&mut cx).ok()?;
        let known = symbolic::value(&cx, &ty);
        (guards.is_empty() && !open).then_some((ty, known))
    }

    pub fn constant(&mut self, tensor: Tensor, origin: u32) -> Id {
        let op = mithril_ir::op::get("constant");
        let attrs = SmallVec::from_iter([Attr::from(tensor)]);
        self.operation_on(op, attrs, SmallVec::new(), origin).expect("a constant has its type")
    }

    pub fn ty(&self, class: Id) -> &Type {
        &self.graph.analysis.types[self.graph[class].data.ty as usize]
    }

    pub fn operator(&self, term: &Term) -> &Operator {
        &self.graph.analysis.operators[term.operator as usize]
    }

    /// The class of a value of the source.
    pub fn class(&self, value: Value) -> Id {
        self.graph.find(self.classes[value.index()])
    }

    /// The classes that must be computed in any case: results, and operands of calls.
    pub fn roots(&self) -> Vec<Id> {
        let calls = self.source.ops.iter().filter(|op| is_opaque(op));
        let operands = calls.flat_map(|op| op.operands.iter().copied());
        let results = self.source.results.iter().map(|result| result.value);
        operands.chain(results).map(|value| self.class(value)).collect()
    }
}

/// Whether rules treat the operation as opaque: its body is another function, or it does not have
/// exactly one result.
pub fn is_opaque(op: &Operation) -> bool {
    op.op.kind == Kind::Call || op.results != 1
}

pub fn value(class: Id) -> Value {
    Value(usize::from(class) as u32)
}

pub fn class(value: Value) -> Id {
    Id::from(value.index())
}

impl Facts for Terms<'_> {
    fn ty(&self, value: Value) -> &Type {
        Terms::ty(self, class(value))
    }

    fn uniform(&self, value: Value) -> Option<f64> {
        self.graph[class(value)].data.uniform
    }

    fn has_producer(&self, of: Value, by: Op) -> bool {
        let mut terms = self.graph[class(of)].nodes.iter();
        terms.any(|term| matches!(self.operator(term), Operator::Op { op, .. } if *op == by))
    }

    fn producers(&self, of: Value, by: Op) -> SmallVec<[Producer<'_>; 2]> {
        let terms = self.graph[class(of)].nodes.iter();
        let terms = terms.filter(|term| !self.is_of_itself(class(of), term));
        terms.filter_map(|term| self.as_producer(term, by)).collect()
    }
}

impl Terms<'_> {
    /// Whether the term has its own class as an operand, like x + 0. Such a term is never computed,
    /// and rules would match it without end.
    pub fn is_of_itself(&self, class: Id, term: &Term) -> bool {
        let class = self.graph.find(class);
        term.operands.iter().any(|id| self.graph.find(*id) == class)
    }

    /// The term as the matcher sees it, if it is this operation.
    pub fn as_producer(&self, term: &Term, by: Op) -> Option<Producer<'_>> {
        match self.operator(term) {
            Operator::Op { op, attrs, .. } if *op == by => {
                let operands = term.operands.iter().map(|id| value(self.graph.find(*id)));
                let operands = operands.collect();
                Some(Producer { op: *op, operands, attrs, number: term.origin })
            }
            _ => None,
        }
    }
}
