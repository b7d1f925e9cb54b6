"""Calls a library that was compiled ahead of time, using only Python's standard library.

    python -S library.py model.json function request.json

The metadata describes the function's arguments. The request has `dims` by name, and `arrays`: the
bytes of each argument in hexadecimal, by the argument's parameter or field (`x`,
`mithril_net_params.linear_w`). Missing params are mapped from the file of weights. Prints the
status and the bytes of each result in the same form.
"""

import ctypes
import json
import mmap
import sys
from pathlib import Path

BYTES = {"f64": 8, "i64": 8, "u64": 8, "f32": 4, "i32": 4, "u32": 4, "f16": 2, "bf16": 2, "i16": 2}


def place(array):
    """The key of an array in the request: a parameter, or a field of a struct."""
    return array.get("parameter") or f"{array['struct']}.{array['field']}"


def size(array, dims):
    total = BYTES.get(array["dtype"], 1)
    for dim in array["shape"]:
        total *= eval(dim, {"min": min, "max": max}, dims) if isinstance(dim, str) else dim
    return total


GUARD = 256
# Fill bytes: of guards; of results, as large numbers that no result has; of workspaces, as NaN.
CANARY, NEW, UNWRITTEN = 0xA5, 0xFB, 0xFF


class Memory:
    """Bytes between guard bytes, at an address that is aligned to one element but no more."""

    def __init__(self, length, element, filled):
        self.whole = ctypes.create_string_buffer(length + 2 * GUARD + 128)
        self.length = length
        self.address = -(-ctypes.addressof(self.whole) // 64) * 64 + GUARD + element
        ctypes.memset(self.address - GUARD, CANARY, length + 2 * GUARD)
        ctypes.memset(self.address, filled, length)

    def holds(self):
        """Whether the guard bytes are unchanged."""
        before = ctypes.string_at(self.address - GUARD, GUARD)
        behind = ctypes.string_at(self.address + self.length, GUARD)
        return before == behind == bytes([CANARY]) * GUARD


def mapped(folder, weights, kept):
    """Maps the file of weights, and returns the address of each. `kept` keeps the file mapped."""
    with (folder / weights["file"]).open("rb") as file:
        memory = mmap.mmap(file.fileno(), 0, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE)
    kept.append(ctypes.c_char.from_buffer(memory))
    start = ctypes.addressof(kept[-1])
    return {name: start + own["offset"] for name, own in weights["params"].items()}


def call(path, function, request):
    meta = json.loads(Path(path).read_text())
    folder = Path(path).parent
    library = ctypes.CDLL(str(folder / meta["library"]))
    own = next(f for f in meta["functions"] if f["name"] == function)
    given = {place: bytes.fromhex(text) for place, text in request["arrays"].items()}
    dims = request["dims"]
    pointers, kept, guarded = {}, [], {}

    def memory(name, length, element, filled):
        guarded[name] = Memory(length, element, filled)
        pointers[name] = guarded[name].address

    weights = mapped(folder, meta["weights"], kept) if "weights" in meta else {}
    for array in own["arguments"]:
        if place(array) in given:
            data = given[place(array)]
            memory(place(array), len(data), BYTES.get(array["dtype"], 1), NEW)
            ctypes.memmove(pointers[place(array)], data, len(data))
        elif array["role"] == "param":
            pointers[place(array)] = weights[array["name"]]
    for array in own["results"]:
        length, element = size(array, dims), BYTES.get(array["dtype"], 1)
        memory(place(array), max(0, length), element, NEW)
    values = [ctypes.c_int64(dims[d["name"]]) for d in own["dims"]]
    length = getattr(library, own["workspace_bytes"])
    length.restype = ctypes.c_size_t
    bytes_needed = length(*values)
    status = None
    if bytes_needed < 2**40:
        memory("workspace", bytes_needed, 0, UNWRITTEN)
        arguments = []
        for parameter in own["parameters"]:
            kind, name = parameter["kind"], parameter["name"]
            if kind == "dim":
                arguments.append(values[[d["parameter"] for d in own["dims"]].index(name)])
            elif kind == "struct":
                fields = [pointers.get(f"{parameter['type']}.{f}", 0) for f in parameter["fields"]]
                struct = (ctypes.c_void_p * len(fields))(*fields)
                kept.append(struct)
                arguments.append(ctypes.byref(struct))
            else:
                arguments.append(ctypes.c_void_p(pointers.get(name, 0)))
        status = getattr(library, function)(*arguments)
    raw = {
        place(array): ctypes.string_at(pointers[place(array)], max(0, size(array, dims))).hex()
        for array in own["results"]
    }
    loaded = [name for name in ("mithril", "numpy") if name in sys.modules]
    answer = {"status": status, "bytes": bytes_needed, "results": raw, "loaded": loaded}
    return {**answer, "overrun": [name for name, own in guarded.items() if not own.holds()]}


if __name__ == "__main__":
    print(json.dumps(call(sys.argv[1], sys.argv[2], json.loads(Path(sys.argv[3]).read_text()))))
