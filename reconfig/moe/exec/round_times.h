// Measures the rounds of a balancer with events on its streams: the speeds that plans are made
// from, and whether copies were late. Late rounds lower the copy budget. Thread-compatible; the
// balancer's mutex guards RoundTimes. The context of Create() must be current in every call.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "reconfig/base/cuda_driver.h"
#include "reconfig/moe/exec/makespan.h"

namespace rewire::moe {

// The reason why a balancer moves nothing any more.
enum class Off : uint8_t {
  kNo,
  kLate,    // copies were late until the budget reached 0
  kCopies,  // a copy could not be put into a stream
  kBroken,  // the balancer failed, here or elsewhere in the node; every call returns the error
};

// Adapts the copy budget to late copies: K late rounds in a row halve the budget. At 0 the layer
// runs without balancing. Thread-compatible.
class Lateness {
 public:
  Lateness(uint32_t copies, uint32_t in_a_row) : copies_(copies), in_a_row_(in_a_row) {}

  // Call at the end of a round with copies. Returns true if the round halved the budget.
  bool Count(bool late);
  // Call when copies fail; sets the budget to 0.
  void TurnOff();

  // Returns the budget of copied experts in one round.
  [[nodiscard]] uint32_t copies() const { return copies_; }
  [[nodiscard]] uint32_t in_a_row() const { return in_a_row_; }
  [[nodiscard]] uint64_t total() const { return total_; }
  [[nodiscard]] Off off() const { return off_; }

 private:
  uint32_t copies_;
  const uint32_t in_a_row_;
  uint32_t late_ = 0;
  uint64_t total_ = 0;
  Off off_ = Off::kNo;
};

class RoundTimes {
 public:
  // slots: the most segments that a device receives in a round. late_percent: see BalancerOptions.
  [[nodiscard]] static absl::StatusOr<std::unique_ptr<RoundTimes>> Create(const CudaDriver& cuda,
                                                                          uint32_t slots,
                                                                          uint32_t late_percent);
  ~RoundTimes();
  RoundTimes(const RoundTimes&) = delete;
  RoundTimes& operator=(const RoundTimes&) = delete;

  // Points on the caller's stream: a round begins; its static rows are computed; the waits for
  // received segment `index` and for all results of helpers begin and end.
  [[nodiscard]] absl::Status BeginRound(CUstream stream) const { return Record(begun_, stream); }
  [[nodiscard]] absl::Status EndStatics(CUstream stream) const { return Record(closed_, stream); }
  [[nodiscard]] absl::Status BeginWait(uint32_t index, CUstream stream) const {
    return Record(waits_[index], stream);
  }
  [[nodiscard]] absl::Status EndWait(uint32_t index, CUstream stream) const {
    return Record(there_[index], stream);
  }
  [[nodiscard]] absl::Status BeginCollect(CUstream stream) const {
    return Record(collects_, stream);
  }
  [[nodiscard]] absl::Status EndCollect(CUstream stream) const {
    return Record(collected_, stream);
  }
  // Points on the stream of copies to helpers, around the round's copies.
  [[nodiscard]] absl::Status BeginGives(CUstream stream) const {
    return Record(gives_begin_, stream);
  }
  [[nodiscard]] absl::Status EndGives(CUstream stream) const { return Record(gives_end_, stream); }
  // The event at which the round began.
  [[nodiscard]] CUevent begun() const { return begun_; }

  // Judge() also considers the waits for this number of received segments, or for the results.
  void ExpectReceived(size_t segments) { judge_received_ = segments; }
  void ExpectResults() { judge_given_ = true; }
  // Counts the last round as late or not, if the device has passed all waits and there were copies.
  void Judge(Lateness* lateness);
  // Measures the time of a row and of a KiB in the last round, averaged over the last rounds for
  // stable plans. given: bytes copied to helpers; 0: forgets a part of the copies' speeds, so that
  // one slow copy does not end the balancing without a word.
  void Measure(bool backward, uint64_t static_rows, uint64_t given);
  [[nodiscard]] const Speeds& speeds() const { return speeds_; }

  // Returns whether the device has passed all waits of the caller's stream.
  [[nodiscard]] bool PassedWaits() const;

 private:
  RoundTimes(const CudaDriver& cuda, uint32_t slots, uint32_t late_percent)
      : cuda_(cuda), late_percent_(late_percent), waits_(slots), there_(slots) {}
  [[nodiscard]] absl::Status Record(CUevent event, CUstream stream) const;
  // nullopt: the device has not reached the events yet, so nothing is known about copies.
  [[nodiscard]] std::optional<bool> WasLate(std::span<const CUevent> waits,
                                            std::span<const CUevent> there) const;
  [[nodiscard]] std::vector<CUevent*> Events();

  const CudaDriver& cuda_;
  const uint32_t late_percent_;
  CUevent begun_ = nullptr, closed_ = nullptr, collects_ = nullptr, collected_ = nullptr;
  CUevent gives_begin_ = nullptr, gives_end_ = nullptr;
  std::vector<CUevent> waits_, there_;  // by the received segment
  size_t judge_received_ = 0;
  bool judge_given_ = false;
  Speeds speeds_;
};

}  // namespace rewire::moe
