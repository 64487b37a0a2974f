"""What AOTAutograd hands over, made ready and compiled.

Forward and backward come as graphs of functional operators on fake tensors, and everything is compiled then: nothing is asked of
data. Decompositions are torch's for what the table lacks. Random numbers are torch's own draws, of torch's generator and in the order of
the graph: what is drawn depends on shapes alone, so draws are made ready to run in front of the one program, and the numbers are those
that eager mode draws after the same seed.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._decomp import core_aten_decompositions, get_decompositions
from torch._functorch.aot_autograd import aot_module_simplified
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch._guards import TracingContext
from torch.fx import GraphModule, Node

from tensorexpr.interop.torch.backend import lists
from tensorexpr.interop.torch.backend.regions import compiled
from tensorexpr.interop.torch.backend.sizes import hint, symbols_of
from tensorexpr.interop.torch.backend.table import definition_of

_ATEN: Any = torch.ops.aten


_MORE = (
    _ATEN.addmv, _ATEN.dist, _ATEN.ldexp, _ATEN.linalg_vector_norm, _ATEN.rrelu_with_noise_backward, _ATEN.tril_indices,
    _ATEN.triu_indices, _ATEN.upsample_bicubic2d,
)  # fmt: skip
"""What torch takes apart for others, though it is one of its core operators or one of backends."""


@functools.cache
def decompositions() -> dict[Any, Callable[..., Any]]:
    """Torch's for its core operators and a few more, without those that the table has; what draws random numbers is left as it is. Lists
    of tensors are taken apart."""
    seeded = torch.Tag.nondeterministic_seeded
    rules: dict[Any, Any] = dict(core_aten_decompositions().items()) | get_decompositions(_MORE) | lists.decompositions()
    return {target: rule for target, rule in rules.items() if definition_of(target) is None and seeded not in target.tags}


def compile_graph(module: GraphModule, inputs: Sequence[Any], *, strict: bool, saved: Sequence[int] = ()) -> Callable[[list[Any]], Any]:
    """A functional graph as a function of one list of arguments, which it empties: nothing is held longer than it is needed.

    `saved` are the positions of arguments that were saved for this graph alone.
    """
    device = _device(inputs)
    for node in module.graph.nodes:
        if node.op == "get_attr" and "val" not in node.meta:
            node.meta["val"] = getattr(module, str(node.target), None)
    drawn(module)
    given = [node for node in module.graph.nodes if node.op == "placeholder"]
    made = compiled(module, device, strict, [given[position] for position in saved])
    run = made.forward

    def boxed(arguments: list[Any]) -> Any:
        return run(arguments)

    boxed._boxed_call = True  # type: ignore[attr-defined]  # functions take attributes
    return boxed


def _device(inputs: Sequence[Any]) -> torch.device:
    """Where regions run: on the GPU of the arguments, where they are on one, else on the CPU."""
    return next((x.device for x in inputs if isinstance(x, torch.Tensor) and x.device.type == "cuda"), torch.device("cpu"))


# ---------------------------------------------------------------------------------------------------- random numbers


def drawn(module: GraphModule) -> None:
    """Has draws depend on shapes alone, as far as these are numbers or arguments: dropout is a draw and a product."""
    graph = module.graph
    for node in list(graph.nodes):
        if node.op != "call_function":
            continue
        with graph.inserting_before(node):
            if node.target is _ATEN.native_dropout.default:
                _dropout(graph, node)
            elif node.target in _LIKE:
                _like(graph, node)
            elif node.target in _FILLED and isinstance(node.args[0], Node):
                made = _draw(graph, node.target, node.args[0], node.args[1:], node.meta["val"].dtype)
                if made is not None:
                    node.replace_all_uses_with(made)
                    graph.erase_node(node)
    graph.eliminate_dead_code(lambda node: node.is_impure())


_LIKE = {_ATEN.rand_like.default: _ATEN.rand.default, _ATEN.randn_like.default: _ATEN.randn.default}
_FILLED = (_ATEN.bernoulli.p, _ATEN.uniform.default, _ATEN.normal_functional.default, _ATEN.exponential.default)


def _extents(source: Node) -> list[Any] | None:
    """The extents of a tensor, where they are numbers, or arguments of the graph."""
    found: list[Any] = []
    for n in source.meta["val"].shape:
        if not symbols_of(n):
            found.append(int(n))
            continue
        known = next((node for node in source.graph.nodes if node.op == "placeholder" and _is(node.meta.get("val"), n)), None)
        if known is None:
            return None
        found.append(known)
    return found


def _is(value: Any, extent: torch.SymInt) -> bool:
    return isinstance(value, torch.SymInt) and value.node.expr == extent.node.expr


def _draw(graph: torch.fx.Graph, target: Any, source: Node, parameters: Sequence[Any], type_: torch.dtype) -> Node | None:
    """A draw of the shape of another tensor, in the order in which that lies in memory: so eager mode fills a tensor like it."""
    extents, value = _extents(source), source.meta["val"]
    if extents is None:
        return None
    like = torch.empty_like(value, dtype=type_)
    order = sorted(range(like.ndim), key=lambda axis: (-hint(like.stride(axis)), axis))

    def call(target: Any, fake: Any, *given: Any, **named: Any) -> Node:
        made = graph.call_function(target, given, named)
        made.meta["val"] = fake
        return made

    def seen(node: Node) -> Node:
        return call(_ATEN.permute.default, like, node, [order.index(axis) for axis in range(like.ndim)]) if order != sorted(order) else node

    stored = like.permute(order)
    empty = _for_draws(call(_ATEN.empty.memory_format, stored, [extents[axis] for axis in order], dtype=type_, device=value.device))
    if target is _ATEN.bernoulli.p:  # whose result is contiguous
        return seen(call(target, stored, empty, *parameters))
    return call(target, like, seen(empty), *parameters)


def _for_draws(node: Node) -> Node:
    """Marks a node as one that stands in front of a draw, with PyTorch."""
    node.meta["tensorexpr_foreign"] = "an empty tensor to be drawn into"
    return node


def _like(graph: torch.fx.Graph, node: Node) -> None:
    source: Any = node.args[0]
    extents, value = _extents(source), node.meta["val"]
    if extents is None or not value.is_contiguous():
        return
    made = graph.call_function(_LIKE[node.target], (extents,), {"dtype": value.dtype, "device": value.device})
    made.meta["val"] = value
    node.replace_all_uses_with(made)
    graph.erase_node(node)


def _dropout(graph: torch.fx.Graph, node: Node) -> None:
    """`native_dropout` as torch computes it: a mask of Bernoulli draws, and two products."""
    source, p, *rest = node.args
    train = rest[0] if rest else node.kwargs.get("train")
    if (train is not None and not train) or p == 1 or not isinstance(source, Node) or not isinstance(p, int | float):
        return
    mask = _draw(graph, _ATEN.bernoulli.p, source, (1 - p,), torch.bool)
    if mask is None:
        return
    masked = graph.call_function(_ATEN.native_dropout_backward.default, (source, mask, 1 / (1 - p)))
    masked.meta["val"] = node.meta["val"][0]
    for user in list(node.users):
        user.replace_all_uses_with(mask if user.args[1] == 1 else masked)
        graph.erase_node(user)
    graph.erase_node(node)


# ---------------------------------------------------------------------------------------------------- the way in


def through_autograd(module: GraphModule, inputs: Sequence[Any], strict: bool) -> Callable[..., Any]:
    """A graph of Dynamo's as AOTAutograd runs it, with forward and backward compiled by us."""
    compile_: Any = functools.partial(compile_graph, strict=strict)

    def backward(module: GraphModule, inputs: Sequence[Any]) -> Any:
        context, saved = TracingContext.try_get(), []
        if context is not None and context.fw_metadata is not None:
            saved = context.fw_metadata.bw_donated_idxs or []
            context.fw_metadata.bw_donated_idxs = []  # what is saved stays as it is, so that there may be another way back
        return compile_(module, inputs, saved=saved)

    later: Any = torch._dynamo.disable(backward, reason="compiles a backward graph")
    found: Callable[..., Any] = aot_module_simplified(
        module,
        inputs,
        fw_compiler=compile_,
        bw_compiler=later,
        inference_compiler=compile_,
        partition_fn=min_cut_rematerialization_partition,
        decompositions=decompositions(),
        keep_inference_input_mutations=True,
    )
    return torch._dynamo.disable(found, reason="compiled by tensorexpr")
