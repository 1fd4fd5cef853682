#include "reconfig/control/store/embedded_store.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "reconfig/base/log.h"
#include "reconfig/base/status_macros.h"
#include "reconfig/control/store/record_bytes.h"

namespace rewire::control {
namespace {

// For what a commit's record may add to the one before: about 200 cuts, or 150 members.
constexpr uint64_t kCommitRoom = 8u << 10;

}  // namespace

absl::StatusOr<std::unique_ptr<EmbeddedStore>> EmbeddedStore::Open(const std::string& path,
                                                                   RecordLog::Options options) {
  REWIRE_ASSIGN_OR_RETURN(RecordLog log, RecordLog::Open(path, options));
  if (log.dropped_bytes() > 0) {
    REWIRE_WARN("store %s: dropped the last %llu bytes: an incomplete record", path.c_str(),
                static_cast<unsigned long long>(log.dropped_bytes()));
  }
  std::unique_ptr<EmbeddedStore> store(new EmbeddedStore(std::move(log)));
  REWIRE_RETURN_IF_ERROR(store->Load());
  return store;
}

absl::Status EmbeddedStore::Load() {
  current_.reset();
  if (log_.empty()) return absl::OkStatus();
  absl::StatusOr<WorldRecord> record = DecodeRecord(log_.last());
  if (!record.ok()) {
    return absl::DataLossError(
        absl::StrCat("store ", log_.path(), ": ", std::string(record.status().message())));
  }
  current_ = *std::move(record);
  return absl::OkStatus();
}

absl::Status EmbeddedStore::Heal() {
  if (!log_.broken()) return absl::OkStatus();
  REWIRE_RETURN_IF_ERROR(log_.Reopen());
  return Load();
}

void EmbeddedStore::Read(ReadDone done) {
  if (absl::Status s = Heal(); !s.ok()) return done(s);
  done(current_);
}

void EmbeddedStore::CompareAndSwap(uint64_t expected, const WorldRecord& record, SwapDone done) {
  done(Swap(expected, record));
}

absl::StatusOr<SwapOutcome> EmbeddedStore::Swap(uint64_t expected, const WorldRecord& record) {
  REWIRE_RETURN_IF_ERROR(Heal());
  const uint64_t stands = current_ ? current_->revision : 0;
  if (stands != expected) return SwapOutcome{false, current_};
  const Epoch epoch = current_ ? current_->world.epoch : 0;
  if (record.revision <= expected || record.world.epoch < epoch) {
    return absl::InvalidArgumentError(absl::StrCat(
        "store ", log_.path(), ": revision ", record.revision, " of epoch ", record.world.epoch,
        " does not follow revision ", expected, " of epoch ", epoch));
  }
  // A full disk has to be found before the members stop for a change. So a record that only
  // reserves an epoch also makes room for the commit, which may add members and cuts.
  const std::string bytes = EncodeRecord(record);
  const bool commit = record.world.epoch > epoch;
  REWIRE_RETURN_IF_ERROR(log_.Append(bytes, commit ? 0 : 2 * bytes.size() + kCommitRoom));
  current_ = record;
  return SwapOutcome{true, current_};
}

}  // namespace rewire::control
