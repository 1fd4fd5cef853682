#include "reconfig/elastic/participant/process_counters.h"

#include <array>
#include <atomic>

#include "reconfig/base/counters.h"

namespace rewire::elastic {
namespace {

// For librewire-net.so and librewire-moe.so, and for copies of them in other folders.
std::array<std::atomic<ReadCounters>, 8> libraries{};

}  // namespace

std::vector<CounterValue> ProcessCounters() {
  std::vector<CounterValue> all = CounterValues();
  for (const std::atomic<ReadCounters>& library : libraries) {
    const ReadCounters read = library.load();
    if (read == nullptr) break;
    const size_t own = all.size();
    all.resize(own + CounterTable().size());
    all.resize(own + read(all.data() + own, CounterTable().size()));
  }
  return all;
}

}  // namespace rewire::elastic

extern "C" __attribute__((visibility("default"))) void rewire_add_counters(
    rewire::ReadCounters read) noexcept {
  for (std::atomic<rewire::ReadCounters>& library : rewire::elastic::libraries) {
    rewire::ReadCounters there = nullptr;
    if (library.compare_exchange_strong(there, read) || there == read) return;
  }
}
