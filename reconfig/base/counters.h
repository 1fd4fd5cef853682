// The counters of this process (counters.def). Each of our libraries in a process has its own copy
// of these totals. ReportCounters() brings them together, and librewire.so sends all of them to the
// agent.
// Thread-safe: all values are read and written relaxed.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "reconfig/abi/counter_value.h"

namespace rewire {

enum class Counter : uint16_t {
#define REWIRE_COUNTER(number, id, ...) id = number,
#include "reconfig/base/counters.def"
#undef REWIRE_COUNTER
};

enum class CounterKind : uint8_t {
  kTotal,        // only grows while the process lives
  kNanoseconds,  // a total of time; shown in seconds
  kGauge,        // the present value
};

struct CounterInfo {
  Counter counter;
  CounterKind kind;
  const char* metric;  // name in /metrics; rows with the same name differ in their label
  const char* label;   // "name=value", or ""
  const char* help;
};

// Returns the rows in the order of their numbers; the index is the number.
[[nodiscard]] std::span<const CounterInfo> CounterTable();

// Adds to the process's total, or to a gauge's value. The sum wraps around, so that `-n` lowers a
// gauge by n.
void Count(Counter counter, uint64_t change = 1);
// Sets a value that is counted elsewhere.
void SetCounter(Counter counter, uint64_t value);
// Raises a gauge to `value`. Has no effect if the gauge is at or above `value`.
void RaiseCounter(Counter counter, uint64_t value);
[[nodiscard]] uint64_t ValueOf(Counter counter);
// Returns the values other than 0.
[[nodiscard]] std::vector<CounterValue> CounterValues();
// Copies at most `room` of the values other than 0 for another library in the process, and returns
// the number of copied values; see ReadCounters.
size_t CopyCounters(CounterValue* out, size_t room) noexcept;
// Returns the value of `counter` in `values`; 0: the list does not have the counter.
[[nodiscard]] uint64_t ValueIn(std::span<const CounterValue> values, Counter counter);

// The part of one object in a total. The object's own value is for tests and logs.
class Counted {
 public:
  constexpr explicit Counted(Counter counter) : counter_(counter) {}
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;

  // Both operators return the object's new value.
  uint64_t operator+=(uint64_t change) {
    Count(counter_, change);
    return value_.fetch_add(change, std::memory_order_relaxed) + change;
  }
  uint64_t operator++() { return *this += 1; }
  [[nodiscard]] uint64_t load() const { return value_.load(std::memory_order_relaxed); }

 private:
  const Counter counter_;
  std::atomic<uint64_t> value_{0};
};

// Registers `read`, a function of the calling library, with the librewire.so in that library's
// folder. Loads librewire.so if the process has not loaded it yet. Has no effect in a process that
// is not a member of a job (REWIRE_SOCKET). Thread-safe. Waits while another thread loads a
// library.
void ReportCounters(ReadCounters read);

}  // namespace rewire
