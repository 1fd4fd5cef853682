#include "reconfig/control/store/record_bytes.h"

#include "absl/strings/str_cat.h"
#include "reconfig/base/bytes.h"

namespace rewire::control {
namespace {

constexpr uint16_t kVersion = 2;

}  // namespace

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

}  // namespace rewire::control
