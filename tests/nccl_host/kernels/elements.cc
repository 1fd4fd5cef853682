#include "tests/nccl_host/kernels/elements.h"

namespace nccl_host {
namespace {

bool IsInteger(ncclDataType_t type) { return type <= ncclUint64; }

ncclDataType_t WithSign(ncclDataType_t type, bool is_signed) {
  switch (type) {
    case ncclInt8:
    case ncclUint8:
      return is_signed ? ncclInt8 : ncclUint8;
    case ncclInt32:
    case ncclUint32:
      return is_signed ? ncclInt32 : ncclUint32;
    default:
      return is_signed ? ncclInt64 : ncclUint64;
  }
}

}  // namespace

Elements::Elements(const Function& function, uint64_t operand)
    : type_(function.type), bytes_(simnccl::ElementBytes(function.type)) {
  switch (function.op) {
    case DeviceOp::kProd:
      op_.kind = ncclProd;
      break;
    case DeviceOp::kMinMax:
      if (IsInteger(type_)) {
        // The mask is the sign bit for signed types, exclusive-or all bits for a maximum.
        const uint64_t all = ~uint64_t{0} >> (64 - 8 * bytes_);
        const bool is_maximum = (operand & 1) != 0;
        const uint64_t sign = is_maximum ? (operand ^ all) & all : operand & all;
        type_ = WithSign(type_, sign != 0);
        op_.kind = is_maximum ? ncclMax : ncclMin;
      } else {
        op_.kind = (operand & 1) != 0 ? ncclMax : ncclMin;
      }
      break;
    case DeviceOp::kPreMulSum:
      op_.scaled = true;
      op_.scalar = operand;
      break;
    case DeviceOp::kSumPostDiv:
      type_ = WithSign(type_, (operand & 1) != 0);
      op_.divide_by = static_cast<int>(operand >> 1);
      break;
    case DeviceOp::kSum:
    case DeviceOp::kNone:
      break;
  }
}

void Elements::Pre(char* elements, size_t count) const {
  simnccl::Scale(type_, op_, elements, elements, count);
}

void Elements::Combine(char* target, const char* source, size_t count) const {
  simnccl::Combine(type_, op_.kind, target, target, source, count);
}

void Elements::Post(char* elements, size_t count) const {
  simnccl::Divide(type_, op_, elements, count);
}

}  // namespace nccl_host
