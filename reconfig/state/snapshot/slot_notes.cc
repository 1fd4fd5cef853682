// Encodes and decodes the notes; see slot_notes.h.
#include "reconfig/state/snapshot/slot_notes.h"

#include <algorithm>

#include "reconfig/base/bytes.h"
#include "reconfig/state/stream/notes.h"
#include "reconfig/state/stream/stream_messages.h"

namespace rewire::state {
namespace {

constexpr size_t kEncodedPart = 4 + 8 + 8 + 8;
static_assert(8 + 4 + 4 + kMostListedParts * kEncodedPart <= kFragmentBytes);

}  // namespace

std::string EncodeSharedSnapshots(const SharedSnapshots& shared) {
  ByteWriter out;
  out.Put(shared.owner);
  for (const int32_t fd : shared.descriptors) out.Put(fd);
  return out.Take();
}

absl::StatusOr<SharedSnapshots> DecodeSharedSnapshots(std::string_view bytes) {
  ByteReader in(bytes);
  SharedSnapshots shared;
  shared.owner = in.Get<int32_t>();
  for (int32_t& fd : shared.descriptors) fd = in.Get<int32_t>();
  static_assert(4 + sizeof shared.descriptors == 16);
  if (!in.Finished()) return MalformedNote("snapshot memory", bytes, "must be 16");
  if (shared.owner < 1 || std::ranges::min(shared.descriptors) < 0) {
    return MalformedNote("snapshot memory", bytes,
                         "a process id or descriptor is negative or zero");
  }
  return shared;
}

std::string EncodePartList(uint64_t version, uint32_t index, std::span<const ListedPart> parts) {
  ByteWriter out;
  out.Put(version);
  out.Put(index);
  out.Put(static_cast<uint32_t>(parts.size()));
  for (const ListedPart& p : parts) {
    out.Put(p.tensor);
    out.Put(p.offset);
    out.Put(p.bytes);
    out.Put(p.content);
  }
  return out.Take();
}

absl::StatusOr<PartList> DecodePartList(std::string_view bytes) {
  ByteReader in(bytes);
  PartList list;
  list.version = in.Get<uint64_t>();
  list.index = in.Get<uint32_t>();
  for (uint32_t left = in.GetCount(kEncodedPart); left > 0 && in.ok(); --left) {
    ListedPart p;
    p.tensor = in.Get<uint32_t>();
    p.offset = in.Get<uint64_t>();
    p.bytes = in.Get<uint64_t>();
    p.content = in.Get<uint64_t>();
    if (p.bytes == 0 || p.offset > UINT64_MAX - p.bytes) {
      return MalformedNote("snapshot parts", bytes, "a part is empty, or ends beyond 2^64");
    }
    list.parts.push_back(p);
  }
  if (!in.Finished()) {
    return MalformedNote("snapshot parts", bytes, "the count does not fit the length");
  }
  static_assert(kKeptVersions == 3);
  if (list.index >= kKeptVersions) {
    return MalformedNote("snapshot parts", bytes, "the memory file must be 0, 1 or 2");
  }
  return list;
}

std::string EncodeForget(uint64_t version) {
  ByteWriter out;
  out.Put(version);
  return out.Take();
}

absl::StatusOr<uint64_t> DecodeForget(std::string_view bytes) {
  ByteReader in(bytes);
  const auto version = in.Get<uint64_t>();
  if (!in.Finished()) return MalformedNote("snapshots to forget", bytes, "must be 8");
  return version;
}

}  // namespace rewire::state
