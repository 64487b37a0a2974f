"""The table of a bundle: what is in it, in JSON, with a digest of itself in its first line and one of every other file.

The digest is that of all bytes behind the first line, and the first line is compared as a whole, so a flip of any byte is noticed.
The code has a digest of the table's contents in it (`mark_of`), so that a table that was edited and given a new digest is noticed as well.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from tensorexpr.codegen.bundle.gpus import GpuPart
from tensorexpr.codegen.compiled.arguments import Parameter, size_sources
from tensorexpr.codegen.compiled.context import Symbol
from tensorexpr.codegen.compiled.function import CompiledFunction
from tensorexpr.codegen.llvm import Interface
from tensorexpr.codegen.llvm.text.abi import plain
from tensorexpr.codegen.nest import CheckSite
from tensorexpr.ir import Const, greatest_size
from tensorexpr.text import print_expr


def table_file(table: Mapping[str, Any]) -> bytes:
    """The contents of the file."""
    body = json.dumps(table, indent=1).removeprefix("{\n").encode() + b"\n"
    return f'{{"sha256": "{hashlib.sha256(body).hexdigest()}",\n'.encode() + body


def function_table(
    function: CompiledFunction,
    symbol: str,
    variants: Sequence[tuple[Interface, Sequence[CheckSite]]],
    gpu: GpuPart | None,
    constants: Sequence[str],
) -> dict[str, Any]:
    """A function: how it is called, its placeholders and constants, per variant its activations and what failed checks say, and
    for GPUs that and its kernels: grids and threads, parameters, code."""
    signature = function.signature
    parameters = [*signature.inputs, *signature.outputs]
    placeholders = [_placeholder(k, s, p) for k, (s, p) in enumerate(zip(function.placeholders, parameters, strict=True))]
    return {
        "symbol": symbol,
        "mode": function.mode,
        "single": signature.single,
        "updates": list(function.updates),
        "sizes": list(signature.sizes),
        "greatest_sizes": {name: most for name in signature.sizes if (most := greatest_size(name)) is not None},
        "size_sources": [[s.name, s.position, s.axis, s.scale, [list(r) for r in s.rest], s.constant] for s in size_sources(signature)],
        "placeholders": placeholders,
        "constants": list(constants),
        "activations": [_activations(interface) for interface, _ in variants],
        "checks": [[_check(site) for site in checks] for _, checks in variants],
        "gpu": None if gpu is None else {**gpu.as_data(), "checks": [_check(site) for site in gpu.checks]},
    }


def _placeholder(slot: int, symbol: Symbol, parameter: Parameter) -> dict[str, Any]:
    fixed = all(isinstance(e, Const) for e in parameter.shape)
    return {
        "name": symbol.name,
        "path": symbol.path,
        "kind": symbol.kind,
        "dtype": parameter.dtype.name,
        "shape": [plain(e) for e in parameter.shape],
        "extents": [print_expr(e) for e in parameter.shape],
        "slot": slot,
        "offset": 8 * slot,
        "size": prod(int(e.value) for e in parameter.shape if isinstance(e, Const)) * parameter.dtype.itemsize if fixed else None,
    }


def _activations(interface: Interface) -> dict[str, Any]:
    """Bytes of workspace of known size, and bytes per element and extents of each further buffer."""
    return {"size": interface.workspace, "alignment": 64, "open": [[size, list(extents)] for size, extents in interface.buffers]}


def _check(site: CheckSite) -> dict[str, Any]:
    return {"definition": site.definition, "tensor": site.tensor, "axis": site.axis, "access": site.access, "unsigned": site.unsigned}
