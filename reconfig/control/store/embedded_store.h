// The store of one machine: one file, which survives the death of the agent at any moment. Calls
// each callback before the call returns. Owned by the agent's thread.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "reconfig/control/store/record_log.h"
#include "reconfig/control/store/store.h"

namespace rewire::control {

class EmbeddedStore : public Store {
 public:
  // Fails when another process has the file open, or when the file is damaged.
  static absl::StatusOr<std::unique_ptr<EmbeddedStore>> Open(const std::string& path,
                                                             RecordLog::Options options = {});

  void Read(ReadDone done) override;
  void CompareAndSwap(uint64_t expected, const WorldRecord& record, SwapDone done) override;

 private:
  explicit EmbeddedStore(RecordLog log) : log_(std::move(log)) {}
  // Reads current_ from the log.
  absl::Status Load();
  absl::Status Heal();
  absl::StatusOr<SwapOutcome> Swap(uint64_t expected, const WorldRecord& record);

  RecordLog log_;
  std::optional<WorldRecord> current_;
};

}  // namespace rewire::control
