#include "reconfig/moe/plan/batch.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "reconfig/base/hash.h"

namespace rewire::moe {

absl::Status Check(const Batch& batch) {
  const size_t experts = batch.tokens.size();
  if (batch.devices == 0) return absl::InvalidArgumentError("batch: devices=0: must be at least 1");
  if (batch.owner.size() != experts || batch.dynamic.size() != experts) {
    return absl::InvalidArgumentError(absl::StrCat("batch: owners=", batch.owner.size(),
                                                   " dynamic marks=", batch.dynamic.size(),
                                                   ": must each be ", experts, " (experts)"));
  }
  for (size_t e = 0; e < experts; ++e) {
    if (batch.owner[e] < batch.devices) continue;
    return absl::InvalidArgumentError(absl::StrCat("batch: expert ", e, ": owner=", batch.owner[e],
                                                   ": must be below devices=", batch.devices));
  }
  return absl::OkStatus();
}

std::vector<uint64_t> Loads(const Batch& batch) {
  std::vector<uint64_t> loads(batch.devices);
  for (size_t e = 0; e < batch.tokens.size(); ++e) loads[batch.owner[e]] += batch.tokens[e];
  return loads;
}

std::vector<uint64_t> Loads(const Batch& batch, const MovePlan& plan) {
  std::vector<uint64_t> loads = Loads(batch);
  for (const Move& m : plan) {
    loads[batch.owner[m.expert]] -= m.tokens;
    loads[m.to] += m.tokens;
  }
  return loads;
}

absl::Status Check(const Batch& batch, const MovePlan& plan, const Budget& budget) {
  if (plan.size() > budget.copies) {
    return absl::InvalidArgumentError(
        absl::StrCat("plan: copies=", plan.size(), ": must be at most ", budget.copies));
  }
  std::vector<uint32_t> received(batch.devices);
  MovePlan ordered = plan;
  std::sort(ordered.begin(), ordered.end(), [](const Move& a, const Move& b) {
    return a.expert != b.expert ? a.expert < b.expert : a.first < b.first;
  });
  for (size_t i = 0; i < ordered.size(); ++i) {
    const Move& m = ordered[i];
    const auto wrong = [&](const auto&... why) {
      return absl::InvalidArgumentError(
          absl::StrCat("expert ", m.expert, " to device ", m.to, ": ", why...));
    };
    if (m.expert >= batch.tokens.size() || m.to >= batch.devices) {
      return wrong("no such expert or device");
    }
    if (batch.dynamic[m.expert] == 0) return wrong("the expert is not dynamic");
    if (m.to == batch.owner[m.expert]) return wrong("the expert is already there");
    if (m.tokens == 0) return wrong("tokens=0: must be at least 1");
    if (uint64_t{m.first} + m.tokens > batch.tokens[m.expert]) {
      return wrong("tokens up to ", uint64_t{m.first} + m.tokens, ": must be at most ",
                   batch.tokens[m.expert]);
    }
    if (++received[m.to] > budget.slots) {
      return wrong("the device has slots for ", budget.slots, " experts");
    }
    if (i == 0 || ordered[i - 1].expert != m.expert) continue;
    if (ordered[i - 1].first + ordered[i - 1].tokens > m.first) {
      return wrong("tokens are moved twice");
    }
    for (size_t j = i; j > 0 && ordered[j - 1].expert == m.expert; --j) {
      if (ordered[j - 1].to == m.to) return wrong("two copies of the expert");
    }
  }
  return absl::OkStatus();
}

uint64_t Hash(const MovePlan& plan) {
  uint64_t hash = plan.size();
  for (const Move& m : plan) {
    hash = MixWord(hash, uint64_t{m.expert} << 32 | m.to);
    hash = MixWord(hash, uint64_t{m.first} << 32 | m.tokens);
  }
  return hash;
}

uint64_t Straggler(std::span<const uint64_t> loads) {
  if (loads.empty()) return 0;
  const uint64_t sum = std::accumulate(loads.begin(), loads.end(), uint64_t{0});
  const uint64_t most = *std::max_element(loads.begin(), loads.end());
  return (most * loads.size() - sum) / loads.size();
}

std::vector<uint8_t> ChooseDynamic(std::span<const uint32_t> tokens, uint32_t least) {
  std::vector<uint32_t> order(tokens.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](uint32_t a, uint32_t b) { return tokens[a] > tokens[b]; });
  const uint64_t all = std::accumulate(tokens.begin(), tokens.end(), uint64_t{0});
  std::vector<uint8_t> dynamic(tokens.size());
  uint64_t held = 0;
  for (size_t i = 0; i < order.size() && (i < least || held * 2 < all); ++i) {
    dynamic[order[i]] = 1;
    held += tokens[order[i]];
  }
  return dynamic;
}

}  // namespace rewire::moe
