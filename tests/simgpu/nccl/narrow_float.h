// The floating-point formats that the CPU lacks: half, bfloat16 and the two float8 formats, to and
// from float. Pure; thread-safe.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace simnccl {

// IEEE-like formats with `E` exponent and `M` mantissa bits. `kFinite`: no infinity, a single NaN
// pattern, and values beyond the range saturate (float8 e4m3).
template <int E, int M, bool kFinite, bool kSaturate>
struct NarrowFormat {
  static constexpr int kBias = (1 << (E - 1)) - 1;
  static constexpr uint32_t kExponentMask = (1u << E) - 1;
  static constexpr uint32_t kMantissaMask = (1u << M) - 1;
  static constexpr uint32_t kSign = 1u << (E + M);
  static constexpr uint32_t kInfinity = kExponentMask << M;
  static constexpr uint32_t kMaxFinite =
      kFinite ? (kInfinity | (kMantissaMask - 1)) : kInfinity - 1;
  static constexpr uint32_t kNan = kInfinity | kMantissaMask;

  static float ToFloat(uint32_t bits) {
    const uint32_t sign = (bits & kSign) != 0 ? 0x80000000u : 0;
    const uint32_t exponent = (bits >> M) & kExponentMask;
    const uint32_t mantissa = bits & kMantissaMask;
    if (exponent == kExponentMask && (!kFinite || mantissa == kMantissaMask)) {
      const uint32_t payload = kFinite || mantissa != 0 ? 0x7fc00000u : 0x7f800000u;
      return std::bit_cast<float>(sign | payload);
    }
    if (exponent == 0) {
      const float value = std::ldexp(static_cast<float>(mantissa), 1 - kBias - M);
      return sign != 0 ? -value : value;
    }
    return std::bit_cast<float>(sign | ((exponent + 127 - kBias) << 23) | (mantissa << (23 - M)));
  }

  static uint32_t FromFloat(float value) {
    const uint32_t bits = std::bit_cast<uint32_t>(value);
    const uint32_t sign = (bits >> 31) != 0 ? kSign : 0;
    const uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return sign | kNan;
    const int exponent = static_cast<int>(magnitude >> 23) - 127 + kBias;
    uint32_t result;
    if (exponent >= 1) {
      // Rounds to nearest even on the combined exponent and mantissa.
      if (exponent > static_cast<int>(kExponentMask)) {
        result = kInfinity + kMantissaMask;
      } else {
        const uint32_t wide = (static_cast<uint32_t>(exponent) << 23) | (magnitude & 0x7fffffu);
        const uint32_t odd = (wide >> (23 - M)) & 1u;
        result = (wide + ((1u << (22 - M)) - 1) + odd) >> (23 - M);
      }
    } else {
      // Subnormal: the CPU's float addition rounds correctly, because 2^(1-bias-M) is the last
      // place.
      result = static_cast<uint32_t>(
          std::nearbyint(std::ldexp(std::bit_cast<float>(magnitude), kBias - 1 + M)));
    }
    if (result > kMaxFinite) result = kSaturate ? kMaxFinite : kInfinity;
    return sign | result;
  }
};

using HalfFormat = NarrowFormat<5, 10, false, false>;
using Float8E4M3Format = NarrowFormat<4, 3, true, true>;
using Float8E5M2Format = NarrowFormat<5, 2, false, true>;

struct Bfloat16Format {
  static float ToFloat(uint32_t bits) { return std::bit_cast<float>(bits << 16); }
  static uint32_t FromFloat(float value) {
    const uint32_t bits = std::bit_cast<uint32_t>(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return (bits >> 16) | 0x40u;
    return (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  }
};

}  // namespace simnccl
