// The arithmetic of the collectives: every data type with every operator, on the CPU. Pure; any
// thread. Narrow floats are computed in float and rounded to nearest even after each operator, as
// the device does; float8 saturates to its largest finite value.
#pragma once

#include <cstddef>
#include <cstdint>

#include "reconfig/abi/nccl_types.h"

namespace simnccl {

// Bytes of one element; 0 for a value that is not a data type.
size_t ElementBytes(ncclDataType_t type);

// What an operator does: combine with `kind` (sum, prod, max, min) after scaling each input by the
// scalar, and divide the result.
struct Operator {
  ncclRedOp_t kind = ncclSum;
  bool scaled = false;
  uint64_t scalar = 0;                  // The bits of one element.
  const void* device_scalar = nullptr;  // Read while the operation runs, when not null.
  int divide_by = 0;
};

// `op` with its device scalar read.
Operator Resolve(const Operator& op, ncclDataType_t type);
// The built-in operator; averages of floats scale the inputs, of integers divide the result.
Operator BuiltIn(ncclRedOp_t op, ncclDataType_t type, int nranks);

// out = a `kind` b, elementwise; `out` may be `a` or `b`.
void Combine(ncclDataType_t type, ncclRedOp_t kind, void* out, const void* a, const void* b,
             size_t count);
// out = in * scalar (a plain copy when the operator does not scale); `out` may be `in`.
void Scale(ncclDataType_t type, const Operator& op, void* out, const void* in, size_t count);
// data /= divide_by where the operator divides.
void Divide(ncclDataType_t type, const Operator& op, void* data, size_t count);

}  // namespace simnccl
