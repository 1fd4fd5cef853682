// The store in one file, the bytes of its records, and the job's key; see store.h. Owned by the
// agent's thread.
#include "reconfig/control/store/store.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "reconfig/base/bytes.h"
#include "reconfig/base/log.h"
#include "reconfig/base/own_file.h"
#include "reconfig/base/status_macros.h"
#include "reconfig/base/unique_fd.h"

namespace rewire::control {
namespace {

// For what a commit's record may add to the one before: about 200 cuts, or 150 members.
constexpr uint64_t kCommitRoom = 8u << 10;

// Version of the bytes of a record (docs/versions.md).
constexpr uint16_t kVersion = 2;

absl::Status Failed(const FileStatus& s) {
  const std::string text = "job key: file=" + s.text;
  return s.error == EPERM ? absl::PermissionDeniedError(text) : absl::UnavailableError(text);
}

absl::StatusOr<Key> ReadKey(int fd, const std::string& path) {
  char bytes[kKeyBytes + 1];
  const ssize_t n = read(fd, bytes, sizeof bytes);
  if (n != ssize_t{kKeyBytes}) {
    return absl::DataLossError(
        absl::StrCat("job key: file=", path, ": bytes=", n, ": must be ", kKeyBytes));
  }
  return KeyOfBytes({bytes, kKeyBytes});
}

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

// ---- the bytes of a record ----------------------------------------------------------------------

std::string EncodeRecord(const WorldRecord& record) {
  // Structured bindings: a new field does not compile until it is also stored.
  const auto& [world, cuts, secret, revision, reserved_epoch, next_member] = record;
  const auto& [epoch, members] = world;
  ByteWriter w;
  w.Put(kVersion);
  w.Put(revision);
  w.Put(epoch);
  w.Put(reserved_epoch);
  w.PutRaw(secret.view());
  w.Put(next_member);
  w.Put(static_cast<uint32_t>(members.size()));
  for (const auto& [member, incarnation, data_address] : members) {
    w.Put(member);
    w.Put(incarnation);
    w.PutString(data_address);
  }
  w.Put(static_cast<uint32_t>(cuts.size()));
  for (const auto& [communicator, warm, cut] : cuts) {
    w.Put(communicator.high);
    w.Put(communicator.low);
    w.Put(warm);
    w.Put(cut);
  }
  return w.Take();
}

absl::StatusOr<WorldRecord> DecodeRecord(std::string_view bytes) {
  ByteReader r(bytes);
  const auto version = r.Get<uint16_t>();
  if (r.ok() && version != kVersion) {
    return absl::DataLossError(
        absl::StrCat("decode world record: version ", version, ": must be ", kVersion));
  }
  WorldRecord record;
  record.revision = r.Get<uint64_t>();
  record.world.epoch = r.Get<Epoch>();
  record.reserved_epoch = r.Get<Epoch>();
  const std::string_view secret = r.Raw(kKeyBytes);
  if (r.ok()) record.secret = KeyOfBytes(secret);
  record.next_member = r.Get<MemberId>();
  record.world.members.resize(r.GetCount(16));
  for (WorldMember& m : record.world.members) {
    m.member = r.Get<MemberId>();
    m.incarnation = r.Get<uint64_t>();
    m.data_address = std::string(r.GetString());
  }
  record.cuts.resize(r.GetCount(32));
  for (Cut& c : record.cuts) {
    c.communicator.high = r.Get<uint64_t>();
    c.communicator.low = r.Get<uint64_t>();
    c.warm = r.Get<uint64_t>();
    c.cut = r.Get<uint64_t>();
  }
  if (!r.Finished()) {
    return absl::DataLossError(absl::StrCat("decode world record: bytes=", bytes.size(),
                                            ": the counts do not fit the length"));
  }
  return record;
}

// ---- the job's key ------------------------------------------------------------------------------

absl::StatusOr<Key> JobKey(const std::string& path) {
  UniqueFd fd;
  const FileStatus opened = OpenOwnFile(path, O_RDONLY, &fd);
  if (opened.ok()) return ReadKey(fd.get(), path);
  if (opened.error != ENOENT) return Failed(opened);
  const Key key = RandomKey();
  // The rename makes the file atomic: the agent may be killed at any point.
  const std::string part = path + ".new";
  FileStatus s = MakeOwnFile(part, 0600, &fd);
  if (s.ok()) s = WriteWhole(fd.get(), key.view(), part);
  if (!s.ok()) return Failed(s);
  if (fsync(fd.get()) != 0 || rename(part.c_str(), path.c_str()) != 0) {
    return absl::UnavailableError(
        absl::StrCat("job key: file=", path, ": rename: ", strerror(errno)));
  }
  return key;
}

}  // namespace rewire::control
