"""Compiled loops of the CPU path: exp2 and the two sweeps over a row of logits.

Imports numba, so it is itself imported only where the CPU path runs. Knows arrays only.

The loops are written so that LLVM turns them into vector instructions: polynomials instead of
library calls, selects instead of branches, 32-bit integers, slices indexed from 0 to their length.
Sums run in float32 within a block and in float64 over the blocks. A sum may be reordered
(`_sum`), the arithmetic of an element may not (`_element`), and no flag lets the compiler assume
that there is no NaN or infinity: masked tokens are -inf.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba.extending import intrinsic

from divtok.divergences.arithmetic import NATS_PER_BIT

FloatArray32 = npt.NDArray[np.float32]

# So few that even added one after another, without vectors, they round by less than 1e-6 together.
# Equal terms, those of flat distributions, all round the same way.
BLOCK = 64
# exp2 works on [-126, 0]: below it lie the subnormal numbers, which are slow and carry no mass.
_LOWEST = np.float32(-126)
_NEAR = np.float32(0.25)
_BITS_PER_NAT = np.float32(1 / NATS_PER_BIT)
_ZERO, _HALF, _ONE, _INF = (np.float32(x) for x in (0, 0.5, 1, np.inf))

_element: Any = numba.njit(fastmath={"contract"}, forceinline=True, error_model="numpy")
_sum: Any = numba.njit(fastmath={"contract", "reassoc", "nsz"}, error_model="numpy")
_intrinsic: Any = intrinsic


def compiled(signature: str) -> Callable[[Callable[..., None]], Any]:
    """Machine code that releases the GIL, kept on disk where numba finds a folder it may write to.

    One signature, so that the layout of what is passed never has it compiled anew.
    """

    def compile_function(function: Callable[..., None]) -> Any:
        try:
            return numba.njit(signature, nogil=True, error_model="numpy", cache=True)(function)
        except RuntimeError:  # no such folder
            return numba.njit(signature, nogil=True, error_model="numpy")(function)

    return compile_function


def _fit(
    function: Callable[[npt.NDArray[np.float64]], npt.NDArray[np.float64]],
    low: float,
    high: float,
    degree: int,
) -> tuple[np.float32, ...]:
    """Coefficients of the polynomial through the Chebyshev points, highest power first."""
    chebyshev = np.polynomial.Chebyshev.interpolate(function, degree, domain=[low, high])
    power = chebyshev.convert(kind=np.polynomial.Polynomial)
    return tuple(np.float32(c) for c in power.coef[::-1])


def _exp2_slope(x: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """(2^x - 1) / x."""
    at_zero = x == 0
    return np.where(at_zero, NATS_PER_BIT, np.expm1(x * NATS_PER_BIT) / np.where(at_zero, 1, x))


def _near_term(x: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """The JSD term of a token per larger probability, over x squared: see `_jsd_term`."""
    d = np.tanh(x * NATS_PER_BIT / 2)
    phi = ((1 + d) * np.log1p(d) + (1 - d) * np.log1p(-d)) / 2
    return (1 + np.exp2(-x)) / 2 * phi / NATS_PER_BIT / x**2


def _entropy_part(u: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """-w log2(w) with w = (1+u)/2: see `_jsd_term`."""
    return -(1 + u) / 2 * np.log2((1 + u) / 2)


_EXP2 = _fit(_exp2_slope, -0.5, 0.5, 5)
_ENTROPY_PART = _fit(_entropy_part, 0.0, 1.0, 8)
_NEAR_TERM = _fit(_near_term, 0.0, float(_NEAR), 3)


@_intrinsic
def _scaled(typing: Any, value: Any, n: Any) -> Any:
    """float32 value * 2^n by adding int32 n to its exponent; both sides are normal numbers."""
    del typing, value, n

    def generate(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        # numba itself would do the integers in 64 bits.
        int32 = ir.IntType(32)
        bits = builder.add(builder.bitcast(args[0], int32), builder.shl(args[1], int32(23)))
        return builder.bitcast(bits, ir.FloatType())

    return numba.types.float32(numba.types.float32, numba.types.int32), generate


@_intrinsic
def _maximum(typing: Any, a: Any, b: Any) -> Any:
    """The larger of two float32, NaN if one is NaN; a comparison would keep the loop scalar."""
    del typing, a, b

    def generate(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        real = ir.FloatType()
        kind = ir.FunctionType(real, [real, real])
        return builder.call(builder.module.declare_intrinsic("llvm.maximum", [real], kind), args)

    return numba.types.float32(numba.types.float32, numba.types.float32), generate


@_intrinsic
def _use_wide_vectors(typing: Any) -> Any:
    """Has the loops of this function use 512-bit vectors where there are any.

    LLVM by itself takes 256 bits on most processors that have more, which costs a third here.
    """
    del typing

    def generate(context: Any, builder: Any, _signature: Any, _args: Any) -> Any:
        # llvmlite's own `add` only takes attributes without a value.
        set.add(builder.function.attributes, '"prefer-vector-width"="512"')
        return context.get_dummy_value()

    return numba.types.void(), generate


@_element
def exp2(x: Any) -> Any:
    """2^x for float32 x in [-126, 0]."""
    n = np.int32(x - _HALF)  # towards zero: the nearest integer of a number below zero
    f = x - np.float32(n)
    c = _EXP2
    slope = ((((c[0] * f + c[1]) * f + c[2]) * f + c[3]) * f + c[4]) * f + c[5]
    return _scaled(slope * f + _ONE, n)


@_element
def clamped(x: Any) -> Any:
    """x from -126 up; NaN and -inf become -126."""
    return x if x > _LOWEST else _LOWEST


@_element
def _jsd_term(x: Any, u: Any) -> Any:
    """JSD in bits of one token per larger probability; x = |log2(p/q)|, u = 2^-x.

    With w = (1+u)/2 it is -w log2(w) - u x / 2, which cancels for small x: there a polynomial
    times x squared, so that terms stay non-negative and nearly equal distributions keep digits.
    """
    c = _ENTROPY_PART
    high = (((c[0] * u + c[1]) * u + c[2]) * u + c[3]) * u + c[4]
    part = (((high * u + c[5]) * u + c[6]) * u + c[7]) * u + c[8]
    far = part - u * (_HALF * x)
    c = _NEAR_TERM
    near = (((c[0] * x + c[1]) * x + c[2]) * x + c[3]) * (x * x)
    return near if x < _NEAR else far


@_sum
def _top(logits: Any) -> Any:
    """[V] -> its maximum, NaN if there is a NaN, -inf if it is empty."""
    _use_wide_vectors()
    top = np.float32(-np.inf)
    for i in range(len(logits)):
        top = _maximum(top, logits[i])
    return top


@_sum
def _block_sum(logits: Any, top: Any) -> Any:
    _use_wide_vectors()
    total = _ZERO
    for i in range(len(logits)):
        total += exp2(clamped((logits[i] - top) * _BITS_PER_NAT))
    return total


@_element
def _log2_sum(logits: Any, top: Any) -> Any:
    """log2 of the sum of exp(logits - top) in float64; `top` is finite."""
    total = 0.0
    for start in range(0, len(logits), BLOCK):
        total += _block_sum(logits[start : start + BLOCK], top)
    return math.log2(total)


@_element
def _log_sum_exp(logits: Any) -> Any:
    """[V] -> log-sum-exp in float64: -inf if every token is masked or none is there."""
    top = _top(logits)
    if not math.isfinite(top):
        return np.float64(top)
    return np.float64(top) + NATS_PER_BIT * _log2_sum(logits, top)


@_sum
def _block_divergences(
    logits_p: Any, logits_q: Any, top_p: Any, top_q: Any, sum_p: Any, sum_q: Any, sums: Any
) -> Any:
    """JSD, both KLs, both entropies and twice the total variation of a block of tokens.

    In bits, but for the last. See `_row_divergences`.
    """
    _use_wide_vectors()
    jsd, kl_pq, kl_qp, entropy_p, entropy_q, apart = _ZERO, _ZERO, _ZERO, _ZERO, _ZERO, _ZERO
    share_p, share_q = _share(sum_p), _share(sum_q)
    for i in range(len(logits_p)):
        z_p, z_q = logits_p[i] - top_p, logits_q[i] - top_q
        gap = z_p - z_q
        t, log_p, log_q = _logs(z_p, z_q, gap, sum_p, sum_q, sums)
        p_leads = t > _ZERO
        log_large = log_p if p_leads else log_q
        # From the shifted logit and not from log_large, which is rounded more the flatter the row.
        z_large = (z_p if p_leads else z_q) * _BITS_PER_NAT
        x = abs(t)
        x = x if x < log_large - _LOWEST else log_large - _LOWEST  # the smaller one too is normal
        share = share_p if p_leads else share_q
        large, u = exp2(clamped(z_large)) * share, exp2(-x)
        small = large * u
        p, q = large if p_leads else small, small if p_leads else large
        jsd += large * _jsd_term(x, u)
        kl_pq += p * _counted(t, gap, log_p)
        kl_qp += q * _counted(-t, -gap, log_q)
        entropy_p -= p * log_p
        entropy_q -= q * log_q
        apart += large - small
    return jsd, kl_pq, kl_qp, entropy_p, entropy_q, apart


@_element
def _logs(z_p: Any, z_q: Any, gap: Any, sum_p: Any, sum_q: Any, sums: Any) -> Any:
    """log2(p/q) (0 where both are masked), and log2 p and log2 q from -126 up.

    Sums come as two float32 numbers each, which together have more digits than one.
    """
    t = (gap * _BITS_PER_NAT - sums[0]) - sums[1]
    t = t if t == t else _ZERO
    log_p = (z_p * _BITS_PER_NAT - sum_p[0]) - sum_p[1]
    log_q = (z_q * _BITS_PER_NAT - sum_q[0]) - sum_q[1]
    return t, clamped(log_p), clamped(log_q)


@_element
def _share(sums: Any) -> Any:
    """The probability of a token at the top of its row."""
    return np.float32(2.0 ** -(np.float64(sums[0]) + np.float64(sums[1])))


@_element
def _split(value: Any) -> Any:
    high = np.float32(value)
    return high, np.float32(value - np.float64(high))


@_element
def _counted(log_ratio: Any, gap: Any, log_own: Any) -> Any:
    """The log-ratio as it counts in a KL: of a token without mass only a masked opposite does."""
    rest = _INF if gap == _INF else _ZERO
    return log_ratio if log_own > _LOWEST else rest


@_element
def _row_divergences(
    logits_p: Any, logits_q: Any, top_p: Any, top_q: Any, sum_p: Any, sum_q: Any
) -> Any:
    """[V], [V], their maxima and log2 sums of exp(logits - top) -> the six numbers of a block.

    The difference of the sums is taken first, so that equal distributions give exactly 0.
    """
    jsd, kl_pq, kl_qp, entropy_p, entropy_q, apart = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    for start in range(0, len(logits_p), BLOCK):
        block = _block_divergences(
            logits_p[start : start + BLOCK],
            logits_q[start : start + BLOCK],
            top_p,
            top_q,
            _split(sum_p),
            _split(sum_q),
            _split(sum_p - sum_q),
        )
        jsd += block[0]
        kl_pq += block[1]
        kl_qp += block[2]
        entropy_p += block[3]
        entropy_q += block[4]
        apart += block[5]
    return jsd, kl_pq, kl_qp, entropy_p, entropy_q, apart


@compiled("void(f4[:, ::1], f4[:, ::1], i8[:], i8, f4[:, :], i8, i8)")
def rows(
    logits_p: Any, logits_q: Any, tokens: Any, width: int, out: Any, first: int, step: int
) -> None:
    """Every `step`-th row from `first` on: logits [N, Vp], [N, Vq], tokens [N] -> out [COLUMNS, N].

    Where a row is not a distribution its lse or tail is not finite and the rest is NaN.
    """
    nan = math.nan
    for r in range(first, len(tokens), step):
        p, q, token = logits_p[r, :width], logits_q[r, :width], tokens[r]
        top_p, top_q = _top(p), _top(q)
        lse_p, lse_q = np.float64(top_p), np.float64(top_q)
        tail_p, tail_q = _log_sum_exp(logits_p[r, width:]), _log_sum_exp(logits_q[r, width:])
        values = (lse_p, lse_q, tail_p, tail_q, nan, nan, nan, nan, nan, nan, nan, nan)
        if math.isfinite(top_p) and math.isfinite(top_q):
            sum_p, sum_q = _log2_sum(p, top_p), _log2_sum(q, top_q)
            bits = _row_divergences(p, q, top_p, top_q, sum_p, sum_q)
            values = (
                lse_p + sum_p * NATS_PER_BIT,
                lse_q + sum_q * NATS_PER_BIT,
                tail_p,
                tail_q,
                np.float64(p[token]) - lse_p - sum_p * NATS_PER_BIT,
                np.float64(q[token]) - lse_q - sum_q * NATS_PER_BIT,
                bits[3] * NATS_PER_BIT,
                bits[4] * NATS_PER_BIT,
                bits[1] * NATS_PER_BIT,
                bits[2] * NATS_PER_BIT,
                bits[0],
                bits[5] / 2,
            )
        for column in range(len(values)):
            out[column, r] = values[column]
