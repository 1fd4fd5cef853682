#include "bench/trainer/optimizer.h"

#include <algorithm>
#include <cmath>

namespace rewire::trainer {
namespace {

constexpr float kBeta1 = 0.9f;
constexpr float kBeta2 = 0.99f;

// A 32-bit finalizer: cheap, and vectorised by the compiler.
inline uint32_t Scramble(uint32_t x) {
  x ^= x >> 16;
  x *= 0x7feb352dU;
  x ^= x >> 15;
  return x;
}

}  // namespace

double Schedule::RateAt(uint64_t step) const {
  const auto s = static_cast<double>(step);
  if (s < warmup) return rate * (s + 1) / warmup;
  const double span = std::max(1, decay - warmup);
  const double x = std::min(1.0, (s - warmup) / span);
  return rate * (0.1 + 0.9 * 0.5 * (1 + std::cos(M_PI * x)));
}

AdamStep AdamStep::At(const Schedule& schedule, uint64_t step, double clip, double norm,
                      double weight_decay) {
  const auto t = static_cast<double>(step + 1);
  AdamStep s;
  s.rate = static_cast<float>(schedule.RateAt(step));
  s.decay = static_cast<float>(weight_decay);
  s.scale = clip > 0 && norm > clip ? static_cast<float>(clip / norm) : 1.0f;
  s.correction1 = static_cast<float>(1 / (1 - std::pow(static_cast<double>(kBeta1), t)));
  s.correction2 = static_cast<float>(1 / (1 - std::pow(static_cast<double>(kBeta2), t)));
  return s;
}

void AdamUpdate(const AdamStep& s, std::span<const float> gradient, std::span<const uint8_t> decays,
                std::span<float> master, std::span<float> first, std::span<float> second) {
  for (size_t i = 0; i < master.size(); ++i) {
    const float g = gradient[i] * s.scale;
    first[i] = kBeta1 * first[i] + (1 - kBeta1) * g;
    second[i] = kBeta2 * second[i] + (1 - kBeta2) * g * g;
    const float step = first[i] * s.correction1 / (std::sqrt(second[i] * s.correction2) + 1e-8f);
    const float decay = decays[i] != 0 ? s.decay : 0.0f;
    master[i] -= s.rate * (step + decay * master[i]);
  }
}

void BallastUpdate(uint64_t step, uint64_t begin, std::span<float> values) {
  const uint32_t salt = Scramble(static_cast<uint32_t>(step) * 0x9e3779b9U + 1);
  const auto first = static_cast<uint32_t>(begin);
  float* v = values.data();
  const auto n = static_cast<uint32_t>(values.size());
  for (uint32_t i = 0; i < n; ++i) {
    const uint32_t bits = Scramble((first + i) ^ salt);
    v[i] = 0.984375f * v[i] + static_cast<float>(static_cast<int32_t>(bits) >> 8) * 0x1p-24f;
  }
}

float BallastInitial(uint64_t index) {
  return static_cast<float>(Scramble(static_cast<uint32_t>(index)) >> 8) * 0x1p-24f;
}

}  // namespace rewire::trainer
