#include "reconfig/store/embedded_store.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "reconfig/base/log.h"
#include "reconfig/base/status_macros.h"
#include "reconfig/store/record_bytes.h"

namespace rewire {

absl::StatusOr<std::unique_ptr<EmbeddedStore>> EmbeddedStore::Open(const std::string& path,
                                                                   RecordLog::Options options) {
  REWIRE_ASSIGN_OR_RETURN(RecordLog log, RecordLog::Open(path, options));
  if (log.dropped_bytes() > 0) {
    REWIRE_WARN("store %s: dropped the last %llu bytes, a record that was never finished",
                path.c_str(), static_cast<unsigned long long>(log.dropped_bytes()));
  }
  std::optional<WorldRecord> current;
  if (!log.empty()) {
    absl::StatusOr<WorldRecord> record = DecodeRecord(log.last());
    if (!record.ok()) {
      return absl::DataLossError(
          absl::StrCat("store ", path, ": ", std::string(record.status().message())));
    }
    current = *std::move(record);
  }
  return std::unique_ptr<EmbeddedStore>(new EmbeddedStore(std::move(log), std::move(current)));
}

void EmbeddedStore::Read(ReadDone done) { done(current_); }

void EmbeddedStore::CompareAndSwap(Epoch expected, const WorldRecord& record, SwapDone done) {
  done(Swap(expected, record));
}

absl::StatusOr<SwapOutcome> EmbeddedStore::Swap(Epoch expected, const WorldRecord& record) {
  const Epoch stands = current_ ? current_->world.epoch : 0;
  if (record.world.epoch <= expected) {
    return absl::InvalidArgumentError(absl::StrCat(
        "store ", log_.path(), ": epoch ", record.world.epoch, " does not follow ", expected));
  }
  if (stands != expected) return SwapOutcome{false, current_};
  REWIRE_RETURN_IF_ERROR(log_.Append(EncodeRecord(record)));
  current_ = record;
  return SwapOutcome{true, current_};
}

}  // namespace rewire
