//! Parses the text that [`print`](super::print) writes.

use mithril_ir::diagnostic::{Diagnostic, Result};
use mithril_ir::dtype::DType;
use mithril_ir::scalar::round;
use winnow::ascii::{dec_uint, space0};
use winnow::combinator::{alt, delimited, opt, preceded, repeat, separated, terminated};
use winnow::error::ContextError;
use winnow::prelude::*;
use winnow::token::{take_till, take_while};

use super::{
    Binary, Callee, Cmp, Code, Fold, Inst, Mem, Memory, Place, Region, Stmt, TileOp, Ty, Unary, V,
};

type Read<T> = winnow::Result<T, ContextError>;

/// Parses a kernel.
///
/// Errors: a syntax error; the first one is reported. [`verify`](super::verify::verify) checks the
/// rest.
pub fn parse(text: &str) -> Result<Code> {
    let mut reader = Reader { code: Code::default() };
    let mut rest = text;
    match reader.kernel(&mut rest) {
        Ok(()) => Ok(reader.code),
        Err(_) => {
            let read = text.len() - rest.len();
            let number = text[..read].lines().count().max(1);
            let line = text.lines().nth(number - 1).unwrap_or_default().trim();
            Diagnostic::new("this is not loop code")
                .at(format!("line {number}"))
                .got(line)
                .hint("`mithril-opt --emit=loops` prints loop code")
                .err()
        }
    }
}

fn fail<T>() -> Read<T> {
    Err(ContextError::new())
}

/// Parses the rest of a line: whitespace and a comment.
fn line_end(input: &mut &str) -> Read<()> {
    let comment = opt(("//", take_till(0.., '\n')));
    repeat(1.., (space0, comment, '\n', space0).void()).parse_next(input)
}

fn word<'i>(input: &mut &'i str) -> Read<&'i str> {
    terminated(take_while(1.., ('a'..='z', '0'..='9', '_')), space0).parse_next(input)
}

fn sign<'i>(what: &'static str) -> impl Parser<&'i str, &'i str, ContextError> {
    terminated(what, space0)
}

fn value(input: &mut &str) -> Read<V> {
    delimited('%', dec_uint::<_, u32, _>, space0).map(V).parse_next(input)
}

fn values(input: &mut &str) -> Read<Vec<V>> {
    separated(0.., value, sign(",")).parse_next(input)
}

fn mem(input: &mut &str) -> Read<Mem> {
    delimited("%m", dec_uint::<_, u32, _>, space0).map(Mem).parse_next(input)
}

fn number(input: &mut &str) -> Read<u32> {
    terminated(dec_uint::<_, u32, _>, space0).parse_next(input)
}

fn tile(input: &mut &str) -> Read<u8> {
    terminated(dec_uint::<_, u8, _>, space0).parse_next(input)
}

fn dtype(name: &str) -> Option<DType> {
    DType::ALL.iter().copied().find(|dtype| dtype.name() == name)
}

fn ty(input: &mut &str) -> Read<Ty> {
    let text = word(input)?;
    let (name, lanes) = match text.rsplit_once('x') {
        Some((name, lanes)) => (name, lanes.parse().ok()),
        None => (text, Some(1)),
    };
    match (dtype(name), lanes) {
        (Some(dtype), Some(lanes)) => Ok(Ty { dtype, lanes }),
        _ => fail(),
    }
}

/// Parses a memory access: `%m0[%5]`.
fn place(input: &mut &str) -> Read<(Mem, V)> {
    (mem, delimited(sign("["), value, sign("]"))).parse_next(input)
}

fn mask(input: &mut &str) -> Read<Option<V>> {
    opt(preceded(sign("mask"), value)).parse_next(input)
}

fn two(input: &mut &str) -> Read<(V, V)> {
    (value, preceded(sign(","), value)).parse_next(input)
}

fn three(input: &mut &str) -> Read<(V, V, V)> {
    (value, preceded(sign(","), value), preceded(sign(","), value)).parse_next(input)
}

struct Reader {
    code: Code,
}

impl Reader {
    fn define(&mut self, v: V, ty: Ty) {
        let types = &mut self.code.types;
        types.resize(types.len().max(v.0 as usize + 1), Ty::INDEX);
        types[v.0 as usize] = ty;
    }

    fn kernel(&mut self, input: &mut &str) -> Read<()> {
        let comment = ("//", take_till(0.., '\n'));
        let () = repeat(0.., (space0, opt(comment), '\n').void()).parse_next(input)?;
        self.code.buffers =
            preceded((sign("kernel"), sign("buffers")), number).parse_next(input)?;
        self.code.dims = preceded(sign("dims"), number).parse_next(input)?;
        self.code.streams = opt(sign("streams")).parse_next(input)?.is_some();
        self.code.tiles = opt(sign("tiles")).parse_next(input)?.is_some();
        (sign("{"), line_end).void().parse_next(input)?;
        while opt(sign("memory")).parse_next(input)?.is_some() {
            let memory = self.memory(input)?;
            self.code.memories.push(memory);
        }
        while opt(sign("function")).parse_next(input)?.is_some() {
            let function = self.function(input)?;
            self.code.functions.push(function);
        }
        self.code.body = self.region(input)?.body;
        (sign("}"), opt(line_end), winnow::combinator::eof).void().parse_next(input)
    }

    fn memory(&mut self, input: &mut &str) -> Read<Memory> {
        let Mem(at) = terminated(mem, sign("=")).parse_next(input)?;
        if at as usize != self.code.memories.len() {
            return fail();
        }
        let place = alt((
            preceded(sign("buffer"), number).map(Place::Buffer),
            preceded(sign("scratch"), value).map(Place::Scratch),
            preceded(sign("local"), number).map(Place::Local),
        ))
        .parse_next(input)?;
        let Ty { dtype, .. } = preceded(sign(":"), ty).parse_next(input)?;
        let constant = opt(sign("readonly")).parse_next(input)?.is_some();
        line_end(input)?;
        Ok(Memory { dtype, place, constant })
    }

    fn function(&mut self, input: &mut &str) -> Read<Region> {
        let at = preceded('@', number).parse_next(input)?;
        if at as usize != self.code.functions.len() {
            return fail();
        }
        let param = (value, preceded(sign(":"), ty));
        let params: Vec<(V, Ty)> =
            delimited(sign("("), separated(0.., param, sign(",")), sign(")")).parse_next(input)?;
        params.iter().for_each(|(v, ty)| self.define(*v, *ty));
        (sign("{"), line_end).void().parse_next(input)?;
        let region = self.region(input)?;
        (sign("}"), line_end).void().parse_next(input)?;
        Ok(Region { params: params.into_iter().map(|(v, _)| v).collect(), ..region })
    }

    /// Parses statements and their yields, up to the closing brace.
    fn region(&mut self, input: &mut &str) -> Read<Region> {
        let mut region = Region::default();
        loop {
            if input.starts_with('}') {
                return Ok(region);
            }
            if opt(sign("yield")).parse_next(input)?.is_some() {
                region.yields = terminated(values, line_end).parse_next(input)?;
                return Ok(region);
            }
            let stmt = self.statement(input)?;
            region.body.push(stmt);
        }
    }

    fn statement(&mut self, input: &mut &str) -> Read<Stmt> {
        let results = match input.starts_with('%') {
            true => terminated(values, sign("=")).parse_next(input)?,
            false => Vec::new(),
        };
        let inst = match word(input)? {
            "for" => self.repeat(&results, input)?,
            "if" => self.choose(&results, input)?,
            "const" => {
                let any = take_while(1.., |c: char| c != ' ');
                let text = terminated(any, space0).parse_next(input)?;
                self.types(&results, input)?;
                let Some(dtype) = results.first().map(|v| self.code.ty(*v).dtype) else {
                    return fail();
                };
                match bits(dtype, text) {
                    Some(bits) => Inst::Const(bits),
                    None => return fail(),
                }
            }
            name => {
                let inst = arithmetic(name, input)?;
                self.types(&results, input)?;
                inst
            }
        };
        line_end(input)?;
        Ok(Stmt { results, inst })
    }

    /// Parses the types of a statement's results.
    fn types(&mut self, results: &[V], input: &mut &str) -> Read<()> {
        if results.is_empty() {
            return Ok(());
        }
        let types: Vec<Ty> =
            preceded(sign(":"), separated(1.., ty, sign(","))).parse_next(input)?;
        if types.len() != results.len() {
            return fail();
        }
        results.iter().zip(types).for_each(|(v, ty)| self.define(*v, ty));
        Ok(())
    }

    fn repeat(&mut self, results: &[V], input: &mut &str) -> Read<Inst> {
        let counter = terminated(value, sign("=")).parse_next(input)?;
        let (from, to, step) = (value, preceded(sign("to"), value), preceded(sign("step"), value))
            .parse_next(input)?;
        let pair = (terminated(value, sign("=")), value);
        let pairs: Option<Vec<(V, V)>> =
            opt(preceded(sign("carry"), separated(1.., pair, sign(",")))).parse_next(input)?;
        self.types(results, input)?;
        let (inner, carried): (Vec<V>, Vec<V>) = pairs.unwrap_or_default().into_iter().unzip();
        self.define(counter, Ty::INDEX);
        for (inner, first) in inner.iter().zip(&carried) {
            let Some(ty) = self.code.types.get(first.0 as usize).copied() else { return fail() };
            self.define(*inner, ty);
        }
        (sign("{"), line_end).void().parse_next(input)?;
        let mut region = self.region(input)?;
        sign("}").void().parse_next(input)?;
        region.params = [&[counter], &inner[..]].concat();
        Ok(Inst::For { from, to, step, carried, region })
    }

    fn choose(&mut self, results: &[V], input: &mut &str) -> Read<Inst> {
        let condition = value(input)?;
        self.types(results, input)?;
        (sign("{"), line_end).void().parse_next(input)?;
        let yes = self.region(input)?;
        sign("}").void().parse_next(input)?;
        let no = match opt(sign("else")).parse_next(input)? {
            Some(_) => {
                (sign("{"), line_end).void().parse_next(input)?;
                terminated(|input: &mut &str| self.region(input), sign("}")).parse_next(input)?
            }
            None => Region::default(),
        };
        Ok(Inst::If { condition, yes, no })
    }
}

/// Parses a statement without regions, after its first word.
fn arithmetic(name: &str, input: &mut &str) -> Read<Inst> {
    if let Some(op) = Unary::from_word(name) {
        return value.map(|x| Inst::Unary(op, x)).parse_next(input);
    }
    if let Some(op) = Binary::from_word(name) {
        return two.map(|(x, y)| Inst::Binary(op, x, y)).parse_next(input);
    }
    match name {
        "iota" => Ok(Inst::Iota),
        "first" => Ok(Inst::First),
        "last" => Ok(Inst::Last),
        "dim" => number.map(Inst::Dim).parse_next(input),
        "fma" => three.map(|(x, y, z)| Inst::Fma(x, y, z)).parse_next(input),
        "mul_add" => three.map(|(x, y, z)| Inst::MulAdd(x, y, z)).parse_next(input),
        "scale" => two.map(|(x, n)| Inst::Scale(x, n)).parse_next(input),
        "dot_pairs" => three.map(|(x, y, sum)| Inst::DotPairs(x, y, sum)).parse_next(input),
        "select" => three.map(|(c, x, y)| Inst::Select(c, x, y)).parse_next(input),
        "convert" => value.map(Inst::Convert).parse_next(input),
        "bitcast" => value.map(Inst::Bitcast).parse_next(input),
        "splat" => value.map(Inst::Splat).parse_next(input),
        "call" => call(input),
        "compare" => {
            let Some(op) = Cmp::from_word(word(input)?) else { return fail() };
            two.map(|(x, y)| Inst::Compare(op, x, y)).parse_next(input)
        }
        "fold" => {
            let Some(fold) = Fold::from_word(word(input)?) else { return fail() };
            value.map(|x| Inst::Fold(fold, x)).parse_next(input)
        }
        "extract" => (value, delimited(sign("["), number, sign("]")))
            .map(|(x, lane)| Inst::Extract(x, lane))
            .parse_next(input),
        "shuffle" => {
            let (x, y) = two(input)?;
            let lanes = separated(0.., number, sign(","));
            let lanes: Vec<u32> = delimited(sign("["), lanes, sign("]")).parse_next(input)?;
            Ok(Inst::Shuffle(x, y, lanes.into()))
        }
        _ => access(name, input),
    }
}

fn call(input: &mut &str) -> Read<Inst> {
    if input.starts_with('@') {
        let number = preceded('@', number).parse_next(input)?;
        let args = delimited(sign("("), values, sign(")")).parse_next(input)?;
        return Ok(Inst::CallPrivate(number, args.into()));
    }
    let Some(callee) = Callee::from_word(word(input)?) else { return fail() };
    let args = delimited(sign("("), values, sign(")")).parse_next(input)?;
    Ok(Inst::Call(callee, args.into()))
}

/// Parses accesses to memory and tiles.
fn access(name: &str, input: &mut &str) -> Read<Inst> {
    let stride = || preceded(sign("stride"), value);
    Ok(match name {
        "load" => {
            let ((mem, at), mask) = (place, mask).parse_next(input)?;
            Inst::Load { mem, at, mask }
        }
        "gather" => {
            let ((mem, at), mask) = (place, mask).parse_next(input)?;
            Inst::Gather { mem, at, mask }
        }
        "store" => {
            let ((mem, at), value, mask, past) =
                (place, preceded(sign(","), value), mask, opt(sign("streaming")))
                    .parse_next(input)?;
            Inst::Store { mem, at, value, mask, streaming: past.is_some() }
        }
        "scatter" => {
            let ((mem, at), value, mask) =
                (place, preceded(sign(","), value), mask).parse_next(input)?;
            Inst::Scatter { mem, at, value, mask }
        }
        "prefetch" => {
            let ((mem, at), what) =
                (place, alt((sign("read"), sign("write")))).parse_next(input)?;
            Inst::Prefetch { mem, at, write: what == "write" }
        }
        "tile_zero" => Inst::Tile(TileOp::Zero(tile(input)?)),
        "tile_load" => {
            let (tile, (mem, at), stride) =
                (terminated(tile, sign(",")), place, stride()).parse_next(input)?;
            Inst::Tile(TileOp::Load { tile, mem, at, stride })
        }
        "tile_store" => {
            let (tile, (mem, at), stride) =
                (terminated(tile, sign(",")), place, stride()).parse_next(input)?;
            Inst::Tile(TileOp::Store { tile, mem, at, stride })
        }
        "tile_dot" => {
            let (sum, x, y) =
                (tile, preceded(sign(","), tile), preceded(sign(","), tile)).parse_next(input)?;
            Inst::Tile(TileOp::Dot { sum, x, y })
        }
        _ => return fail(),
    })
}

/// Parses a constant of a dtype, and returns its bits.
fn bits(dtype: DType, text: &str) -> Option<u64> {
    if let Some(hex) = text.strip_prefix("0x") {
        return u64::from_str_radix(hex, 16).ok();
    }
    match dtype {
        DType::Bool => text.parse::<bool>().ok().map(u64::from),
        dtype if dtype.is_float() => text.parse().ok().map(|x: f64| round::encode(dtype, x)),
        dtype => {
            let number: i128 = text.parse().ok()?;
            let (least, greatest) = round::int_range(dtype);
            let width = u64::MAX >> (64 - dtype.bits());
            (least..=greatest).contains(&number).then_some(number as u64 & width)
        }
    }
}
