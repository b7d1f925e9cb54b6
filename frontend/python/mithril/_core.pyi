from _typeshed import Incomplete, SupportsGetItem
from os import PathLike
from typing import Any, Final, SupportsFloat, SupportsIndex, final
from typing_extensions import Self, disjoint_base

__version__: Final[str]
"""
The version of Mithril.
"""

@final
class Argument:
    """
    An argument of a program.
    """
    def __repr__(self, /) -> str: ...
    @property
    def any_integer(self, /) -> bool:
        """
        Whether integers of every dtype are accepted, and converted.
        """
    @property
    def derived(self, /) -> bool:
        """
        Whether the initial value follows from that of the argument `fan_of`.
        """
    @property
    def dims(self, /) -> list[str]:
        """
        The dims as text: numbers, names, or expressions.
        """
    @property
    def dtype(self, /) -> DType:
        """
        The dtype in the framework.
        """
    @property
    def fan_of(self, /) -> str | None:
        """
        The argument whose shape determines the fan of the initial values, if it is another one.
        """
    @property
    def name(self, /) -> str:
        """
        The name; for a param or state, the path of its block and the terminal. It is always the
        same Python object, so that dicts can be compared by the addresses of their keys.
        """
    @property
    def role(self, /) -> str:
        """
        `data`, `param`, `state`, `key` or `constant`.
        """
    @property
    def shape(self, /) -> list[int] | None:
        """
        The sizes, if all are known.
        """
    @property
    def transposed(self, /) -> bool:
        """
        Whether the source transposes it, and copies it unless it lies transposed in memory.
        """

@disjoint_base
class Block:
    """
    A part of a model, which can also be compiled by itself. Calling a block connects its terminals,
    by name or in order: inputs, then outputs.
    """
    def __call__(self, /, *args: "object", **kwargs: "object") -> Block:
        """
        Returns the block with its terminals connected to names, connections, constants, or lists of
        these. Positional arguments connect terminals in order.

        Errors: `TerminalError` for an unknown terminal; `MithrilError` for a terminal that is
        connected twice, or more arguments than terminals.
        """
    def __getattr__(self, name: str, /) -> Connection: ...
    def __init__(self, /, *args: "object", **kwargs: "object") -> None:
        """
        Creates the block with these settings. The class has the name of the block.
        """
    def __new__(cls, /, *_args: "object", **_kwargs: "object") -> Block: ...
    def __reduce__(self, /) -> tuple[Any, tuple[str, bool]]:
        """
        Copies and pickles are made through JSON. They have their own params.

        Errors: the block has connections to a model under construction, or is a `TrainModel`.
        """
    def __repr__(self, /) -> str: ...
    def _repr_html_(self, /) -> str: ...
    def connect(self, /, *args: "object", **kwargs: "object") -> Block:
        """
        The same as calling the block.
        """
    def copy(self, /) -> Any:
        """
        A copy with the same settings, name and connections, but its own params. Params that are
        shared inside the block are shared inside the copy. The copy of a model can be changed.

        Errors: a `TrainModel`.
        """
    def cost(self, /, shapes: "dict[str, list[int | str | None]] | None" = None, *, dtype: "DType | str | None" = None, inference: "bool" = True) -> Costs:
        """
        The estimated cost of each block in one forward pass: floating-point operations, bytes of
        memory traffic, params, and the peak memory of inner values in bytes. `shapes` gives the
        shapes of inputs. Costs are formulas if dims have no numbers.

        Errors: as for compiling with these shapes.
        """
    @staticmethod
    def from_json(text: "str", trust_code: "bool" = False) -> Block:
        """
        Reads a block from a JSON text that `to_json` wrote. Bodies of custom operations are code,
        which runs with the model: only `trust_code=True` reads a text with such bodies.

        Errors: `MithrilError` for text of another format, of a newer version, or with bodies that
        are not trusted.
        """
    @property
    def inputs(self, /) -> list[str]:
        """
        The names of the inputs, in the order of positional connections.
        """
    @property
    def kind(self, /) -> str:
        """
        The kind of the block, such as `Linear`, or the class of a model.
        """
    @staticmethod
    def load(path: "str | PathLike[str]", trust_code: "bool" = False) -> Block:
        """
        Reads a block from a file that `save` wrote. `trust_code` is that of `from_json`.

        Errors: `MithrilError` for a file that cannot be read; as for `from_json`.
        """
    @property
    def name(self, /) -> str | None:
        """
        The name that the block was given, or None.
        """
    @property
    def outputs(self, /) -> list[str]:
        """
        The names of the outputs.
        """
    def save(self, /, path: "str | PathLike[str]") -> None:
        """
        Writes the block to a file, as JSON. Params are not included.

        Errors: `MithrilError` for a file that cannot be written; as for `to_json`.
        """
    def summary(self, /, shapes: "dict[str, list[int | str | None]] | None" = None, *, depth: "int" = 1) -> str:
        """
        A table of the blocks inside, down to `depth` levels: their terminals and numbers of params.
        With `shapes` of the inputs, or if the model states them, also the types of terminals.

        Errors: as for compiling with these shapes.
        """
    def to_json(self, /) -> str:
        """
        The block as JSON text, which `from_json` reads. It includes constant arrays, but not
        params.

        Errors: `MithrilError` for a function as `init`.
        """

@final
class BlockInfo:
    """
    The description of a class of blocks.
    """
    @property
    def doc(self, /) -> str:
        """
        The description of the result.
        """
    @property
    def formula(self, /) -> str:
        """
        The result as a NumPy expression. It is empty if there is no short one.
        """
    @property
    def group(self, /) -> str:
        """
        The part of the library that the block belongs to.
        """
    @property
    def help(self, /) -> str:
        """
        The text that `help` shows.
        """
    @property
    def inputs(self, /) -> list[str]:
        """
        The names of the inputs. Optional inputs end in `=`.
        """
    @property
    def keywords(self, /) -> list[list[str]]:
        """
        The same for additional keywords.
        """
    @property
    def name(self, /) -> str:
        """
        The name of the class.
        """
    @property
    def outputs(self, /) -> list[str]:
        """
        The names of the outputs.
        """
    @property
    def parameters(self, /) -> list[tuple[str, str, str]]:
        """
        The names, annotations and defaults of the parameters as Python text. A required parameter
        has an empty default.
        """

@final
class BlockSharding:
    """
    What a block costs on a device of a mesh, including the blocks inside it.
    """
    def __repr__(self, /) -> str: ...
    @property
    def collectives(self, /) -> list[tuple[str, str, int, float]]:
        """
        Collectives: kind, mesh axis, how many there are, and the bytes that a device sends in all.
        """
    @property
    def compute(self, /) -> float:
        """
        Seconds of computation.
        """
    @property
    def flops(self, /) -> float:
        """
        Floating-point operations of a device.
        """
    @property
    def path(self, /) -> str:
        """
        The path of the block; empty for the whole model.
        """
    @property
    def split(self, /) -> dict[str, int] | None:
        """
        The `tensor_split` of what the forward pass of the block computes last; None if it computes
        nothing.
        """
    @property
    def traffic(self, /) -> float:
        """
        Bytes of memory that a device reads and writes.
        """
    @property
    def transfer(self, /) -> float:
        """
        Seconds in which data is on its way.
        """

@final
class Checker:
    """
    Checks the arrays of a call against the signature of a program.
    """
    def admits(self, /, params: "dict[str, object]", inputs: "dict[str, object]", state: "dict[str, object] | None" = None) -> bool:
        """
        Whether the program fits these arrays of any framework. Compares sizes, and the dtypes that
        the program has from the arrays of an earlier call. Missing arrays, names and other dtypes
        are not checked.
        """
    def check(self, /, params: "dict[str, object]", inputs: "dict[str, object]", state: "dict[str, object] | None" = None, output_gradients: "dict[str, object] | None" = None) -> bool:
        """
        Whether the program takes these arrays as they are. False if an array must be converted to
        the framework first.

        Errors: a missing or unknown name; an array of the framework with a wrong rank, dim or
        dtype.
        """
    def fits(self, /, params: "dict[str, object]", inputs: "dict[str, object]", state: "dict[str, object] | None" = None, output_gradients: "dict[str, object] | None" = None) -> bool:
        """
        Like `check`, but returns False instead of raising an error.
        """
    def require(self, /, params: "dict[str, object]", inputs: "dict[str, object]", state: "dict[str, object] | None" = None, output_gradients: "dict[str, object] | None" = None) -> None:
        """
        Like `check`, but raises an error also for a value that is not an array of the framework.
        """
    def shapes(self, /, params: "dict[str, object]", inputs: "dict[str, object]", state: "dict[str, object] | None" = None) -> "dict[str, list[int]]":
        """
        The shapes of params and states that these arrays determine, by name.
        """

@disjoint_base
class Connection:
    """
    A value inside a model. Operators and methods of a connection add blocks to its model. An
    expression of `IOKey`s joins the model that first reads it.
    """
    def __abs__(self, /) -> Connection: ...
    def __add__(self, other: object, /) -> Connection: ...
    def __and__(self, other: object, /) -> Connection: ...
    def __array__(self, /, *_args: "object", **_kwargs: "object") -> Any: ...
    def __array_function__(self, /, function: "object", _types: "object", _args: "object", _kwargs: "object") -> Any: ...
    def __array_ufunc__(self, /, ufunc: "object", method: "str", *inputs: "object", **kwargs: "object") -> Connection:
        """
        NumPy's operators and elementwise functions: `np.exp(c)`, `np.maximum(c, 1.0)`.

        Errors: a function that no block computes; `out=` and other keywords.
        """
    def __bool__(self, /) -> bool:
        """
        A comparison of connections is a block, which has no truth value before a call.
        """
    def __complex__(self, /) -> float: ...
    def __contains__(self, other: Any, /) -> bool: ...
    def __dir__(self, /) -> list[str]: ...
    def __eq__(self, other: object, /) -> Connection: ...
    def __float__(self, /) -> float: ...
    def __floordiv__(self, other: object, /) -> Connection: ...
    def __ge__(self, other: object, /) -> Connection: ...
    def __getattr__(self, name: str, /) -> Any:
        """
        Methods and properties that are blocks: `.sum(axis=1)`, `.shape`.
        """
    def __getitem__(self, index: Any, /) -> Connection:
        """
        An element of a list output, or `Indexer` of an array.
        """
    def __gt__(self, other: object, /) -> Connection: ...
    def __hash__(self, /) -> int: ...
    def __int__(self, /) -> int: ...
    def __invert__(self, /) -> Connection: ...
    def __iter__(self, /) -> Any:
        """
        The elements of a list output.
        """
    def __le__(self, other: object, /) -> Connection: ...
    def __len__(self, /) -> int: ...
    def __lshift__(self, other: object, /) -> Connection: ...
    def __lt__(self, other: object, /) -> Connection: ...
    def __matmul__(self, other: object, /) -> Connection: ...
    def __mod__(self, other: object, /) -> Connection: ...
    def __mul__(self, other: object, /) -> Connection: ...
    def __ne__(self, other: object, /) -> Connection: ...
    def __neg__(self, /) -> Connection: ...
    def __or__(self, other: object, /) -> Connection: ...
    def __pow__(self, other: object, modulo: object = None, /) -> Connection: ...
    def __radd__(self, other: object, /) -> Connection: ...
    def __rand__(self, other: object, /) -> Connection: ...
    def __repr__(self, /) -> str: ...
    def __rfloordiv__(self, other: object, /) -> Connection: ...
    def __rlshift__(self, other: object, /) -> Connection: ...
    def __rmatmul__(self, other: object, /) -> Connection: ...
    def __rmod__(self, other: object, /) -> Connection: ...
    def __rmul__(self, other: object, /) -> Connection: ...
    def __ror__(self, other: object, /) -> Connection: ...
    def __round__(self, /, _digits: "object" = None) -> int: ...
    def __rpow__(self, other: object, modulo: object = None, /) -> Connection: ...
    def __rrshift__(self, other: object, /) -> Connection: ...
    def __rshift__(self, other: object, /) -> Connection: ...
    def __rsub__(self, other: object, /) -> Connection: ...
    def __rtruediv__(self, other: object, /) -> Connection: ...
    def __rxor__(self, other: object, /) -> Connection: ...
    def __sub__(self, other: object, /) -> Connection: ...
    @classmethod
    def __torch_function__(cls, /, function: "object", _types: "object", _args: "object" = None, _kwargs: "object" = None) -> Any:
        """
        Raises a `TypeError`, after which PyTorch leaves operators to the connection.
        Errors: another function of PyTorch.
        """
    def __truediv__(self, other: object, /) -> Connection: ...
    def __xor__(self, other: object, /) -> Connection: ...
    @property
    def dtype(self, /) -> DType | None:
        """
        The dtype, if it is stated or follows from stated dtypes. None if it is known
        only at compile time, such as that of the backend's floats.
        """
    @property
    def name(self, /) -> str | None:
        """
        The name of the terminal, if it has one.
        """

@final
class Constant:
    """
    A value of `constant_keys`. All programs that are compiled with it share its memory.
    """
    def __new__(cls, /, array: Any) -> Constant: ...

@final
class Cost:
    """
    The cost of one block in one forward pass, including the blocks inside it. Costs are numbers, or
    formulas as text if they depend on unknown dims.
    """
    def __repr__(self, /) -> str: ...
    @property
    def bytes(self, /) -> int | str:
        """
        The bytes that its operations read and write, without fusion.
        """
    @property
    def flops(self, /) -> int | str:
        """
        The number of floating-point operations. Additions, multiplications, comparisons and
        functions such as `exp` count as one each. Each product of a contraction, with its addition,
        counts as two.
        """
    @property
    def kept(self, /) -> int | str:
        """
        The bytes of all inner values together, without views. Gradients by a framework keep at most
        these.
        """
    @property
    def params(self, /) -> int | str:
        """
        The number of elements of its params.
        """
    @property
    def path(self, /) -> str:
        """
        The path of the block; empty for the whole model.
        """
    @property
    def peak(self, /) -> int | str:
        """
        The peak memory of inner values in bytes. If dims are not known, this is the `max` of the
        formulas that may be the largest.
        """

@final
class Costs:
    """
    The costs of the blocks of a model. It prints as a table, also in notebooks.
    """
    def __repr__(self, /) -> str: ...
    def __str__(self, /) -> str: ...
    def _repr_html_(self, /) -> str: ...
    def at(self, /, path: str) -> Cost | None:
        """
        The cost of the block at a path, such as `h.0.attn`. None if there is no such block.
        """
    @property
    def blocks(self, /) -> list[Cost]:
        """
        The costs of the whole model, then of its blocks in the order of computation.
        """
    def table(self, /, depth: SupportsIndex = 1) -> str:
        """
        The table down to `depth` levels. A depth of 0 or less gives only the whole model.
        """
    @property
    def total(self, /) -> Cost | None:
        """
        The cost of the whole model.
        """

@final
class DType:
    """
    The type of an array's elements.
    """
    def __eq__(self, value: object, /) -> bool: ...
    def __hash__(self, /) -> int: ...
    def __ne__(self, value: object, /) -> bool: ...
    def __new__(cls, dtype: Any, /) -> DType:
        """
        The dtype for a name such as `"float32"`, or for a dtype of a framework.

        Errors: `MithrilError` for a dtype that Mithril does not have.
        """
    def __reduce__(self, /) -> tuple[type, tuple[str]]: ...
    def __repr__(self, /) -> str: ...
    def __str__(self, /) -> str: ...
    @property
    def bits(self, /) -> int:
        """
        The width of an element in bits.
        """
    @property
    def is_float(self, /) -> bool:
        """
        Whether it is a floating-point type.
        """
    @property
    def name(self, /) -> str:
        """
        The name, such as `float32`.
        """
    @staticmethod
    def names() -> list[str]:
        """
        The names of all dtypes.
        """
    @property
    def short(self, /) -> str:
        """
        The name in Mithril's IR, such as `f32`.
        """

@final
class Explanation:
    """
    The rewrites of a program. It prints as a table, also in notebooks.
    """
    def __repr__(self, /) -> str: ...
    def __str__(self, /) -> str: ...
    def _repr_html_(self, /) -> str: ...
    @property
    def after(self, /) -> float:
        """
        The estimated seconds of a call after rewriting.
        """
    @property
    def before(self, /) -> float:
        """
        The estimated seconds of a call without rewriting.
        """
    @property
    def rules(self, /) -> list[Fired]:
        """
        The rules that were applied, the largest gain first.
        """

@final
class Fired:
    """
    A rule that was applied.
    """
    def __repr__(self, /) -> str: ...
    @property
    def gain(self, /) -> float:
        """
        The estimated seconds that the program would take longer without the rule. It is negative if
        the rule serves numerical stability instead.
        """
    @property
    def math(self, /) -> str:
        """
        The `math` that allows the rule: `exact`, `recognise`, `reassociate` or `fast`.
        """
    @property
    def places(self, /) -> list[str]:
        """
        The paths of the blocks in which it was applied.
        """
    @property
    def rule(self, /) -> str:
        """
        The name of the rule.
        """
    @property
    def times(self, /) -> int:
        """
        The number of times that it was applied.
        """
    @property
    def topic(self, /) -> str:
        """
        The topic of the rule, such as `algebra`, `layout` or `composites`.
        """

@final
class IOKey(Connection):
    """
    A connection with stated properties. `name` makes it a terminal of the model. `value` makes it a
    constant. `shape` (numbers, names of dims, None for a dim that may vary) and `dtype` are checked
    when the model is compiled. `differentiable` makes an input a param or data. `device` is the device
    of the backend where a param lies, such as `"cpu"`; `devices=` of `compile` goes before it.
    `expose` makes it an output even if a block inside reads it. `connections` are merged with it.
    Operators on it create an expression.
    """
    def __new__(cls, /, name: "str | None" = None, *, value: Any | None = None, shape: Any | None = None, dtype: Any | None = None, differentiable: "bool | None" = None, device: "str | None" = None, expose: "bool" = False, connections: "list[object] | None" = None) -> IOKey: ...

@final
class Method:
    """
    A method of a connection. It is called with the other inputs of its block, then the settings.
    """
    def __call__(self, /, *args: "object", **kwargs: "object") -> Connection: ...
    def __repr__(self, /) -> str: ...

class Model(Block):
    """
    A model under construction. `model |= block` adds a block with the connections that it was
    given. `model += block` also connects the block's standard input to the last standard output.
    """
    def __bool__(self, /) -> bool:
        """
        A model is true even if it has no blocks.
        """
    def __delattr__(self, name: str, /) -> None: ...
    def __iadd__(self, block: Block, /) -> Self: ...
    def __init__(self, /, *, name: "str | None" = None, backend: "str | None" = None, device: "str | None" = None, dtype: "object" = None, precision: "int | None" = None, acc: "object" = None, checkpoint: "bool" = False, gradient: "Block | None" = None) -> None: ...
    def __ior__(self, block: Block, /) -> Self: ...
    def __len__(self, /) -> int:
        """
        The number of blocks added so far.
        """
    def __new__(cls, /, *args: "object", **kwargs: "object") -> Model: ...
    def __setattr__(self, name: str, value: Any, /) -> None:
        """
        `model.y = connection` makes a connection or an expression an output `y`. Other values, and
        names that begin with an underscore, are ordinary attributes.
        """
    def add_input(self, /, name: "str", *, shape: "list[int | str | None] | None" = None, dtype: "object" = None, differentiable: "bool | None" = None) -> Connection:
        """
        Adds an input to the model and returns its connection. `shape` has numbers, names of dims,
        and None for a dim that may vary. `differentiable` makes the input a param.

        Errors: `MithrilError` for the name of a value that a block computes.
        """
    def discard(self, /, *names: "str") -> None:
        """
        Removes terminals from the outputs.

        Errors: `TerminalError` for an unknown name; `MithrilError` for an input.
        """
    def expose(self, /, *names: "str") -> None:
        """
        Makes terminals outputs even if blocks inside read them.

        Errors: `TerminalError` for an unknown name; `MithrilError` for an input.
        """
    @staticmethod
    def from_json(text: "str", trust_code: "bool" = False) -> Model:
        """
        Reads a model from a JSON text that `to_json` wrote. The model can be extended. Bodies of
        custom operations are code, which runs with the model: only `trust_code=True` reads a text
        with such bodies.

        Errors: `MithrilError` for text of another format, of a newer version, or with bodies that
        are not trusted.
        """
    @staticmethod
    def load(path: "str | PathLike[str]", trust_code: "bool" = False) -> Model:
        """
        Reads a model from a file that `save` wrote. The model can be extended. `trust_code` is that
        of `from_json`.

        Errors: `MithrilError` for a file that cannot be read; as for `from_json`.
        """
    def rename(self, /, old: "str", new: "str") -> None:
        """
        Renames a terminal.

        Errors: `TerminalError` for an unknown name; `MithrilError` for a name that is taken.
        """
    def set_shapes(self, shapes: "dict[str, list[int | str | None]] | None" = None, /, **kwargs: "object") -> None:
        """
        States the shapes of terminals, in a dict or by keyword. A shape has numbers, names of dims,
        and None for a dim that may vary. The compiler checks them.

        Errors: `TerminalError` for an unknown name.
        """
    def set_standard(self, /, *, input: "str | None" = None, output: "str | None" = None) -> None:
        """
        Chooses the standard input and output, which `+=` connects when the model is used as a
        block.

        Errors: `TerminalError` for an unknown name.
        """
    def set_types(self, types: "dict[str, object] | None" = None, /, **kwargs: "object") -> None:
        """
        States the dtypes of terminals, in a dict or by keyword. The compiler checks them.

        Errors: `TerminalError` for an unknown name.
        """

@final
class Native:
    """
    Runs a program's native code on arrays of NumPy.
    """
    def export(self, /, folder: str | PathLike[str], name: str | None, cpu: SupportsGetItem[int, str], params: "dict[str, object] | None") -> "dict[str, str]":
        """
        Writes a library for C to a folder, with its header, its metadata and, if `params` are
        given, a file of weights. Returns the paths by `library`, `header`, `metadata` and
        `weights`. `cpu` lists the processors of the library.

        Errors: `BackendError` if code cannot be generated; `MithrilError` for params that do not
        fit, or files that cannot be written.
        """
    def forward(self, /, params: "dict[str, object]", inputs: "dict[str, object]", state: "dict[str, object] | None" = None, donate: bool = False) -> "Any":
        """
        The outputs by name, or `(outputs, next_state)` if the model has state. None if some values
        are not NumPy arrays. With `donate`, the next state overwrites the arrays of the state.

        Errors: as for `Checker.check`; `BackendError` if code cannot be generated.
        """
    def joint(self, /, params: "dict[str, object]", inputs: "dict[str, object]", state: "dict[str, object] | None", output_gradients: "dict[str, object]", donate: bool = False) -> "Any":
        """
        `(outputs, gradients)`, or `(outputs, gradients, next_state)` if the model has state.
        Gradients are by param. Omitted output gradients are zeros.

        Errors: as for `forward`.
        """
    @property
    def listing(self, /) -> str:
        """
        The launches and kernels as text; for C, the source.
        """
    def measure(self, /) -> None:
        """
        Compiles the code, if shapes are known, and makes all later calls measure the time of each
        kernel for `report`.

        Errors: `BackendError` if code cannot be generated.
        """
    @property
    def report(self, /) -> list[str]:
        """
        Lines of text about each function and its kernels.
        """

@final
class Outcome:
    """
    A result of a program.
    """
    @property
    def dims(self, /) -> list[str]:
        """
        The dims as text.
        """
    @property
    def dtype(self, /) -> DType:
        """
        The dtype in the framework.
        """
    @property
    def name(self, /) -> str:
        """
        The name.
        """
    @property
    def state(self, /) -> str | None:
        """
        The state whose next value this is, if any.
        """

@final
class Part:
    """
    A part of a program that runs on one of several backends.
    """
    @property
    def place(self, /) -> int:
        """
        The index of the backend; 0 is that of the whole model.
        """
    @property
    def program(self, /) -> Program: ...
    @property
    def reads(self, /) -> list[int]:
        """
        The numbers of the values that the arguments are, in their order.
        """
    @property
    def writes(self, /) -> list[int]:
        """
        The numbers of the values that the results are, in their order.
        """

@final
class Program:
    """
    A compiled model.
    """
    @property
    def arguments(self, /) -> list[Argument]:
        """
        The arguments, in order.
        """
    def bisect(self, /, arrays: "dict[str, object]", tolerance: SupportsFloat | SupportsIndex) -> tuple[str, str | None, list[str]] | None:
        """
        Finds the first pass after which the results of the reference evaluator differ by more than
        `tolerance`: the pass, and its rule and blocks if they are known. `None` if no pass does.
        `arrays` are those of a call, by name.
        """
    @property
    def branches(self, /) -> bool:
        """
        Whether elements of arrays decide which operations run.
        """
    def checker(self, /, samples: "dict[str, object]") -> Checker:
        """
        The checker for the arrays of calls. `samples` are 2 x 3 arrays of the framework by dtype.
        """
    @property
    def constants(self, /) -> list[tuple[str, DType, list[int], bytes]]:
        """
        The arrays of the `.npz` file next to the source: name, dtype, shape and bytes.
        """
    def cost(self, /, shapes: "dict[str, object]", dims: "dict[str, int]") -> Costs:
        """
        The cost of each block in one forward pass. `shapes` and `dims` give shapes of inputs, and
        sizes of dims, that are not known.
        """
    def explain(self, /) -> Explanation:
        """
        The rewrites of the program, and their estimated gains.
        """
    def for_call(self, /, shapes: "dict[str, list[int | None]]", dtypes: "dict[str, DType]", sizes: "dict[str, list[int]]") -> Program:
        """
        Compiles the program for these shapes and dtypes of arguments. `sizes` are those of a call's
        arrays, if they decide which axes a mask has. The result may still need other ranks, or
        sizes of params.

        Errors: as for `compile`; a mask that is neither bool nor float.
        """
    def initial(self, /, name: str, shape: SupportsGetItem[int, SupportsIndex], seed: SupportsIndex, fan_of: SupportsGetItem[int, SupportsIndex] | None = None, init: Any | None = None) -> tuple[float | None, bytearray | None, tuple[Any, list[int]] | None]:
        """
        The initial value of an argument with this shape: one number for all elements, or the bytes
        of float64 elements, or a function and its key. `fan_of` is the shape of the argument that
        determines the fan. `init` overrides the block's rule.

        Errors: an unknown `init`; an `init` for matrices with a shape of fewer than two dims.
        """
    def initial_from(self, /, name: str, values: bytes, shape: SupportsGetItem[int, SupportsIndex]) -> bytearray:
        """
        The bytes of the initial value of an argument that follows from another array, as 64-bit
        floats: those of `values`, an array of this shape.

        Errors: the argument's value does not follow from another array.
        """
    @property
    def is_open(self, /) -> bool:
        """
        Whether there is no code yet, because ranks, dtypes or sizes are not known.
        """
    def memory(self, /, dims: "dict[str, int]") -> dict[str, int] | None:
        """
        The memory of a call in bytes, by use. `dims` gives sizes to dims without a number. None if
        there is no native code.
        """
    @property
    def module(self, /) -> str:
        """
        The IR that the code was generated from, as text.

        Errors: ranks that the code needs are not known.
        """
    @property
    def name(self, /) -> str:
        """
        The name or kind of the compiled block.
        """
    def native(self, /, samples: "dict[str, object]", threads: SupportsIndex) -> Native:
        """
        The runner of native code on NumPy arrays. `threads` is the number of threads, or 0 for one
        per core. `samples` are as for `checker`. If `one_of_several`, calls return None for arrays
        that do not fit.

        Errors: as for `settled`.
        """
    @property
    def needs_dtypes(self, /) -> list[str]:
        """
        The masks whose dtypes are needed but not known.
        """
    @property
    def needs_ranks(self, /) -> list[str]:
        """
        The arguments whose ranks are needed but not known.
        """
    @property
    def one_of_several(self, /) -> bool:
        """
        Whether the code is for certain ranks or sizes, and other calls need another program.
        """
    @property
    def own_gradients(self, /) -> bool:
        """
        Whether the code computes gradients itself.
        """
    def parts(self, /, wide: SupportsGetItem[int, bool]) -> list[Part]:
        """
        The parts of a program for several backends, in the order in which they run. `wide` tells for
        each backend whether it has 64-bit types. Empty for a program for one backend.
        """
    @property
    def result_values(self, /) -> list[int]:
        """
        The numbers of the values that the results are, in their order, of a program for several
        backends. Its arguments are the first values.
        """
    @property
    def results(self, /) -> list[Outcome]:
        """
        The results, in order, including next values of states.
        """
    def settled(self, /) -> None:
        """
        Checks that there is code. Errors: ranks, dtypes or sizes are not known yet.
        """
    @property
    def source(self, /) -> str:
        """
        The generated source, or a listing of native code.

        Errors: there is no code yet, as for `settled`.
        """
    @property
    def timings(self, /) -> list[tuple[str, float]]:
        """
        The seconds of each stage of the compilation.
        """
    @property
    def widens(self, /) -> bool:
        """
        Whether the source enables 64-bit types, which JAX disables by default.
        """
    def with_sizes(self, /, sizes: "dict[str, list[int]]") -> Program:
        """
        Compiles a program that only needs sizes, for these shapes of params and states.

        Errors: as for `compile`.
        """

@final
class Shardings:
    """
    How params and inputs are divided over a device mesh, and what that costs. It is a mapping from
    names to `tensor_split`, and prints as a table.
    """
    def __contains__(self, name: str, /) -> bool: ...
    def __getitem__(self, name: str, /) -> dict[str, int]: ...
    def __iter__(self, /) -> Any: ...
    def __len__(self, /) -> int: ...
    def __repr__(self, /) -> str: ...
    def __str__(self, /) -> str: ...
    def _repr_html_(self, /) -> str: ...
    @property
    def blocks(self, /) -> list[BlockSharding]:
        """
        The costs of the whole model, then of its blocks in the order of computation.
        """
    @property
    def compared(self, /) -> int:
        """
        The number of layouts of the whole model that were compared.
        """
    def conflicts(self, /, depth: SupportsIndex = 1) -> list[str]:
        """
        The blocks, down to `depth` levels, in which a mesh axis divides several dims of one operation,
        though it can divide only one, and the collectives that settle it, as lines of text. Of the
        ways to divide such an operation, the one that sends the least is taken.
        """
    def dot(self, /, depth: SupportsIndex = 1) -> str:
        """
        A picture of the forward pass in the language of Graphviz: blocks down to `depth` levels with
        the layouts of their params, and the layout of what they compute, which colors them.
        """
    def get(self, /, name: str) -> dict[str, int] | None:
        """
        The split of a param or input; None if there is none of this name.
        """
    def items(self, /) -> list[tuple[str, dict[str, int]]]:
        """
        The names with their splits.
        """
    def keys(self, /) -> list[str]:
        """
        The names of params and inputs.
        """
    @property
    def layouts(self, /) -> str:
        """
        The params, inputs and residual values that are divided, each with the mesh axes of its
        dims.
        """
    @property
    def machine(self, /) -> str:
        """
        The name of the machine.
        """
    @property
    def memory(self, /) -> float:
        """
        The bytes that a device uses at most.
        """
    @property
    def mesh(self, /) -> dict[str, int]:
        """
        The axes of the mesh with their sizes.
        """
    @property
    def residuals(self, /) -> list[tuple[list[int], dict[str, int]]]:
        """
        The splits of residual values, which blocks read and add to, by their shape.
        """
    @property
    def seconds(self, /) -> float:
        """
        The seconds of a step.
        """
    def table(self, /, depth: SupportsIndex = 1) -> str:
        """
        The table of blocks down to `depth` levels. A depth of 0 or less gives only the whole model.
        """
    def values(self, /) -> list[dict[str, int]]:
        """
        The splits, in the order of the names.
        """

@final
class Snapshot:
    """
    A block in the form in which it was compiled. Later additions to a model do not change it.
    """
    def __new__(cls, /, block: "Block") -> Snapshot: ...
    @property
    def block(self, /) -> Block:
        """
        The block.
        """
    @property
    def devices(self, /) -> dict[str, str]:
        """
        The devices of params by name, as far as the model's author stated them.
        """
    @property
    def names(self, /) -> list[str]:
        """
        The names of the blocks and terminals directly inside.
        """
    @property
    def places(self, /) -> list[tuple[str, str | None, str | None]]:
        """
        The blocks inside that run elsewhere: their paths, and the names of their backends and
        devices. Outer blocks come before those inside them. The path of the whole is empty.
        """
    @property
    def plain(self, /) -> Snapshot:
        """
        The snapshot without losses, metrics and their targets.
        """

@final
class Target:
    """
    A target by its name, such as `numpy` or `cpu`.

    Errors: `UsageError` if there is no such target.
    """
    def __new__(cls, /, name: str) -> Target: ...
    def __repr__(self, /) -> str: ...
    @property
    def arrays(self, /) -> str:
        """
        The name of the framework whose arrays calls take and return.
        """
    @property
    def class_name(self, /) -> str:
        """
        The name of the class of its backends. The class is in the module of `mithril.backends` that
        has the target's name.
        """
    @property
    def dialect(self, /) -> str:
        """
        The kind of its code: `python` or `c` for source, `machine` for machine code.
        """
    @property
    def differentiates(self, /) -> bool:
        """
        Whether the framework has automatic differentiation.
        """
    @property
    def measured(self, /) -> bool:
        """
        Whether `mithril bench` measures its performance.
        """
    @property
    def name(self, /) -> str:
        """
        The name in commands and messages, such as `numpy`.
        """
    @property
    def suffix(self, /) -> str:
        """
        The suffix of files of its code.
        """
    @property
    def tiers(self, /) -> list[str]:
        """
        The compilers that the first calls may use, if there is a choice.
        """

@final
class TrainModel(Block):
    """
    A model with its training objective: losses, regularizers and metrics. The total cost is the
    output `final_cost`, whose gradients `output_gradients=True` computes. The model can no longer
    be changed.
    """
    def __init__(self, /, model: Any) -> None: ...
    def __new__(cls, /, model: "Block") -> TrainModel: ...
    def add_loss(self, /, loss: "Block | None" = None, reduce_steps: "list[Block] | None" = None, coef: "float" = 1.0, input: "str" = ..., target: "str" = ...) -> None:
        """
        Adds `coef` times a loss, which compares the output `input` (default `"output"`) with
        `target` (default `"target"`), a new input or a terminal of the model. The blocks
        `reduce_steps` reduce the loss to a number; the default is the mean.

        Errors: `TerminalError` for an unknown output; `UsageError` for invalid arguments.
        """
    def add_metric(self, /, metric: "Block | None" = None, reduce_steps: "list[Block] | None" = None, input: "str" = ..., target: "str" = ..., name: "str | None" = None) -> None:
        """
        Adds a metric as the output `name`. It compares the output `input` (default `"output"`) with
        `target` (default `"target"`). The default name is the kind of the metric in snake case.

        Errors: `TerminalError` for an unknown output; `MithrilError` for a name that is taken.
        """
    def add_regularization(self, /, regularizer: "Block | None" = None, coef: SupportsFloat | SupportsIndex | None = None, input: Any | None = None) -> None:
        """
        Adds `coef` times the sum of a regularizer over params. `input` is the name of a param, or a
        compiled regular expression: the params in whose names `search` finds a match are
        regularized.

        Errors: `TerminalError` if no param matches; `UsageError` for invalid arguments.
        """
    def set_loss_combiner(self, /, combiner: "Block | None" = None) -> None:
        """
        Sets the block that reduces a vector of all losses to one number. The default is the sum.

        Errors: `UsageError` for an invalid argument.
        """

def amount(text: str) -> int | None:
    """
    The number of bytes in a text such as `"4GB"`, `"512 MiB"` or `"4096"`. `None` if the text is
    not an amount of memory.
    """

def array_functions(definition: str) -> list[str]:
    """
    The functions of the array module that the templates of a definition name, and those of the
    templates that it starts from.

    Errors: as for `register_target`.
    """

def begin_params(path: "str", arrays: "dict[str, object]") -> "tuple[str, list[int]]":
    """
    Makes a temporary file with room for these arrays. `end_params` then gives it its name. Returns
    the name of the temporary file, and the offset of each array in bytes.

    Errors: a value that is not an array; a file that cannot be written.
    """

def block_info(name: str) -> BlockInfo | None:
    """
    The description of a block. None if there is no block with this name.
    """

def block_listing() -> str:
    """
    A text that lists the blocks by family.
    """

def block_names() -> list[str]:
    """
    The names of all blocks.
    """

def compile(block: Block, target: str, dtype: DType, wide: bool, *, shapes: "dict[str, object]", dtypes: "dict[str, object]", inference: bool, trainable_keys: SupportsGetItem[int, str], data_keys: SupportsGetItem[int, str], discard_keys: SupportsGetItem[int, str], constant_keys: "dict[str, object]", level: str, math: str, cache: bool, file_path: str | None = None, keep: SupportsGetItem[int, str] = ..., watched: SupportsGetItem[int, str] = ..., differentiate: str | None = None, own_gradients: bool = False, checkpoint: bool = False, memory_budget: SupportsIndex | None = None, separate_buffers: bool = False, tier: str | None = None, cpu: str | None = None, random: str = "framework", in_place: str = "none", mixed_precision: bool = False, checks: bool | None = None, others: SupportsGetItem[int, tuple[str, SupportsGetItem[int, str], str | None, str | None, bool]] = ..., mesh: SupportsGetItem[int, tuple[str, SupportsIndex]] = ..., layouts: tuple[SupportsGetItem[int, tuple[str, SupportsGetItem[int, tuple[str, SupportsIndex]]]], SupportsGetItem[int, tuple[SupportsGetItem[int, SupportsIndex], SupportsGetItem[int, tuple[str, SupportsIndex]]]]] = ..., at_call: bool = False) -> Program:
    """
    Compiles a block to source for a framework, or to native code. With `at_call`, the shapes are
    those of a call, and errors are worded for a call.

    Errors: as for `mithril.compile`.
    """

def custom(*, name: "str | None" = None, mir: "str | None" = None, shape: "str | None" = None, gradient: "Block | dict[str, str] | None" = None, **bodies: "str | None") -> "Block":
    """
    Creates a block for a custom operation. Each body is source text. `mir` is the body for all
    backends. The keywords `numpy`, `torch`, `jax`, `mlx`, `tinygrad`, `cpu` and `c` give bodies for
    single backends, which take precedence. Native code also uses the body for `c`.

    A body in Python or C is the body of a function that reads the inputs by their names. Python
    code returns the outputs, C code stores them. `shape` declares the inputs and the outputs, such
    as `"(x: [*b, n], w: [n, m]) -> [*b, m]"`. `*b` stands for any number of dims. An array has the
    dtype of the model's floats unless it is declared with another one, such as `i64[n]`. The text
    of `mir` contains its own declaration.

    `gradient` is a block that computes the gradients, or a dict of bodies such as `{"numpy":
    "return y_gradient * 2"}`. Its inputs are named after this block's inputs, its outputs, and its
    outputs with the suffix `_gradient`. Its outputs are named after this block's inputs with the
    suffix `_gradient`. Without `gradient`, PyTorch, JAX, MLX and tinygrad differentiate the body;
    other backends use the gradients of `mir`.

    Errors: `UsageError` for invalid arguments; `MithrilError` for invalid text, with its line and
    column.
    """

def did_you_mean(name: str, candidates: SupportsGetItem[int, str]) -> str | None:
    """
    The hint ``did you mean `a` or `b`?`` with the candidates that are most similar to a name. None
    if none is similar.
    """

def elsewhere(name: str) -> str | None:
    """
    The hint for a name of another library: its replacement in Mithril. None if the name is not
    known.
    """

def end_params(temporary: "str", path: "str", *, keep: "bool") -> None:
    """
    Gives a file of `begin_params` its name, or removes it.

    Errors: those of the system.
    """

def links(mesh: SupportsGetItem[int, tuple[str, SupportsIndex]], machine: str) -> dict[str, float]:
    """
    The bytes that a device of this machine sends along each axis of a mesh in a second.

    Errors: a wrong mesh; an unknown machine.
    """

def load_function(text_or_path: "str | PathLike[str]", name: "str | None" = None) -> "Block":
    """
    Creates a block from a function in a `.mir` text or file. Its terminals are the function's
    arguments and results. `name` chooses one of several functions; by default it is the function
    that no other function calls. The dtype `float` in the text stands for the dtype of the model's
    floats.

    Errors: `MithrilError` for a file that cannot be read, for invalid text (with its line and
    column), and for several functions without a `name`.
    """

def load_params(path: "str") -> "list[tuple[str, DType, list[int], bytearray]]":
    """
    Reads the params of a safetensors file.

    Errors: a file that cannot be read, or that is not a safetensors file.
    """

def params_layout(path: "str") -> "list[tuple[str, DType, list[int], int]]":
    """
    The arrays of a safetensors file, each with its offset in bytes. Only the header is read.

    Errors: those of `load_params`.
    """

def processor(cpu: str | None = None) -> str:
    """
    The name of the processor that native code is compiled for: `cpu`, or else the environment
    variable MITHRIL_CPU, or else `native`.

    Errors: `UsageError` for an unknown processor; `BackendError` for a processor with features that
    this machine does not have.
    """

def processors() -> list[str]:
    """
    The names of the processors for which native code is tested and can run on this machine, in
    ascending order: levels of x86-64, and the highest one with its extensions.
    """

def refuse_renamed(given: SupportsGetItem[int, str], own: SupportsGetItem[int, str]) -> None:
    """
    Raises an error if params have names from an earlier version of the model.
    """

def register_target(definition: str) -> Target:
    """
    Registers a backend that generates Python source, as a target. Its definition is a JSON text.
    The same definition may be registered again.

    Errors: `UsageError` for a name that is taken, for an unknown operation, and for a template that
    cannot be read.
    """

def renamed(given: SupportsGetItem[int, str], own: SupportsGetItem[int, str]) -> dict[str, str]:
    """
    Maps old names of params to new ones, for params that were saved before blocks were added to or
    removed from the model. `given` are the saved names, `own` the names of the model.
    """

def save_params(path: "str", arrays: "dict[str, object]") -> None:
    """
    Writes arrays of any framework to a file, as safetensors.

    Errors: a value that is not an array; a file that cannot be written.
    """

def sharding(program: Program, mesh: SupportsGetItem[int, tuple[str, SupportsIndex]], machine: str, memory: SupportsFloat | SupportsIndex | None, optimizer_states: SupportsFloat | SupportsIndex, given: SupportsGetItem[int, tuple[str, SupportsGetItem[int, tuple[str, SupportsIndex]]]], residuals: SupportsGetItem[int, tuple[SupportsGetItem[int, SupportsIndex], SupportsGetItem[int, tuple[str, SupportsIndex]]]], dims: "dict[str, int]", *, choose: bool) -> Shardings:
    """
    How params and inputs of a program are divided over a mesh. `given` has mesh axes with the axes
    that they divide, by name, and `residuals` the same for residual values by their shape; with
    `choose`, the others are chosen, and else they follow from these.

    Errors: a wrong mesh; an unknown machine; those of `propose_sharding` and `explain_sharding`.
    """

def table(heads: SupportsGetItem[int, str], numbers: SupportsGetItem[int, SupportsIndex], rows: SupportsGetItem[int, SupportsGetItem[int, str]]) -> tuple[str, str]:
    """
    Formats a table of texts: as plain text, and as HTML. The columns in `numbers` are aligned
    right.
    """

def targets() -> list[Target]:
    """
    Every target, the built-in ones first, in the order in which messages list them.
    """

def __getattr__(name: str) -> Incomplete: ...
