"""Strings. They are no data of the language: an operator on them is computed while the model is read, for the strings that are given."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from onnx import TensorProto

from tensorexpr import language
from tensorexpr.interop.onnx.operators.common import sizes
from tensorexpr.interop.onnx.table import Known, Raw, operator
from tensorexpr.interop.onnx.values import array_of, known, tensor_of, texts
from tensorexpr.language import cast, compute, constant, scatter


def _objects(items: Sequence[Any], shape: Sequence[int]) -> np.ndarray:
    found = np.empty(len(items), object)
    found[:] = items
    return found.reshape(shape)


@operator("StringConcat")
def _concat(a: Known, b: Known) -> Any:
    first, second = np.broadcast_arrays(texts(a), texts(b))
    return _objects([p + q for p, q in zip(first.ravel(), second.ravel(), strict=True)], first.shape)


@operator("StringSplit")
def _split(x: Known, *, delimiter: str | None = None, maxsplit: int | None = None) -> Any:
    parts = [item.split(delimiter or None, -1 if maxsplit is None else maxsplit) for item in texts(x).ravel()]
    counts = np.asarray([len(part) for part in parts], np.int64).reshape(x.shape)
    width = max((len(part) for part in parts), default=0)
    flat = [item for part in parts for item in (*part, *[""] * (width - len(part)))]
    return _objects(flat, (*x.shape, width)), counts


@operator("StringNormalizer")
def _normalize(
    x: Known, *, case_change_action: str = "NONE", is_case_sensitive: int = 0, locale: str | None = None, stopwords: Any = None
) -> Any:
    changes: dict[str, Callable[[str], str]] = {"NONE": str, "LOWER": str.lower, "UPPER": str.upper}
    change = changes[case_change_action]
    stops = set(stopwords or ())
    folded = stops if is_case_sensitive else {word.lower() for word in stops}

    def row(items: Sequence[str]) -> list[str]:
        kept = [item for item in items if (item if is_case_sensitive else item.lower()) not in folded]
        return [change(item) for item in kept] or [""]

    array = texts(x)
    if array.ndim == 1:
        found = row(list(array))
        return _objects(found, (len(found),))
    found = row(list(array.ravel()))
    return _objects(found, (1, len(found)))


@operator("RegexFullMatch")
def _matches(x: Known, *, pattern: str | None = None) -> Any:
    compiled = re.compile(pattern or "")
    array = texts(x)
    return np.asarray([compiled.fullmatch(item) is not None for item in array.ravel()], bool).reshape(array.shape)


@operator("TfIdfVectorizer")
def _tf_idf(
    x: Raw, *, max_gram_length: int, max_skip_count: int, min_gram_length: int, mode: str, ngram_counts: Any, ngram_indexes: Any,
    pool_int64s: Any = None, pool_strings: Any = None, weights: Any = None,
) -> Any:  # fmt: skip
    """Each n-gram counts where it stands, with every number of items left out between its own."""
    words = list(pool_strings) if pool_strings is not None else None
    pool = np.asarray([words.index(word) for word in words] if words is not None else pool_int64s, np.int64)
    if words is not None:
        numbers = {word: k for k, word in reversed(list(enumerate(words)))}
        given = tensor_of(np.asarray([numbers.get(item, -1) for item in texts(known(x)).ravel()], np.int64).reshape(np.shape(x)))
    else:
        given = tensor_of(x)
    single = given.ndim == 1
    rows = [1, *sizes(given)] if single else sizes(given)
    width = max(ngram_indexes) + 1
    bounds = [*ngram_counts, len(pool)]
    targets = list(ngram_indexes)
    parts, first = [], 0
    for n in range(1, len(ngram_counts) + 1):
        start, end = bounds[n - 1], bounds[n]
        grams = pool[start:end].reshape(-1, n)
        own, first = targets[first : first + len(grams)], first + len(grams)
        if not len(grams) or not min_gram_length <= n <= max_gram_length:
            continue
        table, places = constant(grams), constant(np.asarray(own, np.int64))
        skips = range(1 if n == 1 else max_skip_count + 1)

        def count(b: Any, g: Any, n: int = n, table: Any = table, skips: range = skips) -> Any:
            total: Any = 0
            for skip in skips:
                starts = rows[1] - (n - 1) * (skip + 1)
                if starts <= 0:
                    continue

                def fits(s: Any, skip: int = skip) -> Any:
                    test: Any = None
                    for j in range(n):
                        at = s + j * (skip + 1)
                        one = cast(given[at] if single else given[b, at], "int64") == table[g, j]
                        test = one if test is None else test & one
                    return cast(test, "float32")

                total = total + language.sum(fits, starts)
            return cast(total, "float32")

        counted = compute((rows[0], len(grams)), count, name="counts")
        parts.append(scatter((rows[0], width), lambda b, g, c=counted, p=places: ((b, p[g]), c[b, g]), (rows[0], len(grams))))
    scale = np.ones(width, np.float32)
    for place, weight in zip(targets, weights or (), strict=False):
        scale[place] = weight
    factors = constant(scale)

    def value(b: Any, k: Any) -> Any:
        total: Any = cast(0, "float32")
        for part in parts:
            total = total + part[b, k]
        if mode == "TF":
            return total
        return language.where(total > 0, factors[k], 0) if mode == "IDF" else total * factors[k]

    return compute((width,), lambda k: value(0, k)) if single else compute((rows[0], width), value)


@operator("LabelEncoder", domain="ai.onnx.ml")
def _label(
    x: Raw, *, default_float: float = -0.0, default_int64: int = -1, default_string: str = "_Unused",
    default_tensor: TensorProto | None = None, keys_floats: Any = None, keys_int64s: Any = None, keys_strings: Any = None,
    keys_tensor: TensorProto | None = None, values_floats: Any = None, values_int64s: Any = None, values_strings: Any = None,
    values_tensor: TensorProto | None = None, classes_strings: Any = None,
) -> Any:  # fmt: skip
    def array(floats: Any, ints: Any, words: Any, tensor: Any) -> np.ndarray:
        if tensor is not None:
            return array_of(tensor).ravel()
        if words is not None:
            return _objects(list(words), (len(words),))
        return np.asarray(floats, np.float32) if floats is not None else np.asarray(ints, np.int64)

    keys = array(keys_floats, keys_int64s, keys_strings, keys_tensor)
    values = array(values_floats, values_int64s, values_strings, values_tensor)
    default = default_string if values.dtype == object else default_int64 if values.dtype.kind in "iu" else default_float
    if default_tensor is not None:
        default = array_of(default_tensor).ravel()[0]
    if keys.dtype == object or values.dtype == object:
        table = dict(zip(keys.tolist(), values.tolist(), strict=True))
        given = known(x)
        found = [table.get(item, default) for item in given.ravel().tolist()]
        return _objects(found, given.shape) if values.dtype == object else np.asarray(found, values.dtype).reshape(given.shape)
    given = tensor_of(x)
    own, answers = constant(keys.astype(given.dtype.numpy)), constant(values)

    def element(*i: Any) -> Any:
        def same(k: Any) -> Any:
            one = given[i] == own[k]
            return one | (language.isnan(given[i]) & language.isnan(own[k])) if given.dtype.is_float else one

        place = language.argmax(same, len(keys))
        return language.where(language.any(same, len(keys)), answers[place], cast(default, answers.dtype))

    return compute(given.shape, element)
