"""Values of symbolic sizes: one expression at given sizes, or many expressions compiled at once.

Expressions come from torch's symbolic sizes: sympy's, with torch's own quotients, remainders,
minima and maxima.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any, TypeAlias

import sympy  # type: ignore[import-untyped]
from torch.utils._sympy import functions as torch_functions
from torch.utils._sympy.printers import PythonPrinter

from aliasproof.ir.errors import Rejected

Expr: TypeAlias = Any  # an expression of sympy, which ships no types
SizeValues: TypeAlias = Mapping[Expr, int]  # one value for each symbol


# What a sympy function computes, in plain Python. All sizes are integers, so a quotient is `//`.
_FUNCTIONS: dict[type, Callable[..., Any]] = {
    sympy.Add: lambda *summands: sum(summands),
    sympy.Mul: lambda *factors: math.prod(factors),
    sympy.Pow: operator.pow,
    sympy.And: lambda *parts: all(parts),
    sympy.Or: lambda *parts: any(parts),
    sympy.Not: operator.not_,
    sympy.Eq: operator.eq,
    sympy.Ne: operator.ne,
    sympy.Lt: operator.lt,
    sympy.Le: operator.le,
    sympy.Gt: operator.gt,
    sympy.Ge: operator.ge,
    sympy.Max: max,
    sympy.Min: min,
    torch_functions.Max: max,
    torch_functions.Min: min,
    torch_functions.FloorDiv: operator.floordiv,
    torch_functions.CleanDiv: operator.floordiv,
    torch_functions.PythonMod: operator.mod,
    torch_functions.Mod: operator.mod,
    torch_functions.ModularIndexing: lambda value, divisor, modulus: value // divisor % modulus,
    torch_functions.PowByNatural: operator.pow,
}


def evaluate(expression: Expr, sizes: SizeValues) -> Any:
    """The value of an expression or condition at given sizes.

    Raises `Rejected` if it contains a symbol without a value: a data-dependent size.
    """
    if isinstance(expression, sympy.Symbol):
        if expression not in sizes:
            raise Rejected(f"the size {expression} is data-dependent")
        return sizes[expression]
    if isinstance(expression, sympy.Integer):
        return int(expression)
    if isinstance(expression, sympy.Rational):
        # A float would round: sizes can exceed 2**53.
        return Fraction(int(expression.p), int(expression.q))
    # By exact type, since a subclass can have another meaning.
    function = _FUNCTIONS.get(type(expression))
    if function is not None:
        return function(*(evaluate(operand, sizes) for operand in expression.args))
    # Any other function is left to sympy, which is slower.
    value = expression.xreplace({symbol: sympy.Integer(size) for symbol, size in sizes.items()})
    if value in (sympy.true, sympy.false):
        return bool(value)
    if isinstance(value, sympy.Float):  # with the 53 bits that a Python float has
        return float(value)
    if not value.is_Integer:
        raise Rejected(f"{expression} has no value: {type(expression).__name__} is not supported")
    return int(value)


def evaluator(symbols: Sequence[Expr], expressions: Sequence[Expr]) -> Callable[..., Sequence[Any]]:
    """A function from the symbols' values to the values of all expressions.

    It is a hundred times faster than `evaluate`. Raises `Rejected` if the expressions contain other
    symbols.
    """
    for expression in expressions:
        others = expression.free_symbols - set(symbols)
        if others:
            raise Rejected(f"data-dependent sizes: {', '.join(sorted(map(str, others)))}")
    parts = (part for expression in expressions for part in sympy.preorder_traversal(expression))
    if not all(map(_same_in_python, parts)):
        return lambda *sizes: [
            evaluate(expression, dict(zip(symbols, sizes, strict=True)))
            for expression in expressions
        ]
    # One function for all expressions, so that common parts are computed once (`cse`).
    function: Callable[..., Sequence[Any]] = sympy.lambdify(
        symbols, list(expressions), "math", printer=PythonPrinter(), cse=True
    )
    return function


def _same_in_python(part: Expr) -> bool:
    """Whether Python computes this node of an expression exactly, its operands aside."""
    if isinstance(part, sympy.Pow):
        # Python turns a negative or fractional power of an integer into a float.
        return bool(part.args[1].is_Integer and part.args[1] >= 0)
    return (
        isinstance(part, (sympy.Symbol, sympy.Integer))
        or type(part) in _FUNCTIONS
        or part in (sympy.true, sympy.false)
    )
