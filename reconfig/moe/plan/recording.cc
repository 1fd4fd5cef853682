#include "reconfig/moe/plan/recording.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "absl/strings/str_cat.h"
#include "reconfig/base/bytes.h"

namespace rewire::moe {
namespace {

constexpr std::string_view kMagic("RWCOUNT\x01\r\n\x1a\n\0\0\0\0", 16);
constexpr size_t kBesideCounts = 8 + 4 + 8;  // micro-batch, layer, hash
constexpr uint64_t kMostPairs = 1 << 24;

uint32_t CheckOf(std::string_view bytes) { return XXH32(bytes.data(), bytes.size(), 0x52574d43); }
uint64_t HashOf(std::string_view bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

}  // namespace

absl::Status Check(const RecordedShape& shape) {
  const auto [topology, experts] = shape;
  const uint64_t devices = uint64_t{topology.nodes} * topology.per_node;
  // The first comparison bounds `devices`, so that the product does not wrap.
  if (devices == 0 || experts == 0 || devices > kMostPairs || devices * experts > kMostPairs) {
    return absl::InvalidArgumentError(
        absl::StrCat(topology.nodes, " nodes of ", topology.per_node, " devices and ", experts,
                     " experts: must be at least one of each, and at most ", kMostPairs,
                     " pairs of device and expert"));
  }
  return absl::OkStatus();
}

std::string EncodeShape(const RecordedShape& shape) {
  ByteWriter w;
  w.PutRaw(kMagic);
  w.Put(shape.topology.nodes);
  w.Put(shape.topology.per_node);
  w.Put(shape.experts);
  w.Put(CheckOf(w.bytes()));
  return w.Take();
}

absl::StatusOr<RecordedShape> DecodeShape(std::string_view bytes) {
  if (bytes.substr(0, kMagic.size()) != kMagic) {
    return absl::DataLossError("not a recording of this version (wrong magic)");
  }
  ByteReader r(bytes);
  (void)r.Raw(kMagic.size());
  RecordedShape shape;
  shape.topology.nodes = r.Get<uint32_t>();
  shape.topology.per_node = r.Get<uint32_t>();
  shape.experts = r.Get<uint32_t>();
  const auto check = r.Get<uint32_t>();
  if (!r.Finished() || check != CheckOf(bytes.substr(0, kShapeBytes - sizeof check))) {
    return absl::DataLossError("the checksum of the header is wrong");
  }
  if (const absl::Status status = Check(shape); !status.ok()) {
    return absl::DataLossError(status.message());
  }
  return shape;
}

size_t RecordBytes(const RecordedShape& shape) {
  return kBesideCounts + sizeof(uint32_t) * shape.topology.devices() * shape.experts;
}

std::string EncodeRecord(const Recorded& recorded) {
  ByteWriter w;
  w.Put(recorded.micro_batch);
  w.Put(recorded.layer);
  for (const uint32_t tokens : recorded.counts.tokens()) w.Put(tokens);
  w.Put(HashOf(w.bytes()));
  return w.Take();
}

absl::StatusOr<Recorded> DecodeRecord(std::string_view bytes, const RecordedShape& shape) {
  if (bytes.size() != RecordBytes(shape)) {
    return absl::DataLossError(
        absl::StrCat("record: bytes=", bytes.size(), ": must be ", RecordBytes(shape)));
  }
  ByteReader r(bytes);
  Recorded recorded{r.Get<uint64_t>(), r.Get<uint32_t>(),
                    Counts(shape.topology.devices(), shape.experts)};
  for (uint32_t& tokens : recorded.counts.tokens()) tokens = r.Get<uint32_t>();
  const auto hash = r.Get<uint64_t>();
  if (hash != HashOf(bytes.substr(0, bytes.size() - sizeof hash))) {
    return absl::DataLossError("the hash of a record is wrong");
  }
  return recorded;
}

}  // namespace rewire::moe
