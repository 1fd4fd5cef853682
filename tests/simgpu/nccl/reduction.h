// The arithmetic of the collectives: every data type with every operator, on the CPU. Pure;
// thread-safe. Narrow floats are computed in float and rounded to nearest even after each operator,
// as on the device; float8 saturates to its largest finite value.
#pragma once

#include <cstddef>
#include <cstdint>

#include "reconfig/abi/nccl_types.h"

namespace simnccl {

// Returns the bytes of one element; 0 for a value that is not a data type.
size_t ElementBytes(ncclDataType_t type);

// An operator: combines the inputs with `kind` (sum, prod, max, min). If `scaled`, each input is
// first scaled by the scalar. If divide_by is above 1, the result is divided.
struct Operator {
  ncclRedOp_t kind = ncclSum;
  bool scaled = false;
  uint64_t scalar = 0;                  // the bits of one element
  const void* device_scalar = nullptr;  // if not null, read while the operation runs
  int divide_by = 0;
};

// Returns `op` with its device scalar read.
Operator Resolve(const Operator& op, ncclDataType_t type);
// Returns the built-in operator. Averages of floats scale the inputs; averages of integers divide
// the result.
Operator BuiltIn(ncclRedOp_t op, ncclDataType_t type, int nranks);

// out = a `kind` b, elementwise; `out` may be `a` or `b`.
void Combine(ncclDataType_t type, ncclRedOp_t kind, void* out, const void* a, const void* b,
             size_t count);
// out = in * scalar (a plain copy when the operator does not scale); `out` may be `in`.
void Scale(ncclDataType_t type, const Operator& op, void* out, const void* in, size_t count);
// data /= divide_by, if the operator divides.
void Divide(ncclDataType_t type, const Operator& op, void* data, size_t count);

}  // namespace simnccl
