#include "reconfig/state/plan/node_shares.h"

#include <algorithm>
#include <cstdlib>

namespace rewire::state {
namespace {

constexpr int kMaxRounds = 200;
// A round that gives at most one byte in 10,000 to other senders is the last.
constexpr int64_t kStill = 10000;

}  // namespace

void NodeShares::Divide() {
  int64_t all = 0;
  for (auto& [holders, group] : groups_) {
    group.shares.assign(holders.size(), 0);
    all += group.bytes;
  }
  for (int round = 0; round < kMaxRounds; ++round) {
    int64_t moved = 0;
    for (auto& [holders, group] : groups_) moved += Fill(holders, &group);
    if (moved <= all / kStill) break;
  }
  for (auto& [holders, group] : groups_) {
    for (size_t i = 0; i < holders.size(); ++i) {
      group.left.push_back({group.shares[i], holders[i]});
    }
    std::make_heap(group.left.begin(), group.left.end());
  }
}

int64_t NodeShares::Fill(const Nodes& holders, Group* group) {
  std::vector<int64_t> others(holders.size());  // the load without this group
  for (size_t i = 0; i < holders.size(); ++i) {
    others[i] = loads_[holders[i]] - group->shares[i];
  }
  std::vector<int64_t> sorted = others;
  std::sort(sorted.begin(), sorted.end());
  // The level at which the least loaded `filled` holders take all bytes.
  int64_t level = 0;
  int64_t sum = group->bytes;
  for (size_t filled = 1; filled <= sorted.size(); ++filled) {
    sum += sorted[filled - 1];
    level = sum / static_cast<int64_t>(filled) + 1;
    if (filled == sorted.size() || level <= sorted[filled]) break;
  }
  int64_t moved = 0;
  for (size_t i = 0; i < holders.size(); ++i) {
    const int64_t share = std::max<int64_t>(0, level - others[i]);
    moved += std::abs(share - group->shares[i]) / 2;
    group->shares[i] = share;
    loads_[holders[i]] = others[i] + share;
  }
  return moved;
}

uint32_t NodeShares::Next(const Nodes& holders, uint64_t bytes) {
  std::vector<Left>& left = groups_.at(holders).left;
  std::pop_heap(left.begin(), left.end());
  const uint32_t node = left.back().node;
  left.back().bytes -= static_cast<int64_t>(bytes);
  std::push_heap(left.begin(), left.end());
  return node;
}

}  // namespace rewire::state
