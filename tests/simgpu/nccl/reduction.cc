#include "tests/simgpu/nccl/reduction.h"

#include <cstring>
#include <type_traits>

#include "tests/simgpu/nccl/narrow_float.h"

namespace simnccl {
namespace {

// The storage type and the computation type of elements.
template <typename T>
struct Plain {
  using Stored = T;
  // Integers wrap: they are computed unsigned if the operator may overflow.
  using Value = T;
  static Value Load(Stored s) { return s; }
  static Stored Store(Value v) { return v; }
};

template <typename Format, typename S>
struct Narrow {
  using Stored = S;
  using Value = float;
  static Value Load(Stored s) { return Format::ToFloat(s); }
  static Stored Store(Value v) { return static_cast<Stored>(Format::FromFloat(v)); }
};

template <typename V>
V Add(V a, V b) {
  if constexpr (std::is_integral_v<V>) {
    using U = std::make_unsigned_t<V>;
    return static_cast<V>(static_cast<U>(static_cast<U>(a) + static_cast<U>(b)));
  } else {
    return a + b;
  }
}

template <typename V>
V Multiply(V a, V b) {
  if constexpr (std::is_integral_v<V>) {
    // The operands have 64 bits, so that narrow types are not promoted to a signed int that
    // overflows.
    return static_cast<V>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
  } else {
    return a * b;
  }
}

template <typename T, typename F>
void Map(void* out, const void* a, const void* b, size_t count, F f) {
  using S = typename T::Stored;
  auto* o = static_cast<S*>(out);
  const auto* x = static_cast<const S*>(a);
  const auto* y = static_cast<const S*>(b);
  for (size_t i = 0; i < count; ++i) o[i] = T::Store(f(T::Load(x[i]), T::Load(y[i])));
}

template <typename T>
void CombineAs(ncclRedOp_t kind, void* out, const void* a, const void* b, size_t count) {
  using V = typename T::Value;
  switch (kind) {
    case ncclProd:
      return Map<T>(out, a, b, count, [](V x, V y) { return Multiply(x, y); });
    case ncclMax:
      return Map<T>(out, a, b, count, [](V x, V y) { return x < y ? y : x; });
    case ncclMin:
      return Map<T>(out, a, b, count, [](V x, V y) { return y < x ? y : x; });
    default:
      return Map<T>(out, a, b, count, [](V x, V y) { return Add(x, y); });
  }
}

template <typename T>
void ScaleAs(uint64_t scalar, void* out, const void* in, size_t count) {
  using S = typename T::Stored;
  S bits;
  std::memcpy(&bits, &scalar, sizeof(bits));
  const auto factor = T::Load(bits);
  auto* o = static_cast<S*>(out);
  const auto* x = static_cast<const S*>(in);
  for (size_t i = 0; i < count; ++i) o[i] = T::Store(Multiply(T::Load(x[i]), factor));
}

template <typename T>
void DivideAs(int by, void* data, size_t count) {
  if constexpr (std::is_integral_v<typename T::Value>) {
    using S = typename T::Stored;
    auto* d = static_cast<S*>(data);
    for (size_t i = 0; i < count; ++i) {
      if constexpr (std::is_signed_v<S>) {
        d[i] = static_cast<S>(static_cast<int64_t>(d[i]) / by);
      } else {
        d[i] = static_cast<S>(static_cast<uint64_t>(d[i]) / static_cast<uint64_t>(by));
      }
    }
  }
}

template <typename T>
uint64_t ReciprocalAs(int n) {
  uint64_t bits = 0;
  if constexpr (!std::is_integral_v<typename T::Value>) {
    const auto stored = T::Store(static_cast<typename T::Value>(1) / n);
    std::memcpy(&bits, &stored, sizeof(stored));
  }
  return bits;
}

// Calls f with the description of the type.
template <typename F>
auto Dispatch(ncclDataType_t type, F f) {
  switch (type) {
    case ncclUint8:
      return f(Plain<uint8_t>{});
    case ncclInt32:
      return f(Plain<int32_t>{});
    case ncclUint32:
      return f(Plain<uint32_t>{});
    case ncclInt64:
      return f(Plain<int64_t>{});
    case ncclUint64:
      return f(Plain<uint64_t>{});
    case ncclFloat16:
      return f(Narrow<HalfFormat, uint16_t>{});
    case ncclFloat32:
      return f(Plain<float>{});
    case ncclFloat64:
      return f(Plain<double>{});
    case ncclBfloat16:
      return f(Narrow<Bfloat16Format, uint16_t>{});
    case ncclFloat8e4m3:
      return f(Narrow<Float8E4M3Format, uint8_t>{});
    case ncclFloat8e5m2:
      return f(Narrow<Float8E5M2Format, uint8_t>{});
    default:
      return f(Plain<int8_t>{});
  }
}

bool IsInteger(ncclDataType_t type) { return type <= ncclUint64; }

}  // namespace

size_t ElementBytes(ncclDataType_t type) {
  if (type < 0 || type >= ncclNumTypes) return 0;
  return Dispatch(type, [](auto t) { return sizeof(typename decltype(t)::Stored); });
}

Operator Resolve(const Operator& op, ncclDataType_t type) {
  Operator resolved = op;
  if (op.device_scalar != nullptr) {
    std::memcpy(&resolved.scalar, op.device_scalar, ElementBytes(type));
    resolved.device_scalar = nullptr;
  }
  return resolved;
}

Operator BuiltIn(ncclRedOp_t op, ncclDataType_t type, int nranks) {
  Operator result;
  if (op != ncclAvg) {
    result.kind = op;
  } else if (IsInteger(type)) {
    result.divide_by = nranks;
  } else {
    result.scaled = true;
    result.scalar = Dispatch(type, [&](auto t) { return ReciprocalAs<decltype(t)>(nranks); });
  }
  return result;
}

void Combine(ncclDataType_t type, ncclRedOp_t kind, void* out, const void* a, const void* b,
             size_t count) {
  Dispatch(type, [&](auto t) { CombineAs<decltype(t)>(kind, out, a, b, count); });
}

void Scale(ncclDataType_t type, const Operator& op, void* out, const void* in, size_t count) {
  if (!op.scaled) {
    if (out != in && count > 0) std::memmove(out, in, count * ElementBytes(type));
    return;
  }
  Dispatch(type, [&](auto t) { ScaleAs<decltype(t)>(op.scalar, out, in, count); });
}

void Divide(ncclDataType_t type, const Operator& op, void* data, size_t count) {
  if (op.divide_by <= 1) return;
  Dispatch(type, [&](auto t) { DivideAs<decltype(t)>(op.divide_by, data, count); });
}

}  // namespace simnccl
