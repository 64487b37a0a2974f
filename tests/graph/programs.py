"""Random traced functions: variables, nested calls, branches, loops, prints, unused results and reads that can fail.

A program is drawn as data (nested tuples), so the same one can be traced as functions or written out, and shown when a law is broken.
"""

import functools

import numpy as np

import tensorexpr as te

SIZE = 3


class Source:
    """Draws programs: `rng` decides, `depth` bounds how they nest."""

    def __init__(self, rng, variables=3):
        self.rng, self.variables = rng, variables

    def _pick(self, values):
        return int(self.rng.integers(values))

    def block(self, depth, values, effects=True, floating=False):
        """Statements over `values` tensors in scope, and which of all that are in scope then are returned."""
        statements = []
        for _ in range(self.rng.integers(2, 6)):
            kinds = ["unary", "binary", "read", "gather"]
            kinds += ["assign", "assign", "print"] if effects else []
            kinds += ["call", "call", "cond", "loop"] if depth else []
            kind = kinds[self.rng.integers(len(kinds))]
            if floating and kind in ("gather", "print"):
                kind = "unary"
            pick = functools.partial(self._pick, values)
            variable = int(self.rng.integers(self.variables))
            match kind:
                case "unary":
                    statements.append((kind, str(self.rng.choice(["tanh", "square", "negative"])), pick()))
                case "binary":
                    statements.append((kind, str(self.rng.choice(["add", "mul", "sub"])), pick(), pick()))
                case "read":
                    statements.append((kind, variable))
                case "gather":  # fails for some data, which often nobody looks at
                    statements.append((kind, pick(), pick()))
                case "assign":
                    statements.append((kind, variable, pick()))
                    continue
                case "print":
                    statements.append((kind, pick()))
                    continue
                case "call":
                    arguments = [pick() for _ in range(self.rng.integers(1, 4))]
                    body = self.block(depth - 1, len(arguments), effects, floating)
                    statements.append((kind, arguments, body))
                    values += len(body[1]) - 1
                case "cond":
                    arguments = [pick() for _ in range(self.rng.integers(1, 3))]
                    effect = bool(effects and self.rng.integers(2))
                    ways = [self.block(depth - 1, len(arguments), effect, floating) for _ in range(2)]
                    count = min(len(way[1]) for way in ways)
                    ways = [(way[0], way[1][:count]) for way in ways]
                    statements.append((kind, pick(), arguments, *ways))
                    values += count - 1
                case "loop":
                    arguments = [pick() for _ in range(self.rng.integers(1, 3))]
                    inner = len(arguments)
                    body = self.block(depth - 1, inner, bool(effects and self.rng.integers(2)), True)
                    results = [body[1][k % len(body[1])] for k in range(inner)]
                    statements.append((kind, int(self.rng.integers(0, 4)), arguments, (body[0], results)))
                    values += inner - 1
            values += 1
        outputs = [int(k) for k in self.rng.choice(values, size=min(values, int(self.rng.integers(1, 4))), replace=False)]
        return statements, outputs


def function_of(program, variables, decorate):
    """The Python function of a block, in which inner functions are decorated."""
    statements, outputs = program

    def body(*arguments):
        values = list(arguments)
        for statement in statements:
            run(statement, values, variables, decorate)
        return tuple(values[k] for k in outputs)

    return body


def run(statement, values, variables, decorate):
    """Appends what one statement gives."""
    match statement:
        case ("unary", name, a):
            x = values[a]
            scalar = getattr(te, name)
            values.append(te.compute(x.shape, lambda i: scalar(x[i])))
        case ("binary", name, a, b):
            x, y = values[a], values[b]
            operation = {"add": lambda p, q: p + q, "mul": lambda p, q: p * q * 0.5, "sub": lambda p, q: p - q}[name]
            values.append(te.compute(x.shape, lambda i: operation(x[i], y[i])))
        case ("read", variable):
            values.append(variables[variable].read())
        case ("gather", a, b):
            x, y = values[a], values[b]
            values.append(te.compute(x.shape, lambda i: x[te.cast(te.floor(y[i] * 2.0), "int64") + 1]))
        case ("count", factor):  # reads nothing
            values.append(te.compute(values[0].shape, lambda i: i * 0.25 + factor))
        case ("assign", variable, a):
            variables[variable].assign(values[a])
        case ("print", a):
            te.print("{}", values[a])
        case ("call", arguments, body):
            values.extend(decorate(function_of(body, variables, decorate))(*(values[k] for k in arguments)))
        case ("cond", flag, arguments, then, otherwise):
            x = values[flag]
            decision = te.compute((), lambda: te.sum(lambda i: x[i], x.shape[0]) > 0)
            ways = [function_of(way, variables, decorate) for way in (then, otherwise)]
            values.extend(te.cond(decision, *ways, *(values[k] for k in arguments)))
        case ("loop", length, arguments, body):
            inner = function_of(body, variables, decorate)
            state = (np.int64(0), *(values[k] for k in arguments))
            values.extend(te.while_loop(lambda n, *_: n < length, lambda n, *rest: (n + 1, *inner(*rest)), state)[1:])


def drawn(seed, depth=2, effects=True, floating=False):
    """A program, its variables' first values, and arguments."""
    rng = np.random.default_rng(seed)
    program = Source(rng).block(depth, 2, effects=effects, floating=floating)
    starts = [rng.normal(size=SIZE) for _ in range(3)]
    return program, starts, [rng.normal(size=SIZE) for _ in range(2)]


def without_variables(block):
    """The block with counts where variables are read, and without assignments: its arguments may have any length."""
    statements, outputs = block
    found = []
    for statement in statements:
        match statement:
            case ("read", variable):
                found.append(("count", variable))
            case ("assign", _, _):
                continue
            case ("call" | "loop", first, *rest):
                found.append((statement[0], first, *(without_variables(r) if isinstance(r, tuple) else r for r in rest)))
            case ("cond", flag, arguments, then, otherwise):
                found.append(("cond", flag, arguments, without_variables(then), without_variables(otherwise)))
            case _:
                found.append(statement)
    return found, outputs
