//! Special functions of mathematics: gamma functions, Bessel functions, inverse functions.
//!
//! Their expressions are accurate to a few units in the last place in f32 and f64. The rational
//! functions interpolate at Chebyshev nodes.

use super::elementwise::{ELEMENTWISE, FLOAT};
use super::{Class, Gradient, Meaning, OpDef, operand};

const UNARY: OpDef = OpDef { operands: FLOAT, ..ELEMENTWISE };

/// From 1 to 3 and from 3 to 8 by rational functions, which contain the zeros at 1 and 2 as factors;
/// by Stirling's series from 8; by reflection below 0. No branch warns, or has an infinite slope,
/// where another one is taken.
const LGAMMA: &str = "\
    select(a == inf, inf, select(x < 0, select(d == 0, inf, 1.1447298858494002 - log(select(a < \
    1, 1, a) * abs(sin(pi * select(x < 0, d, 0.5)))) - select(a < 1, f, g)), g)) where a = \
    abs(x); d = a - round(a); b = log(a); g = select(a < 3, select(a < 1, f - b, f), select(a < \
    8, (s + 2) * (s + 1) * h, (a - 0.5) * (b - 1) + k)); m = min(a, 8); t = select(a < 1, a, m - \
    1); f = t * (t - 1) * ((0.5772156649015325 + t * (1.5530341494352373 + t * \
    (1.5696697812101954 + t * (0.7420026580164316 + t * (0.1663797029366473 + t * \
    (0.01588370529406879 + t * (0.0004718811370451506 + t * 9.503252088869774e-07))))))) / (1 + \
    t * (3.1154482237839423 + t * (3.7738120918199853 + t * (2.24947875127231 + t * \
    (0.6894854745601836 + t * (0.10365035501896579 + t * (0.006580995554916381 + t * \
    0.00011990025332643042)))))))); s = m - 3; h = (0.34657359027997264 + s * \
    (0.31600969988559685 + s * (0.1085296566333962 + s * (0.017489654086447256 + s * \
    (0.0013428983932654308 + s * (4.4114228011876386e-05 + s * (4.5124164924016863e-07 + s * \
    2.80057912209741e-10))))))) / (1 + s * (1.0805148697389364 + s * (0.4574970266593011 + s * \
    (0.09626592845351838 + s * (0.010544724000088176 + s * (0.0005749889570573767 + s * \
    (1.3470908899761047e-05 + s * 9.225575553417742e-08))))))); w = v * v; v = 1 / max(a, 8); k \
    = 0.4189385332046727 + v * (0.08333333333333333 + w * (-0.002777777777777778 + w * \
    (0.0007936507936507937 + w * (-0.0005952380952380953 + w * (0.0008417508417508417 + w * \
    (-0.0019175269175269176 + w * (0.00641025641025641 + w * -0.029550653594771242)))))))";

/// From 1 to 10 by a rational function times the distance from the root, which is subtracted in
/// three parts; by its asymptotic series from 10; by reflection below 0.
const DIGAMMA: &str = "\
    select(x < 0, select(d == 0, nan, select(a < 1, f, g + 1 / a) + pi / tan(pi * select(x < 0, \
    d, 0.5))), g) where a = abs(x); d = a - round(a); g = select(a < 10, select(a < 1, f - 1 / \
    x, f), log(a) - 0.5 * v - w * (0.08333333333333333 + w * (-0.008333333333333333 + w * \
    (0.003968253968253968 + w * (-0.004166666666666667 + w * (0.007575757575757576 + w * \
    (-0.021092796092796094 + w * (0.08333333333333333 + w * -0.4432598039215686)))))))); w = v * \
    v; v = 1 / max(a, 10); t = select(a < 1, a, min(a, 10) - 1); f = (t - 0.46163177490234375 - \
    3.700660045069526e-07 - 1.4084307992882211e-14) * ((1.2503801375034054 + t * \
    (2.2764694588078664 + t * (1.6124240223010564 + t * (0.5804891449205818 + t * \
    (0.11575693963829452 + t * (0.013020309141318175 + t * (0.0008042840252110325 + t * \
    (2.532242987390763e-05 + t * (3.4885500701315597e-07 + t * (1.4839147109082987e-09 + t * \
    3.1130686518500365e-13)))))))))) / (1 + t * (2.504168712773657 + t * (2.3994719946816567 + t \
    * (1.168872641839545 + t * (0.3200827137985018 + t * (0.05097313900557893 + t * \
    (0.004693373157781377 + t * (0.00023974595217778828 + t * (6.227236138787385e-06 + t * \
    (6.937517404341595e-08 + t * 2.2282300729788247e-10)))))))))))";

/// From 1 to 10 by a rational function; by its asymptotic series from 10; by reflection below 0.
const TRIGAMMA: &str = "\
    select(x < 0, u * u - select(a < 1, f, g - q), g) where a = abs(x); u = pi / sin(pi * \
    select(x < 0, a - round(a), 0.5)); q = 1 / a * (1 / a); w = v * v; v = 1 / max(a, 10); g = \
    select(a < 10, select(a < 1, f + q, f), v + v * (v * (0.5 + v * (0.16666666666666666 + w * \
    (-0.03333333333333333 + w * (0.023809523809523808 + w * (-0.03333333333333333 + w * \
    (0.07575757575757576 + w * (-0.2531135531135531 + w * (1.1666666666666667 + w * \
    -7.092156862745098)))))))))); t = select(a < 1, a, min(a, 10) - 1); f = (1.6449340668482262 \
    + t * (5.831608016195085 + t * (9.283883556849064 + t * (8.690501485590495 + t * \
    (5.272872568575591 + t * (2.1547052385003296 + t * (0.5949730212816092 + t * \
    (0.1075385467166439 + t * (0.011615475515833326 + t * (0.0005760284485925564 + t * \
    4.664741473511019e-20)))))))))) / (1 + t * (5.0067184992370475 + t * (10.987452499367146 + t \
    * (13.980277964027506 + t * (11.481817446019997 + t * (6.395322568110734 + t * \
    (2.4606685165205056 + t * (0.6496862497472726 + t * (0.11339428684528773 + t * \
    (0.011903489740129294 + t * 0.0005760284485925619))))))))))";

/// As [`TRIGAMMA`].
const TRIGAMMA_SLOPE: &str = "\
    select(x < 0, 2 * u * u * u * cos(pi * d) + select(a < 1, f, g + q), g) where a = abs(x); d \
    = a - round(a); u = pi / sin(pi * select(x < 0, d, 0.5)); q = 2 / a * (1 / a) * (1 / a); w = \
    v * v; v = 1 / max(a, 10); g = select(a < 10, select(a < 1, f - q, f), -w - w * (v * (1 + v \
    * (0.5 + w * (-0.16666666666666666 + w * (0.16666666666666666 + w * (-0.3 + w * \
    (0.8333333333333334 + w * (-3.2904761904761903 + w * (17.5 + w * \
    -120.56666666666666)))))))))); t = select(a < 1, a, min(a - 1, 9)); f = (-2.404113806319132 \
    + t * (-7.695808760843095 + t * (-11.332626714842014 + t * (-10.03361416902336 + t * \
    (-5.880384272179491 + t * (-2.3695222125512956 + t * (-0.6590805851949754 + t * \
    (-0.12285285455068105 + t * (-0.014076230283723892 + t * -0.0007710015253684977))))))))) / \
    (1 + t * (5.9022780559748975 + t * (15.481184620399672 + t * (23.905490180523202 + t * \
    (24.262205407136307 + t * (17.089726951796646 + t * (8.578338008416404 + t * \
    (3.089964974885861 + t * (0.7889715548878877 + t * (0.13731458559707804 + t * \
    (0.014847231809092601 + t * 0.0007710015253684958)))))))))))";

/// By a rational function of `x * x` to 0.85, and of the root of the logarithm of `1 - x` beyond.
const ERFINV: &str = "\
    select(a < 0.85, x * ((1.1975323115670913 + s * (13.148344840595835 + s * \
    (56.308346143329764 + s * (119.47608272318107 + s * (132.15816834242034 + s * \
    (73.73182032040803 + s * (18.493136644257557 + s * (1.5981721265255489 + s * \
    0.02107751156388384)))))))) / (1 + s * (11.730846723805138 + s * (54.455243379012416 + s * \
    (127.7637240724386 + s * (160.82024089026783 + s * (106.6842827681525 + s * \
    (34.27168633694469 + s * (4.415447845022331 + s * 0.14340918757944626))))))))), select(a == \
    1, select(x < 0, -inf, inf), sign(x) * ((1.0065220336036889 + t * (3.2870826173757863 + t * \
    (4.140854389718333 + t * (2.689703868325899 + t * (0.9948204485877358 + t * \
    (0.21457436668720262 + t * (0.026020634705655455 + t * (0.0015678540416638057 + t * \
    3.378546376066149e-05)))))))) / (1 + t * (2.066047109917697 + t * (1.7217688384257324 + t * \
    (0.7460009137868759 + t * (0.17990366648534156 + t * (0.023696518833916696 + t * \
    (0.001514048096177232 + t * (3.378340468688125e-05 + t * 1.4159035657887198e-11))))))))))) \
    where a = abs(x); s = 0.7225 - x * x; t = sqrt(-log((1 - a) / 2)) - 1.6";

/// By a polynomial of the square of `x / 2` to 8, and of `1 / x` beyond. Half of the exponential is
/// applied last, so that it does not overflow before the result does.
const I0: &str = "\
    select(a < 8, (1 + t * (1 + t * (0.2500000000000001 + t * (0.027777777777777565 + t * \
    (0.0017361111111113758 + t * (6.944444444424399e-05 + t * (1.9290123457790406e-06 + t * \
    (3.936759885673581e-08 + t * (6.151187413177668e-10 + t * (7.594056846699174e-12 + t * \
    (7.594079950279469e-14 + t * (6.275862820937522e-16 + t * (4.3600362269175774e-18 + t * \
    (2.5698743857514957e-20 + t * (1.35095827969477e-22 + t * (4.940670282542572e-25 + t * \
    3.6454386812677436e-27)))))))))))))))), u * (u / sqrt(m) * (0.3989422804014327 + v * \
    (0.006233473131262672 + v * (0.00043829108125822356 + v * (5.706903014318292e-05 + v * \
    (1.0927918056261565e-05 + v * (2.660781503256634e-06 + v * (2.4790402883167792e-06 + v * \
    (-1.7257358411381738e-05 + v * (0.00014185862063324504 + v * (-0.0008642913780102672 + v * \
    (0.0040669758158161755 + v * (-0.014954338242435741 + v * (0.0433264116012903 + v * \
    (-0.09930596955619408 + v * (0.18009904215884992 + v * (-0.25746559955012743 + v * \
    (0.28775108003052513 + v * (-0.247951980254461 + v * (0.16115242264504226 + v * \
    (-0.07628739967702916 + v * (0.02479851420055745 + v * (-0.004946732027962788 + v * \
    0.0004564239425667149)))))))))))))))))))))))) where a = abs(x); n = min(a, 8) / 2; t = n * \
    n; u = exp(a / 2); m = max(a, 8); v = 8 / m";

/// As [`I0`].
const I1: &str = "\
    select(a < 8, x * (0.5 + t * (0.25000000000000006 + t * (0.04166666666666652 + t * \
    (0.0034722222222225343 + t * (0.00017361111111076753 + t * (5.78703703726566e-06 + t * \
    (1.3778659602015222e-07 + t * (2.460474960769327e-09 + t * (3.4173256472461263e-11 + t * \
    (3.797039283580161e-13 + t * (3.451729636836005e-15 + t * (2.6159960799896376e-17 + t * \
    (1.6705022348546468e-19 + t * (9.455144020393155e-22 + t * (3.706605520277272e-24 + t * \
    2.916825666594092e-26))))))))))))))), sign(x) * u * (u / sqrt(m) * (0.3989422804014327 + v * \
    (-0.01870041939385673 + v * (-0.0007304851262510486 + v * (-7.989720989592354e-05 + v * \
    (-1.403113334863107e-05 + v * (-3.6465451016801757e-06 + v * (2.547049174049339e-06 + v * \
    (-3.396177994527619e-05 + v * (0.00022952249532704646 + v * (-0.0011750579426034525 + v * \
    (0.0045780994646781835 + v * (-0.01374871212025257 + v * (0.03203470313143419 + v * \
    (-0.058024742699453596 + v * (0.08148744965842208 + v * (-0.08805404686479056 + v * \
    (0.07221971288998175 + v * (-0.043977468472640606 + v * (0.019190382158833123 + v * \
    (-0.00565141294758733 + v * (0.0010017370726338325 + v * \
    -8.028547603814604e-05))))))))))))))))))))))) where a = abs(x); n = min(a, 8) / 2; t = n * \
    n; u = exp(a / 2); m = max(a, 8); v = 8 / m";

/// The angle is reduced before it is multiplied by pi, so that the zeros are exact.
const SINC: &str = "\
    select(abs(x) < 1e-20, 1, select(n / 2 == floor(n / 2), s, -s)) where n = round(x); s = \
    sin(pi * (x - n)) / (pi * select(abs(x) < 1e-20, 1, x))";

/// By its series near 0, where the difference cancels.
const SINC_SLOPE: &str = "\
    select(abs(x) < 0.5, x * (-3.289868133696453 + w * (3.2469697011334144 + w * \
    (-1.1445109447325053 + w * (0.2091827825412384 + w * (-0.023460810354558236 + w * \
    (0.001781145516372852 + w * (-9.766223126318933e-05 + w * (4.049947846619244e-06 + w * \
    (-1.3148481279991994e-07 + w * (3.4330769499642866e-09 + w * (-7.365893777096947e-11 + w * \
    1.3217901389162318e-12))))))))))), (select(n / 2 == floor(n / 2), c, -c) - r) / \
    select(abs(x) < 0.5, 1, x)) where w = x * x; n = round(x); c = cos(pi * (x - n))";

pub(super) const OPS: &[OpDef] = &[
    OpDef {
        name: "lgamma",
        noun: "log_gamma",
        doc: "The logarithm of the magnitude of the gamma function.",
        meaning: Meaning::Scalar(LGAMMA),
        gradient: Gradient::Rule(|r| vec![Some(r.g() * r.arg(0).unary("digamma", &[]))]),
        note: "torch and JAX lose digits near the zeros at 1 and 2 in single precision; near the \
               zeros below 0, all lose digits. MLX and tinygrad have a derivative of NaN at the poles.",
        ..UNARY
    },
    OpDef {
        name: "digamma",
        doc: "The derivative of `lgamma`; NaN at negative integers.",
        meaning: Meaning::Scalar(DIGAMMA),
        gradient: Gradient::Rule(|r| vec![Some(r.g() * r.arg(0).unary("trigamma", &[]))]),
        note: "torch loses digits near its zeros. JAX, MLX and tinygrad have a derivative of NaN \
               at the poles.",
        ..UNARY
    },
    OpDef {
        name: "trigamma",
        doc: "The derivative of `digamma`.",
        meaning: Meaning::Scalar(TRIGAMMA),
        note: "MLX and tinygrad have a derivative of NaN at the poles.",
        gradient: Gradient::Partials(&[TRIGAMMA_SLOPE]),
        ..UNARY
    },
    OpDef {
        name: "erfinv",
        doc: "The inverse of the error function; NaN beyond -1 and 1.",
        meaning: Meaning::Scalar(ERFINV),
        gradient: Gradient::Partials(&["0.886226925452758 * exp(r * r)"]),
        note: "tinygrad has a derivative of NaN at -1 and 1.",
        ..UNARY
    },
    OpDef {
        name: "i0",
        noun: "bessel",
        doc: "The modified Bessel function of the first kind of order 0.",
        meaning: Meaning::Scalar(I0),
        gradient: Gradient::Rule(|r| vec![Some(r.g() * r.arg(0).unary("i1", &[]))]),
        note: "NumPy, torch and JAX overflow from 88.7 on in single precision, the evaluator and \
               native targets from 91.9 on. MLX and tinygrad \
               have a derivative of NaN from 91 on.",
        ..UNARY
    },
    OpDef {
        name: "i1",
        noun: "bessel",
        doc: "The modified Bessel function of the first kind of order 1.",
        meaning: Meaning::Scalar(I1),
        gradient: Gradient::Rule(|r| {
            let (x, zero) = (r.arg(0), r.g().scalar(0.0));
            let tiny = x.unary("abs", &[]).binary("lt", x.scalar(1e-20));
            let ratio = r.y() / tiny.select(x.scalar(1.0), x);
            let slope = x.unary("i0", &[]) - tiny.select(zero + 0.5, ratio);
            vec![Some(r.g() * slope)]
        }),
        note: "NumPy, torch and JAX overflow from 88.7 on in single precision, the evaluator and \
               native targets from 91.9 on.",
        ..UNARY
    },
    OpDef {
        name: "sinc",
        doc: "`sin(pi * x) / (pi * x)`, and 1 at 0.",
        meaning: Meaning::Scalar(SINC),
        gradient: Gradient::Partials(&[SINC_SLOPE]),
        note: "NumPy, torch and JAX round `pi * x`, so that zeros are not exact.",
        ..UNARY
    },
    OpDef {
        name: "logit",
        noun: "logits",
        doc: "`log(x / (1 - x))`, the inverse of the logistic function; NaN beyond 0 and 1.",
        meaning: Meaning::Scalar(
            "select(near, log1p((2 * y - 1) / (1 - y)), log(x / (1 - x))) \
             where near = (x > 0.25) & (x < 0.75); y = select(near, x, 0.5)",
        ),
        gradient: Gradient::Partials(&["select((x < 0) | (x > 1), nan, 1 / (x * (1 - x)))"]),
        note: "torch and JAX lose digits near 0.5.",
        ..UNARY
    },
    OpDef {
        name: "xlogy",
        doc: "`x * log(y)`, and 0 where `x` is 0 unless `y` is NaN.",
        operands: &[operand("x", Class::Float), operand("y", Class::Float)],
        meaning: Meaning::Scalar(
            "select(is_nan(y), nan, select(x == 0, 0, x * log(select(x == 0, 1, y))))",
        ),
        gradient: Gradient::Partials(&[
            "select(none, 0, log(select(none, 1, y))) where none = (x == 0) & (y <= 0)",
            "select(x == 0, 0, x / select(x == 0, 1, y))",
        ]),
        note: "Where `x` is 0, the gradient of `y` is 0, also where `y` is 0; in torch it is NaN \
               there.",
        ..ELEMENTWISE
    },
];
