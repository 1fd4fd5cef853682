// Encodes and decodes offers; see peer_offer.h.
#include "reconfig/state/stream/peer_offer.h"

#include <unistd.h>

#include <fstream>
#include <optional>

#include "absl/strings/str_cat.h"
#include "reconfig/base/bytes.h"

namespace rewire::state {
namespace {

constexpr size_t kLeastTensor = 4 + 4;
constexpr size_t kLeastSegment = 1 + 3 * 8 + 4;

std::optional<OfferedSegment> DecodeSegment(ByteReader* in) {
  OfferedSegment s;
  s.kind = in->Get<OfferedSegment::Kind>();
  s.bytes = in->Get<uint64_t>();
  s.offset = in->Get<uint64_t>();
  s.allocation = in->Get<uint64_t>();
  if (s.kind == OfferedSegment::Kind::kHandle) {
    const std::string_view handle = in->Raw(CU_IPC_HANDLE_SIZE);
    if (in->ok()) handle.copy(s.handle.reserved, CU_IPC_HANDLE_SIZE);
  } else {
    s.index = in->Get<uint32_t>();
  }
  const bool known = s.kind <= OfferedSegment::Kind::kDescriptor;
  const bool inside = s.offset <= s.allocation && s.bytes <= s.allocation - s.offset;
  if (!in->ok() || !known || !inside) return std::nullopt;
  return s;
}

}  // namespace

uint64_t OfferedTensor::bytes() const {
  uint64_t sum = 0;
  for (const OfferedSegment& s : segments) sum += s.bytes;
  return sum;
}

std::string NodeIdentity() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  // Process ids, by which memory is found, are unique only inside one namespace.
  char space[64] = {};
  if (boot.empty() || readlink("/proc/self/ns/pid", space, sizeof space - 1) <= 0) return "";
  return boot + " " + space;
}

std::string EncodePeerOffer(const PeerOffer& offer) {
  ByteWriter out;
  out.Put(offer.epoch);
  out.PutString(offer.node);
  out.PutString(offer.server);
  out.Put(static_cast<uint32_t>(offer.tensors.size()));
  for (const OfferedTensor& t : offer.tensors) {
    out.Put(t.tensor);
    out.Put(static_cast<uint32_t>(t.segments.size()));
    for (const OfferedSegment& s : t.segments) {
      out.Put(s.kind);
      out.Put(s.bytes);
      out.Put(s.offset);
      out.Put(s.allocation);
      if (s.kind == OfferedSegment::Kind::kHandle) {
        out.PutRaw({s.handle.reserved, CU_IPC_HANDLE_SIZE});
      } else {
        out.Put(s.index);
      }
    }
  }
  return out.Take();
}

absl::StatusOr<PeerOffer> DecodePeerOffer(std::string_view bytes) {
  PeerOffer offer;
  ByteReader in(bytes);
  offer.epoch = in.Get<Epoch>();
  offer.node = std::string(in.GetString());
  offer.server = std::string(in.GetString());
  for (uint32_t left = in.GetCount(kLeastTensor); left > 0 && in.ok(); --left) {
    OfferedTensor t;
    t.tensor = in.Get<uint32_t>();
    for (uint32_t parts = in.GetCount(kLeastSegment); parts > 0 && in.ok(); --parts) {
      const std::optional<OfferedSegment> segment = DecodeSegment(&in);
      if (!segment) {
        return absl::InvalidArgumentError(
            absl::StrCat("decode an offer of device memory: tensor=", t.tensor,
                         ": a segment is cut, of an unknown kind, or outside its allocation"));
      }
      t.segments.push_back(*segment);
    }
    offer.tensors.push_back(std::move(t));
  }
  if (!in.Finished()) {
    return absl::InvalidArgumentError(
        absl::StrCat("decode an offer of device memory: bytes=", bytes.size(),
                     ": the counts do not fit the length"));
  }
  return offer;
}

}  // namespace rewire::state
