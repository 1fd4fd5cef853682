#include "reconfig/moe/plan/recording.h"

#define XXH_INLINE_ALL
#include <fcntl.h>
#include <unistd.h>
#include <xxhash.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "reconfig/base/bytes.h"
#include "reconfig/base/status_macros.h"

namespace rewire::moe {
namespace {

constexpr std::string_view kMagic("RWCOUNT\x01\r\n\x1a\n\0\0\0\0", 16);
constexpr size_t kBesideCounts = 8 + 4 + 8;  // micro-batch, layer, hash
constexpr uint64_t kMostPairs = 1 << 24;

uint32_t CheckOf(std::string_view bytes) { return XXH32(bytes.data(), bytes.size(), 0x52574d43); }
uint64_t HashOf(std::string_view bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

absl::Status Failed(const std::string& path, const char* what) {
  const int error = errno;
  const std::string text = absl::StrCat("recording ", path, ": ", what, ": ", strerror(error));
  return error == EEXIST   ? absl::AlreadyExistsError(text)
         : error == ENOENT ? absl::NotFoundError(text)
                           : absl::UnavailableError(text);
}

absl::Status Corrupt(const std::string& path, uint64_t offset, absl::string_view what) {
  return absl::DataLossError(absl::StrCat("recording ", path, ": byte ", offset, ": ", what));
}

}  // namespace

absl::Status Check(const RecordedShape& shape) {
  const auto [topology, experts] = shape;
  const uint64_t devices = uint64_t{topology.nodes} * topology.per_node;
  // `devices` is compared with the limit before the product, so that the product does not wrap.
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

absl::StatusOr<CountWriter> CountWriter::Create(const std::string& path,
                                                const RecordedShape& shape) {
  if (const absl::Status status = Check(shape); !status.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("recording ", path, ": ", status.message()));
  }
  UniqueFd file(open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
  if (!file.valid()) return Failed(path, "create");
  CountWriter writer(path, shape, std::move(file));
  if (absl::Status status = writer.Append(EncodeShape(shape)); !status.ok()) {
    unlink(path.c_str());  // O_EXCL would refuse to create it again
    return status;
  }
  return writer;
}

absl::Status CountWriter::Add(const Recorded& recorded) {
  const Counts& counts = recorded.counts;
  if (counts.devices() != shape_.topology.devices() || counts.experts() != shape_.experts) {
    return absl::InvalidArgumentError(absl::StrCat(
        "recording ", path_, ": counts of ", counts.devices(), " devices and ", counts.experts(),
        " experts: must be ", shape_.topology.devices(), " and ", shape_.experts));
  }
  return Append(EncodeRecord(recorded));
}

absl::Status CountWriter::Append(std::string_view bytes) {
  for (size_t done = 0; done < bytes.size();) {
    const ssize_t n = pwrite(file_.get(), bytes.data() + done, bytes.size() - done,
                             static_cast<off_t>(size_ + done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      const absl::Status status = Failed(path_, "write");
      // The result does not matter: the next record overwrites the rest.
      (void)!ftruncate(file_.get(), static_cast<off_t>(size_));
      return status;
    }
    done += static_cast<size_t>(n);
  }
  size_ += bytes.size();
  return absl::OkStatus();
}

absl::StatusOr<CountReader> CountReader::Open(const std::string& path) {
  UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid()) return Failed(path, "open");
  CountReader reader(path, std::move(file));
  REWIRE_ASSIGN_OR_RETURN(const std::string_view bytes, reader.Read(kShapeBytes));
  if (bytes.size() < kShapeBytes) {
    return Corrupt(path, bytes.size(), "the file ends within its header");
  }
  const absl::StatusOr<RecordedShape> shape = DecodeShape(bytes);
  if (!shape.ok()) return Corrupt(path, 0, shape.status().message());
  reader.shape_ = *shape;
  reader.offset_ = kShapeBytes;
  return reader;
}

absl::StatusOr<std::optional<Recorded>> CountReader::Next() {
  const size_t whole = RecordBytes(shape_);
  REWIRE_ASSIGN_OR_RETURN(const std::string_view bytes, Read(whole));
  if (bytes.empty()) return std::nullopt;
  if (bytes.size() < whole) {
    return Corrupt(path_, offset_,
                   absl::StrCat("the file ends after ", bytes.size(), " bytes of a record of ",
                                whole, "; the records before are complete"));
  }
  absl::StatusOr<Recorded> recorded = DecodeRecord(bytes, shape_);
  if (!recorded.ok()) return Corrupt(path_, offset_, recorded.status().message());
  offset_ += whole;
  return *std::move(recorded);
}

absl::StatusOr<std::string_view> CountReader::Read(size_t bytes) {
  bytes_.resize(bytes);
  size_t done = 0;
  while (done < bytes) {
    const ssize_t n = read(file_.get(), bytes_.data() + done, bytes - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return Failed(path_, "read");
    if (n == 0) break;
    done += static_cast<size_t>(n);
  }
  return std::string_view(bytes_).substr(0, done);
}

}  // namespace rewire::moe
