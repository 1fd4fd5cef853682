// AdamW with warm-up and cosine decay. Elementwise, so that a shard's result does not depend on the
// shard's start. Pure; thread-safe.
#pragma once

#include <cstdint>
#include <span>

namespace rewire::trainer {

struct Schedule {
  double rate = 3e-3;
  int warmup = 20;   // steps of linear rise
  int decay = 2000;  // step at which the cosine has fallen to a tenth
  [[nodiscard]] double RateAt(uint64_t step) const;
};

struct AdamStep {
  float rate = 0;
  float decay = 0;        // weight decay, for elements that decay
  float scale = 0;        // multiplies the gradient: clipping
  float correction1 = 0;  // 1 / (1 - beta1^t)
  float correction2 = 0;
  static AdamStep At(const Schedule& schedule, uint64_t step, double clip, double norm,
                     double weight_decay);
};

// gradient is not changed. decays: 1 if weight decay applies.
void AdamUpdate(const AdamStep& s, std::span<const float> gradient, std::span<const uint8_t> decays,
                std::span<float> master, std::span<float> first, std::span<float> second);

// Updates the ballast as a function of (step, index, old value). `begin` is the index of the first
// element.
void BallastUpdate(uint64_t step, uint64_t begin, std::span<float> values);
float BallastInitial(uint64_t index);

}  // namespace rewire::trainer
