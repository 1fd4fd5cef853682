// The leader's one outstanding compare-and-swap: its record, its retry after an error of the store,
// and its duration. Part of the leader. Pure; thread-compatible.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "reconfig/base/check.h"
#include "reconfig/base/clock.h"
#include "reconfig/elastic/leader/leader_action.h"
#include "reconfig/world/world.h"

namespace rewire::elastic {

// The store's answer to a CompareAndSwap: whether the record was written, and the current record.
struct StoreAnswer {
  bool swapped = false;
  WorldRecord current;
};

class RecordWrite {
 public:
  // retry: the time between two tries when the store gives errors.
  explicit RecordWrite(Duration retry) : retry_(retry) {}

  // Returns the record until its outcome is known; nullptr: no swap is outstanding.
  [[nodiscard]] const WorldRecord* record() const { return record_ ? &*record_ : nullptr; }
  // Begins the write of `record` over the stored revision. Requires that no swap is outstanding.
  void Begin(Time now, WorldRecord record, uint64_t stored_revision,
             std::vector<LeaderAction>* out) {
    REWIRE_DCHECK(!record_);
    began_ = now;
    record.revision = stored_revision + 1;
    record_ = std::move(record);
    out->push_back(CompareAndSwap{stored_revision, *record_});
  }
  // Repeats the swap when its retry is due.
  void RetryIfDue(Time now, std::vector<LeaderAction>* out) {
    if (!again_at_ || now < *again_at_) return;
    again_at_.reset();
    out->push_back(CompareAndSwap{record_->revision - 1, *record_});
  }
  // The store gave an error, so the outcome is unknown. Returns whether the error is another than
  // the last.
  bool OnError(Time now, const std::string& error) {
    again_at_ = now + retry_;
    return std::exchange(error_, error) != error;
  }
  // The store has answered. Returns whether it had given errors before. Then take the record.
  bool OnAnswer(Time now) {
    again_at_.reset();
    took_ = now - began_;
    return !std::exchange(error_, "").empty();
  }
  // Returns whether the store has the record. After a lost answer and a second swap, the store
  // already has this leader's record.
  [[nodiscard]] bool WrittenBy(const StoreAnswer& answer) const {
    return answer.swapped || answer.current == *record_;
  }
  // Ends the write and returns its record.
  WorldRecord Take() { return *std::exchange(record_, std::nullopt); }

  [[nodiscard]] std::optional<Time> retry_at() const { return again_at_; }
  [[nodiscard]] const std::string& error() const { return error_; }  // empty: none
  // Returns the duration of the last answered swap.
  [[nodiscard]] Duration took() const { return took_; }

 private:
  const Duration retry_;
  std::optional<WorldRecord> record_;
  std::optional<Time> again_at_;
  std::string error_;  // of the last answer
  Time began_{};
  Duration took_{};
};

}  // namespace rewire::elastic
