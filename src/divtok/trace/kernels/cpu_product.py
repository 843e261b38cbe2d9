"""Compiled matrix product of the CPU path: few hidden states times a wide head.

A library product copies the weights into an order of its own, which costs as much as the product
itself when only a few dozen hidden states share the copy. Here the hidden states are packed, which
is cheap, and each weight is read once where it lies. Half-precision weights are widened a tile at
a time, in cache. Imports numba, so it is itself imported only where the CPU path runs.
"""

from __future__ import annotations

from typing import Any

import numba
from llvmlite import ir
from numba.core import cgutils
from numba.core.registry import cpu_target
from numba.extending import intrinsic

from divtok.trace.kernels.cpu_math import compiled

# A tile is TILE tokens by GROUP positions, in vectors of LANES. Its sums fill three quarters of the
# vector registers: 24 of the 32 of AVX-512, 12 of the 16 of AVX2, 24 of the 32 half as wide of ARM.
_processor: Any = cpu_target.target_context
_AVX512 = "+avx512f" in _processor.codegen().magic_tuple()[2]  # its features, as numba sees them
LANES, VECTORS, TILE = (16, 2, 12) if _AVX512 else (8, 2, 6)
GROUP = LANES * VECTORS
# Tiles are gathered to whole cache lines of logits before they are written: the rows of the logits
# lie far apart, often at a power of two, and evict one another.
STRIP = 48
# Sums over at most so many products are added up: shorter sums round less.
DEPTH = 384

_intrinsic: Any = intrinsic
_inlined: Any = numba.njit(forceinline=True, error_model="numpy")


@_intrinsic
def _add_product(typing: Any, weight: Any, packed: Any, tile: Any, low: Any, high: Any) -> Any:
    """tile [TILE, GROUP] += weight[:, low:high] @ packed[low:high], contiguous float32.

    weight is [TILE, D], packed [D, GROUP]. Written as vector instructions, since no loop of
    scalars keeps its sums in registers.
    """
    del typing
    return numba.types.void(weight, packed, tile, low, high), _generate_product


def _generate_product(context: Any, builder: Any, signature: Any, args: Any) -> Any:
    weight, packed, tile = (
        context.make_array(kind)(context, builder, arg)
        for kind, arg in zip(signature.args[:3], args[:3], strict=True)
    )
    vector = ir.VectorType(ir.FloatType(), LANES)
    index = context.get_value_type(numba.types.intp)
    zero = ir.Constant(vector, None)
    depth = cgutils.unpack_tuple(builder, weight.shape)[1]
    rows = [builder.gep(weight.data, [builder.mul(depth, index(i))]) for i in range(TILE)]
    columns = builder.bitcast(packed.data, vector.as_pointer())
    # The optimiser turns these stack slots into registers.
    sums = [[cgutils.alloca_once(builder, vector) for _ in range(VECTORS)] for _ in range(TILE)]
    for slot in (slot for row in sums for slot in row):
        builder.store(zero, slot)
    with cgutils.for_range_slice(builder, args[3], args[4], index(1)) as (position, _):
        _prefetch(builder, rows[0], builder.mul(builder.add(depth, position), index(TILE)))
        start = builder.mul(position, index(VECTORS))
        hidden = [_load(builder, columns, builder.add(start, index(j))) for j in range(VECTORS)]
        for row, slots in zip(rows, sums, strict=True):
            factor = _spread(builder, builder.load(builder.gep(row, [position])), vector)
            for slot, column in zip(slots, hidden, strict=True):
                product = builder.fmul(factor, column, flags=("contract",))
                total = builder.fadd(builder.load(slot), product, flags=("contract",))
                builder.store(total, slot)
    target = builder.bitcast(tile.data, vector.as_pointer())
    for i, slot in enumerate(slot for row in sums for slot in row):
        total = builder.fadd(_load(builder, target, index(i)), builder.load(slot))
        builder.store(total, builder.gep(target, [index(i)]), align=4)
    return context.get_dummy_value()


def _load(builder: Any, pointer: Any, position: Any) -> Any:
    # Arrays are aligned to their elements only.
    return builder.load(builder.gep(pointer, [position]), align=4)


def _prefetch(builder: Any, pointer: Any, position: Any) -> None:
    """Asks for the next tile's weights while this one is worked on.

    A row is often shorter than a page, where the processor's own prefetching starts anew.
    """
    byte, int32 = ir.IntType(8).as_pointer(), ir.IntType(32)
    kind = ir.FunctionType(ir.VoidType(), [byte, int32, int32, int32])
    function = builder.module.declare_intrinsic("llvm.prefetch", [byte], kind)
    address = builder.bitcast(builder.gep(pointer, [position]), byte)
    read, keep, data = int32(0), int32(2), int32(1)
    builder.call(function, [address, read, keep, data])


def _spread(builder: Any, value: Any, vector: Any) -> Any:
    """The value in every lane."""
    int32 = ir.IntType(32)
    undefined = ir.Constant(vector, ir.Undefined)
    first = builder.insert_element(undefined, value, int32(0))
    lanes = ir.Constant(ir.VectorType(int32, LANES), None)
    return builder.shuffle_vector(first, undefined, lanes)


@_intrinsic
def _from_bfloat16(typing: Any, bits: Any) -> Any:
    """The float32 of which uint16 `bits` are the upper half."""
    del typing, bits

    def generate(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        int32 = ir.IntType(32)
        return builder.bitcast(builder.shl(builder.zext(args[0], int32), int32(16)), ir.FloatType())

    return numba.types.float32(numba.types.uint16), generate


@_intrinsic
def _from_float16(typing: Any, bits: Any) -> Any:
    """The float16 with uint16 `bits`, as float32.

    Put together from integers: a processor without an instruction for it would call a function that
    is not there.
    """
    del typing, bits

    def generate(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        int32, real = ir.IntType(32), ir.FloatType()
        whole = builder.zext(args[0], int32)
        sign = builder.shl(builder.and_(whole, int32(0x8000)), int32(16))
        size = builder.shl(builder.and_(whole, int32(0x7FFF)), int32(13))
        # The exponent counts from another zero, and its highest value means infinity or NaN.
        usual = builder.add(size, int32(112 << 23))
        endless = builder.or_(size, int32(255 << 23))
        # The smallest numbers lack the leading one: it is added, and taken off as a number.
        small = builder.bitcast(builder.add(size, int32(113 << 23)), real)
        small = builder.bitcast(builder.fsub(small, real(2.0**-14)), int32)
        value = builder.select(builder.icmp_unsigned("<", size, int32(1 << 23)), small, usual)
        value = builder.select(builder.icmp_unsigned(">=", size, int32(31 << 23)), endless, value)
        return builder.bitcast(builder.or_(value, sign), real)

    return numba.types.float32(numba.types.uint16), generate


@_inlined
def _widen(weight: Any, bfloat: Any, wide: Any) -> None:
    source, target = weight.reshape(-1), wide.reshape(-1)
    if bfloat:
        for i in range(len(source)):
            target[i] = _from_bfloat16(source[i])
    else:
        for i in range(len(source)):
            target[i] = _from_float16(source[i])


@_inlined
def _multiply_strip(weight: Any, packed: Any, strip: Any, logits: Any, first: int) -> None:
    """weight [STRIP, D] -> the STRIP columns of logits [N, V] from `first` on."""
    depth = packed.shape[1]
    for group in range(len(packed)):
        strip[:] = 0
        for row in range(0, STRIP, TILE):
            rows = weight[row : row + TILE]
            for low in range(0, depth, DEPTH):
                high = min(low + DEPTH, depth)
                _add_product(rows, packed[group], strip[row : row + TILE], low, high)
        positions = logits[group * GROUP : (group + 1) * GROUP]
        for r in range(len(positions)):
            for i in range(STRIP):
                positions[r, first + i] = strip[i, r]


@compiled("void(f4[:, ::1], f4[:, :, ::1], f4[:, ::1], f4[:, ::1], i8, i8)")
def multiply(weight: Any, packed: Any, strip: Any, logits: Any, first: int, last: int) -> None:
    """Columns [first, last) of logits [N, V] = hidden @ weight.T, and some beyond.

    weight [V, D], V at least STRIP; packed [groups, D, GROUP] the transposed hidden states of
    GROUP positions at a time; strip [STRIP, GROUP] is scratch.
    """
    for start in range(first, last, STRIP):
        row = min(start, len(weight) - STRIP)
        _multiply_strip(weight[row : row + STRIP], packed, strip, logits, row)


@compiled("void(u2[:, ::1], f4[:, :, ::1], f4[:, ::1], f4[:, ::1], i8, i8, b1, f4[:, ::1])")
def multiply_half(
    weight: Any,
    packed: Any,
    strip: Any,
    logits: Any,
    first: int,
    last: int,
    bfloat: bool,
    wide: Any,
) -> None:
    """The same for the bits of half-precision weights, [V, D]; wide [STRIP, D] is scratch."""
    for start in range(first, last, STRIP):
        row = min(start, len(weight) - STRIP)
        _widen(weight[row : row + STRIP], bfloat, wide)
        _multiply_strip(wide, packed, strip, logits, row)
