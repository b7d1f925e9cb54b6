//! Scalar expressions: the meaning of an elementwise op or of a derivative.

pub use super::node::Node;
use super::{Prim, Scalar, Signature, apply, parse};
use crate::dtype::DType;

/// How the dtype of a node is determined.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Kind {
    /// The dtype that the expression is evaluated in.
    Value,
    Bool,
    /// An operand with its own dtype; it is only ever cast.
    Foreign,
}

/// A scalar expression in SSA form: operands precede their users, and no two nodes are equal.
#[derive(Clone, PartialEq, Debug)]
pub struct Expr {
    nodes: Vec<Node>,
    kinds: Vec<Kind>,
    root: u16,
}

impl Expr {
    /// Parses an expression. Operators, precedence and literals are Python's; calls are by the
    /// primitives' names; `inf`, `nan`, `pi` and `e` are numbers; names may be bound after `where`:
    /// `x * t where t = 1 / (1 + u); u = exp(-x)` (a binding may use later ones too; cycles are
    /// errors). `cast(x)` casts a bool, or an operand of another dtype, to the dtype that the
    /// expression is evaluated in.
    ///
    /// # Errors
    /// The problem and its column; also if bools and numbers are mixed.
    pub fn parse(text: &str, operands: &[&str], attrs: &[&str]) -> Result<Expr, String> {
        let nodes = parse::parse(text, operands, attrs)
            .map_err(|(column, what)| format!("column {}: {what}, in `{text}`", column + 1))?;
        Expr::new(nodes).map_err(|what| format!("{what}, in `{text}`"))
    }

    /// From nodes, of which the last is the root.
    fn new(nodes: Vec<Node>) -> Result<Expr, String> {
        let kinds = infer_kinds(&nodes)?;
        Ok(Expr { root: (nodes.len() - 1) as u16, nodes, kinds })
    }

    /// All nodes, operands before their users.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// The kind of node `i`.
    pub fn kind(&self, i: u16) -> Kind {
        self.kinds[i as usize]
    }

    /// The node that is the result.
    pub fn root(&self) -> u16 {
        self.root
    }

    /// Whether the result is bool whatever dtype the operands have.
    pub fn is_test(&self) -> bool {
        self.kind(self.root) == Kind::Bool
    }

    /// The kind in which operand `var` is read; `None` if it is not read.
    pub fn var_kind(&self, var: u8) -> Option<Kind> {
        let i = self.nodes.iter().position(|n| *n == Node::Var(var))?;
        Some(self.kinds[i])
    }

    /// How many operands and attributes must be given: one more than the last index that is read.
    pub fn reads(&self) -> (usize, usize) {
        self.nodes.iter().fold((0, 0), |(vars, attrs), node| match *node {
            Node::Var(v) => (vars.max(v as usize + 1), attrs),
            Node::Attr(a) => (vars, attrs.max(a as usize + 1)),
            Node::Const(_) | Node::Prim(..) => (vars, attrs),
        })
    }

    /// Evaluates the expression on operands of `dtype` (bools where they are read as such; a
    /// foreign operand counts as f64 or i64). Every primitive rounds to `dtype`.
    ///
    /// # Panics
    /// If an operand or attribute that is read is not given; see [`Expr::reads`].
    pub fn eval(&self, dtype: DType, vars: &[Scalar], attrs: &[Scalar]) -> Scalar {
        let own = vars.iter().map(|v| match v {
            Scalar::F(_) => DType::F64,
            Scalar::I(_) => DType::I64,
        });
        let own: Vec<DType> = own.collect();
        self.eval_into(&mut Vec::new(), dtype, &own, vars, attrs)
    }

    /// As [`Expr::eval`], where `own` gives the dtypes of foreign operands. `values` is scratch
    /// space, which saves an allocation per element.
    pub fn eval_into(
        &self,
        values: &mut Vec<Scalar>,
        dtype: DType,
        own: &[DType],
        vars: &[Scalar],
        attrs: &[Scalar],
    ) -> Scalar {
        values.clear();
        let dtype_of = |i: usize| match (self.kinds[i], self.nodes[i]) {
            (Kind::Bool, _) => DType::Bool,
            (Kind::Foreign, Node::Var(v)) => own[v as usize],
            _ => dtype,
        };
        for (i, &node) in self.nodes.iter().enumerate() {
            let value = match node {
                Node::Const(x) => Scalar::number(dtype, x),
                Node::Var(v) => vars[v as usize],
                Node::Attr(a) => number(attrs[a as usize], dtype_of(i)),
                Node::Prim(prim, args) => {
                    // Only the operands of select have different dtypes, and its last one has the
                    // dtype of the result.
                    let operand = dtype_of(args[prim.arity() - 1] as usize);
                    let args = args.map(|a| values[a as usize]);
                    apply(prim, operand, &args[..prim.arity()], Some(dtype))
                }
            };
            values.push(value);
        }
        values[self.root as usize]
    }
}

fn number(attr: Scalar, dtype: DType) -> Scalar {
    match attr {
        Scalar::F(_) => attr.cast(DType::F64, dtype),
        Scalar::I(_) => attr.cast(DType::I64, dtype),
    }
}

/// The constraints on the nodes' kinds: some are fixed, and the nodes of a group have one kind.
struct Rules {
    fixed: Vec<(usize, Kind)>,
    groups: Vec<Vec<usize>>,
}

fn rules(nodes: &[Node]) -> Rules {
    let mut rules = Rules { fixed: vec![], groups: vec![] };
    for (i, node) in nodes.iter().enumerate() {
        let Node::Prim(prim, args) = *node else {
            if matches!(node, Node::Const(_)) {
                rules.fixed.push((i, Kind::Value));
            }
            continue;
        };
        let args: Vec<usize> = args[..prim.arity()].iter().map(|&a| a as usize).collect();
        match prim.signature() {
            Signature::Same if takes_bool(prim) => rules.groups.push([&args[..], &[i]].concat()),
            Signature::Same => {
                rules.fixed.extend(args.iter().chain(&[i]).map(|&a| (a, Kind::Value)))
            }
            Signature::Test => {
                rules.fixed.push((i, Kind::Bool));
                match prim {
                    Prim::IsNan | Prim::IsInf => rules.fixed.push((args[0], Kind::Value)),
                    _ => rules.groups.push(args),
                }
            }
            Signature::Select => {
                rules.fixed.push((args[0], Kind::Bool));
                rules.groups.push(vec![args[1], args[2], i]);
            }
            Signature::Cast => rules.fixed.push((i, Kind::Value)),
        }
    }
    rules
}

fn takes_bool(prim: Prim) -> bool {
    matches!(prim, Prim::Not | Prim::And | Prim::Or | Prim::Xor)
}

fn infer_kinds(nodes: &[Node]) -> Result<Vec<Kind>, String> {
    let rules = rules(nodes);
    let mut kinds = vec![None; nodes.len()];
    let mix = || "a bool is used as a number, or a number as a bool".to_string();
    for &(i, kind) in &rules.fixed {
        if *kinds[i].get_or_insert(kind) != kind {
            return Err(mix());
        }
    }
    let mut changed = true;
    while changed {
        changed = false;
        for group in &rules.groups {
            let Some(kind) = group.iter().find_map(|&i| kinds[i]) else {
                continue;
            };
            for &i in group {
                changed |= kinds[i].is_none();
                if *kinds[i].get_or_insert(kind) != kind {
                    return Err(mix());
                }
            }
        }
    }
    let root = nodes.len() - 1;
    let grouped = |i: usize| i == root || rules.groups.iter().any(|g| g.contains(&i));
    // An attribute is a number without its own dtype.
    let free = |i: usize| match nodes[i] {
        Node::Var(_) if !grouped(i) => Kind::Foreign,
        _ => Kind::Value,
    };
    Ok(kinds.into_iter().enumerate().map(|(i, k)| k.unwrap_or_else(|| free(i))).collect())
}
