// Encodes and decodes the lists; see pull_lists.h.
#include "reconfig/state/stream/pull_lists.h"

#include "absl/strings/str_cat.h"
#include "reconfig/base/bytes.h"

namespace rewire::state {
namespace {

constexpr size_t kEncodedTensor = 4;

absl::Status Malformed(const char* list, std::string_view bytes) {
  return absl::InvalidArgumentError(absl::StrCat("decode ", list, ": bytes=", bytes.size(),
                                                 ": the count does not fit the length"));
}

}  // namespace

std::string EncodeContents(std::span<const CopyContent> contents) {
  ByteWriter out;
  out.Put(static_cast<uint32_t>(contents.size()));
  for (const CopyContent& c : contents) {
    out.Put(c.tensor);
    out.Put(c.begin);
    out.Put(c.content);
  }
  return out.Take();
}

absl::StatusOr<std::vector<CopyContent>> DecodeContents(std::string_view bytes) {
  std::vector<CopyContent> contents;
  ByteReader in(bytes);
  for (uint32_t left = in.GetCount(kEncodedContentBytes); left > 0 && in.ok(); --left) {
    CopyContent c;
    c.tensor = in.Get<uint32_t>();
    c.begin = in.Get<uint64_t>();
    c.content = in.Get<uint64_t>();
    contents.push_back(c);
  }
  if (!in.Finished()) return Malformed("hashes of copies", bytes);
  return contents;
}

std::string EncodeTensors(std::span<const uint32_t> tensors) {
  ByteWriter out;
  out.Put(static_cast<uint32_t>(tensors.size()));
  for (const uint32_t t : tensors) out.Put(t);
  return out.Take();
}

absl::StatusOr<std::vector<uint32_t>> DecodeTensors(std::string_view bytes) {
  std::vector<uint32_t> tensors;
  ByteReader in(bytes);
  for (uint32_t left = in.GetCount(kEncodedTensor); left > 0 && in.ok(); --left) {
    tensors.push_back(in.Get<uint32_t>());
  }
  if (!in.Finished()) return Malformed("tensors to copy", bytes);
  return tensors;
}

}  // namespace rewire::state
