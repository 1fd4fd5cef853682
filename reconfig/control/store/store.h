// The store of a job's world record, and the job's random key in a file beside it. The commit of a
// transition is one compare-and-swap in the store.
//
// Store is the interface, for the agent. It also permits a replicated store, whose answers come
// later: each callback is called exactly once, inside the call or from Progress(). EmbeddedStore is
// the store of one machine: one file, which survives the death of the agent at any moment. It calls
// each callback before the call returns. The agent's thread owns a store. The encoding of a record
// (docs/store.md) is pure and thread-safe.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "reconfig/auth/key.h"
#include "reconfig/control/store/record_log.h"
#include "reconfig/world/world.h"

namespace rewire::control {

// The result of a compare-and-swap.
struct SwapOutcome {
  bool swapped = false;
  // The record in the store now. When not swapped: the record that differed, if any.
  std::optional<WorldRecord> current;
};

class Store {
 public:
  // An error means that the result is unknown. A compare-and-swap may then have happened; a later
  // Read(), or the same compare-and-swap again, determines the result.
  using ReadDone = std::function<void(absl::StatusOr<std::optional<WorldRecord>>)>;
  using SwapDone = std::function<void(absl::StatusOr<SwapOutcome>)>;

  virtual ~Store() = default;

  // Reads the record; nullopt when none was ever written.
  virtual void Read(ReadDone done) = 0;
  // Stores the record when the stored revision is `expected` (0: no record) and the record's own
  // revision is higher. Revisions and epochs never decrease. Reports a swap only when the record
  // would survive the death of this process.
  virtual void CompareAndSwap(uint64_t expected, const WorldRecord& record, SwapDone done) = 0;

  // Returns a descriptor that is readable when Progress() has work to do; -1: never.
  [[nodiscard]] virtual int fd() const { return -1; }
  virtual void Progress() {}
};

// The store of one machine, in one file.
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

// Returns the bytes of one store record.
std::string EncodeRecord(const WorldRecord& record);
// Decodes a record. Unused bytes, or a count that does not fit, are a DataLoss error.
absl::StatusOr<WorldRecord> DecodeRecord(std::string_view bytes);

// The random key of a job: every agent of the job uses the same key, and all keys of epochs are
// derived from it. Reads the key, or makes a key when the file does not exist. Fails unless the
// file is a regular file of this user that no other user can read or write.
absl::StatusOr<Key> JobKey(const std::string& path);

}  // namespace rewire::control
