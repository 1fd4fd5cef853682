// Sums that do not depend on their order: values are rounded to 64-bit fixed point and then added
// as integers, by one process or by ncclInt64 sums over many. Pure; thread-safe.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace rewire::trainer {

inline constexpr double kFixedOne = 0x1p40;

// Rounds to the nearest multiple of 2^-40. Saturates beyond +-2^10, so that the sum of 4096 samples
// cannot overflow. A value that is not finite becomes 0; the caller must count it.
inline int64_t ToFixed(double value) {
  if (!std::isfinite(value)) return 0;
  return std::llrint(std::clamp(value, -0x1p10, 0x1p10) * kFixedOne);
}

inline double FromFixed(int64_t sum) { return static_cast<double>(sum) / kFixedOne; }

// A sum of squares with room for large and small terms: whole parts and fractions separately.
struct FixedSquares {
  int64_t whole = 0;
  int64_t fraction = 0;  // in units of 2^-38

  void Add(double value) {
    // NaN counts as the largest value, which clips it away.
    const double square = value * value < 0x1p36 ? value * value : 0x1p36;
    const double floor = std::floor(square);
    whole += static_cast<int64_t>(floor);
    fraction += std::llrint((square - floor) * 0x1p38);
  }
  [[nodiscard]] double Root() const {
    return std::sqrt(static_cast<double>(whole) + static_cast<double>(fraction) * 0x1p-38);
  }
};

}  // namespace rewire::trainer
