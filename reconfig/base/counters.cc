#include "reconfig/base/counters.h"

#include <algorithm>
#include <array>

namespace rewire {
namespace {

constexpr CounterInfo kTable[] = {
#define REWIRE_COUNTER(number, id, kind, metric, label, help) \
  {Counter::id, CounterKind::kind, metric, label, help},
#include "reconfig/base/counters.def"
#undef REWIRE_COUNTER
};
constexpr size_t kCounters = std::size(kTable);

constexpr bool NumbersAreIndices() {
  for (size_t i = 0; i < kCounters; ++i) {
    if (static_cast<size_t>(kTable[i].counter) != i) return false;
  }
  return true;
}
static_assert(NumbersAreIndices(), "counters.def: number the rows 0, 1, 2, ...");

std::array<std::atomic<uint64_t>, kCounters> values{};

std::atomic<uint64_t>& At(Counter counter) { return values[static_cast<size_t>(counter)]; }

}  // namespace

std::span<const CounterInfo> CounterTable() { return kTable; }

void Count(Counter counter, uint64_t change) {
  At(counter).fetch_add(change, std::memory_order_relaxed);
}

void SetCounter(Counter counter, uint64_t value) {
  At(counter).store(value, std::memory_order_relaxed);
}

void RaiseCounter(Counter counter, uint64_t value) {
  uint64_t now = ValueOf(counter);
  while (now < value && !At(counter).compare_exchange_weak(now, value, std::memory_order_relaxed)) {
  }
}

uint64_t ValueOf(Counter counter) { return At(counter).load(std::memory_order_relaxed); }

std::vector<CounterValue> CounterValues() {
  std::vector<CounterValue> found;
  for (const CounterInfo& info : kTable) {
    if (const uint64_t value = ValueOf(info.counter); value != 0) {
      found.push_back({static_cast<uint16_t>(info.counter), value});
    }
  }
  return found;
}

size_t CopyCounters(CounterValue* out, size_t room) noexcept {
  const std::vector<CounterValue> values = CounterValues();
  const size_t count = std::min(room, values.size());
  std::copy_n(values.begin(), count, out);
  return count;
}

uint64_t ValueIn(std::span<const CounterValue> values, Counter counter) {
  for (const CounterValue& v : values) {
    if (v.number == static_cast<uint16_t>(counter)) return v.value;
  }
  return 0;
}

}  // namespace rewire
