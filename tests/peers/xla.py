"""XLA's side of its FFI, for tests: the header that jaxlib ships, and calls of handlers as XLA makes them, in the layouts of that header.

`Executable` is one custom call of a program on a GPU: it instantiates the handler, and executes it on memory of the fake driver
(`tests.codegen.cuda.driver`); stream, memory and errors are handed out as XLA does.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import jax
import numpy as np

from tensorexpr.dtypes import dtype
from tensorexpr.interop.jax.handler import Handlers
from tests.codegen.cuda.driver import driver

BASIC = {"size_t": 8, "int64_t": 8, "int32_t": 4, "uint32_t": 4, "int": 4, "double": 8, "XLA_FFI_Handler_Traits": 4}


class Header:
    """The structs of a C header: offsets and sizes by the rules of C on a machine of 64 bits."""

    def __init__(self, text: str) -> None:
        text = re.sub(r"/\*.*?\*/|//[^\n]*", "", text, flags=re.S)
        self.values = {name: int(value) for name, value in re.findall(r"\b(XLA_FFI_\w+)\s*=\s*(\d+)", text)}
        self.version = tuple(int(re.search(rf"#define XLA_FFI_API_{part} (\d+)", text)[1]) for part in ("MAJOR", "MINOR"))
        self.enums = set(re.findall(r"typedef enum[^{]*\{[^}]*\}\s*(\w+);", text))
        text = re.sub(r"_XLA_FFI_API_STRUCT_FIELD\((\w+)\)", r"void* \1", text)
        self.structs = {name: self._fields(body) for name, body in re.findall(r"struct (\w+) \{(.*?)\n\}", text, flags=re.S)}

    @staticmethod
    @cache
    def shipped() -> Header:
        """The header that jaxlib ships."""
        return Header((Path(jax.ffi.include_dir()) / "xla" / "ffi" / "api" / "c_api.h").read_text())

    @staticmethod
    def _fields(body: str) -> list[tuple[str, str]]:
        body = re.sub(r"void \(\*(\w+)\)\([^)]*\)", r"void* \1", body)
        found = []
        for statement in body.split(";"):
            match = re.fullmatch(r"\s*(?:const )?(?:struct )?([\w ]+?)\s*(\**)\s*(\w+)\s*", statement)
            if match:
                found.append((match[3], "*" if match[2] else match[1]))
        return found

    def size(self, kind: str) -> tuple[int, int]:
        """Size and alignment of a type."""
        if kind == "*":
            return 8, 8
        if kind in self.enums:
            return 4, 4
        if kind in BASIC:
            return BASIC[kind], BASIC[kind]
        end, alignment = 0, 1
        for _, inner in self.structs[kind]:
            size, own = self.size(inner)
            end = -(-end // own) * own + size
            alignment = max(alignment, own)
        return -(-end // alignment) * alignment, alignment

    def offset(self, path: str) -> int:
        """Where a field lies: "struct.field", "struct.field.field"."""
        kind, *names = path.split(".")
        total = 0
        for name in names:
            at = 0
            for field, inner in self.structs[kind]:
                size, alignment = self.size(inner)
                at = -(-at // alignment) * alignment
                if field == name:
                    total, kind = total + at, inner
                    break
                at += size
            else:
                raise AssertionError(f"no field {name} in {kind}")
        return total


_HANDLER = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)
_KINDS = {"float": "F", "int": "S", "uint": "U"}


def number_of(type_: np.dtype) -> int:
    """XLA's number of a dtype, from the header."""
    name = dtype(type_).name
    special = {"bool": "PRED", "bfloat16": "BF16"}.get(name)
    return Header.shipped().values[f"XLA_FFI_DataType_{special or re.sub('[a-z]+', lambda m: _KINDS[m[0]], name)}"]


class Struct:
    """A struct of the header in memory; fields are set and read by name, pointers and integers of 64 bits unless they are smaller."""

    def __init__(self, kind: str, address: int | None = None, **fields: int) -> None:
        self.kind, header = kind, Header.shipped()
        size = header.size(kind)[0]
        self.memory = ctypes.create_string_buffer(size) if address is None else (ctypes.c_char * size).from_address(address)
        self.address = ctypes.addressof(self.memory)
        for name, value in fields.items():
            self[name] = value

    def _at(self, path: str) -> ctypes.c_int64 | ctypes.c_int32:
        header, kind = Header.shipped(), self.kind
        for name in path.split("."):
            kind = dict(header.structs[kind])[name]
        return (ctypes.c_int64 if header.size(kind)[0] == 8 else ctypes.c_int32).from_address(
            self.address + header.offset(f"{self.kind}.{path}")
        )

    def __setitem__(self, path: str, value: int) -> None:
        self._at(path).value = value

    def __getitem__(self, path: str) -> int:
        return self._at(path).value


class XlaError(Exception):
    """What a handler gave XLA: its code and its words."""


def memory(size: int) -> int:
    """Memory of the fake device, in the context that is current."""
    place = ctypes.c_void_p()
    assert driver().cuMemAlloc_v2(ctypes.byref(place), ctypes.c_size_t(max(1, size))) == 0
    return place.value or 0


def context(device: int = 0) -> int:
    """The primary context of a fake device, which is its stream's handle, too."""
    found = ctypes.c_void_p()
    assert driver().cuDevicePrimaryCtxRetain(ctypes.byref(found), device) == 0
    return found.value or 0


class Executable:
    """A custom call of XLA to the kernel of a number, on a device."""

    def __init__(self, handlers: Handlers, number: int, device: int = 0, refuses: str = "") -> None:
        self.stage = {name: _HANDLER(handlers.address(f"te_jax_{name}")) for name in ("instantiate", "execute")}
        self._delete = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(handlers.address("te_jax_delete"))
        self.state, self.type, self.stream, self.refuses = 0, 0, context(device), refuses
        self.errors: list[tuple[int, str]] = []
        self.taken: dict[int, int] = {}
        self.most = 0
        functions: dict[str, Callable[[Struct], object]] = {
            "Error_Create": self._error,
            "State_Set": self._set,
            "State_Get": lambda args: args.__setitem__("state", self.state),
            "Stream_Get": lambda args: args.__setitem__("stream", self.stream),
            "DeviceMemory_Allocate": self._allocate,
            "DeviceMemory_Free": self._free,
        }
        self._functions = {name: self._function(name, work) for name, work in functions.items()}
        self.api = Struct("XLA_FFI_Api")
        for name, function in self._functions.items():
            self.api[f"XLA_FFI_{name}"] = ctypes.cast(function, ctypes.c_void_p).value or 0
        value = ctypes.c_int64(number)
        scalar = Struct("XLA_FFI_Scalar", value=ctypes.addressof(value))
        attributes = (ctypes.c_void_p * 1)(scalar.address)
        _open.append(self)
        self._run("instantiate", Struct("XLA_FFI_CallFrame", **{"attrs.size": 1, "attrs.attrs": ctypes.addressof(attributes)}))

    def _function(self, name: str, work: Callable[[Struct], object]) -> object:
        def called(address: int) -> int | None:
            args = Struct(f"XLA_FFI_{name}_Args", address)
            fields = Header.shipped().structs[args.kind]
            last = Header.shipped().offset(f"{args.kind}.{fields[-1][0]}") + Header.shipped().size(fields[-1][1])[0]
            assert args["struct_size"] == last and not args["extension_start"]
            if name == self.refuses:
                self.errors.append((13, f"no {name} today"))
                return len(self.errors)
            if name == "Error_Create":
                return work(args)  # type: ignore[return-value]
            assert args["ctx"] == id(self)
            work(args)
            return None

        return _HANDLER(called)

    def _error(self, args: Struct) -> int:
        self.errors.append((args["errc"], ctypes.string_at(args["message"]).decode()))
        return len(self.errors)

    def _set(self, args: Struct) -> None:
        self.state, self.type = args["state"], args["type_id"]

    def _allocate(self, args: Struct) -> None:
        assert args["alignment"] == 256
        driver().cuCtxPushCurrent_v2(ctypes.c_void_p(self.stream))
        args["data"] = memory(args["size"])
        driver().cuCtxPopCurrent_v2(ctypes.byref(ctypes.c_void_p()))
        self.taken[args["data"]] = args["size"]
        self.most = max(self.most, args["size"])

    def _free(self, args: Struct) -> None:
        assert self.taken.pop(args["data"]) == args["size"]
        driver().cuMemFree_v2(ctypes.c_void_p(args["data"]))

    def _run(self, stage: str, frame: Struct) -> None:
        frame["api"], frame["ctx"] = self.api.address, id(self)
        error = self.stage[stage](frame.address)
        assert self.refuses == "DeviceMemory_Free" or not self.taken, "all memory was given back"
        for place in self.taken:
            driver().cuMemFree_v2(ctypes.c_void_p(place))
        if error:
            raise XlaError(*self.errors[error - 1])

    def __call__(
        self, arrays: Sequence[np.ndarray], results: Sequence[tuple[tuple[int, ...], np.dtype]], shift: int = 0
    ) -> list[np.ndarray]:
        """The results for arrays, by way of memory of the device; `shift` bytes behind where it begins."""
        driver().cuCtxPushCurrent_v2(ctypes.c_void_p(self.stream))
        held = []
        made = [np.empty(shape, type_) for shape, type_ in results]
        buffers, frame = [], Struct("XLA_FFI_CallFrame")
        for array in (*arrays, *made):
            place = memory(array.nbytes + shift)
            array = np.ascontiguousarray(array).reshape(array.shape)
            driver().cuMemcpyHtoD_v2(ctypes.c_void_p(place + shift), ctypes.c_void_p(array.ctypes.data), ctypes.c_size_t(array.nbytes))
            held.append(place)
            extents = (ctypes.c_int64 * max(1, array.ndim))(*array.shape)
            fields = {"data": place + shift, "rank": array.ndim, "dims": ctypes.addressof(extents), "dtype": number_of(array.dtype)}
            buffers.append((Struct("XLA_FFI_Buffer", **fields), extents))
        driver().cuCtxPopCurrent_v2(ctypes.byref(ctypes.c_void_p()))
        pointers = (ctypes.c_void_p * len(buffers))(*(buffer.address for buffer, _ in buffers))
        frame["args.size"], frame["args.args"] = len(arrays), ctypes.addressof(pointers)
        frame["rets.size"], frame["rets.rets"] = len(made), ctypes.addressof(pointers) + 8 * len(arrays)
        try:
            self._run("execute", frame)
            for array, place in zip(made, held[len(arrays) :], strict=True):
                size = ctypes.c_size_t(array.nbytes)
                assert driver().cuMemcpyDtoH_v2(ctypes.c_void_p(array.ctypes.data), ctypes.c_void_p(place + shift), size) == 0
        finally:
            for place in held:
                driver().cuMemFree_v2(ctypes.c_void_p(place))
        return made

    def close(self) -> None:
        """What XLA does when an executable goes."""
        if self.state:
            self._delete(self.state)


_open: list[Executable] = []


def close_all() -> None:
    """All executables go."""
    while _open:
        _open.pop().close()
