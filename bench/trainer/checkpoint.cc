#include "bench/trainer/checkpoint.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bench/trainer/chunks.h"
#include "reconfig/base/hash.h"
#include "reconfig/base/status_macros.h"
#include "reconfig/base/unique_fd.h"
#include "rewire/rewire.h"

namespace rewire::trainer {
namespace {

constexpr char kMagic[8] = {'R', 'W', 'G', 'P', 'T', 'C', 'K', 'P'};
constexpr uint64_t kHeaderBytes = 4096;
constexpr const char* kTensors[] = {"master", "first", "second", "ballast"};

uint64_t HeaderHash(const CheckpointHeader& h) {
  return ContentHash(&h, offsetof(CheckpointHeader, hash), 0);
}

absl::Status Failed(const std::string& path) {
  return absl::InternalError(absl::StrCat(path, ": ", strerror(errno)));
}

absl::Status Bad(const std::string& path, const std::string& why) {
  return absl::InvalidArgumentError(absl::StrCat("--load ", path, ": ", why));
}

absl::Status WriteAt(int fd, const std::string& path, const void* data, size_t bytes,
                     uint64_t offset) {
  const auto* p = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t n = pwrite(fd, p, bytes, static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n == 0) errno = EIO;  // nothing was written, without a reason
    if (n <= 0) return Failed(path);
    p += n;
    bytes -= static_cast<size_t>(n);
    offset += static_cast<uint64_t>(n);
  }
  return absl::OkStatus();
}

absl::Status ReadAt(int fd, const std::string& path, void* data, size_t bytes, uint64_t offset) {
  auto* p = static_cast<char*>(data);
  while (bytes > 0) {
    const ssize_t n = pread(fd, p, bytes, static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n == 0) return Bad(path, "it ends too early");
    if (n < 0) return Failed(path);
    p += n;
    bytes -= static_cast<size_t>(n);
    offset += static_cast<uint64_t>(n);
  }
  return absl::OkStatus();
}

Range SavedPart(const CheckpointHeader& h, uint64_t elements, uint32_t slot) {
  Range r;
  rewireShard(elements, h.slots, slot, &r.begin, &r.end);
  return r;
}

uint64_t TensorElements(const CheckpointHeader& h, std::string_view name) {
  return name == "ballast" ? h.ballast : h.elements;
}

// Returns the offset of a tensor's part in a slot's file; without a name, the file's size.
uint64_t Offset(const CheckpointHeader& h, uint32_t slot, std::string_view name) {
  uint64_t at = kHeaderBytes;
  for (const char* t : kTensors) {
    if (t == name) break;
    at += SavedPart(h, TensorElements(h, t), slot).size() * 4;
  }
  return at;
}

CheckpointHeader Describe(const Args& args, const TrainingState& state) {
  CheckpointHeader h;
  // Padding is also zeroed, because the hash covers it.
  std::memset(static_cast<void*>(&h), 0, sizeof h);
  std::memcpy(h.magic, kMagic, sizeof kMagic);
  h.version = 1;
  h.slots = static_cast<uint32_t>(state.slots);
  h.slot = static_cast<uint32_t>(state.slot);
  h.exact = state.exact() ? 1 : 0;
  h.elements = state.elements();
  const auto ballast = state.tensors.find("ballast");
  h.ballast = ballast == state.tensors.end() ? 0 : ballast->second.elements;
  h.seed = args.seed;
  h.samples = static_cast<uint64_t>(args.batch) * args.accumulate;
  h.progress = state.progress;
  h.running = state.running;
  h.hash = HeaderHash(h);
  return h;
}

struct SavedFile {
  std::string path;
  UniqueFd fd;
  CheckpointHeader header;
};

absl::StatusOr<SavedFile> OpenSaved(const Args& args, const CheckpointHeader& mine, uint32_t slot) {
  SavedFile f;
  f.path = absl::StrCat(args.load, ".", slot);
  f.fd.reset(open(f.path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!f.fd.valid()) return Bad(f.path, strerror(errno));
  CheckpointHeader& h = f.header;
  REWIRE_RETURN_IF_ERROR(ReadAt(f.fd.get(), f.path, &h, sizeof h, 0));
  if (memcmp(h.magic, kMagic, sizeof kMagic) != 0) return Bad(f.path, "not a checkpoint");
  if (h.version != 1) return Bad(f.path, absl::StrCat("version ", h.version, ", not 1"));
  if (h.hash != HeaderHash(h)) return Bad(f.path, "its header is damaged");
  if (h.slot != slot || h.slots == 0 || h.slots > kMaxSlots || slot >= h.slots) {
    return Bad(f.path, absl::StrCat("holds slot ", h.slot, " of ", h.slots, ", not ", slot));
  }
  if (h.elements != mine.elements || h.ballast != mine.ballast) {
    return Bad(f.path, absl::StrCat("a model of ", h.elements, " elements and ", h.ballast,
                                    " of ballast, not ", mine.elements, " and ", mine.ballast));
  }
  if (h.seed != mine.seed || h.samples != mine.samples || h.exact != mine.exact) {
    return Bad(f.path, "another --seed, --batch x --accumulate or --exact");
  }
  struct stat st {};
  if (fstat(f.fd.get(), &st) != 0) return Failed(f.path);
  const uint64_t size = Offset(h, slot, "");
  if (static_cast<uint64_t>(st.st_size) != size) {
    return Bad(f.path, absl::StrCat("has ", st.st_size, " bytes, not ", size));
  }
  return f;
}

// Reads elements [begin, begin + values.size()) of a tensor from the files that hold them.
absl::Status ReadElements(const std::vector<SavedFile>& files, std::string_view name,
                          uint64_t begin, std::span<float> values) {
  const uint64_t end = begin + values.size();
  for (const SavedFile& f : files) {
    const CheckpointHeader& h = f.header;
    const Range part = SavedPart(h, TensorElements(h, name), h.slot);
    const uint64_t from = std::max(begin, part.begin), to = std::min(end, part.end);
    if (from >= to) continue;
    REWIRE_RETURN_IF_ERROR(ReadAt(f.fd.get(), f.path, values.data() + (from - begin),
                                  (to - from) * 4,
                                  Offset(h, h.slot, name) + (from - part.begin) * 4));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status SaveCheckpoint(const Args& args, TrainingState& state, StepLog& log) {
  const CheckpointHeader header = Describe(args, state);
  const std::string path = absl::StrCat(args.save, ".", state.slot);
  const std::string fresh = path + ".new";
  UniqueFd fd(open(fresh.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (!fd.valid()) return Failed(fresh);
  REWIRE_RETURN_IF_ERROR(WriteAt(fd.get(), fresh, &header, sizeof header, 0));
  for (const char* name : kTensors) {
    const auto t = state.tensors.find(name);
    if (t == state.tensors.end()) continue;
    // Under ZeRO-0 every member holds everything and writes its share.
    const Range mine = SavedPart(header, t->second.elements, header.slot);
    const uint64_t skip = mine.begin - state.Part(t->second.elements).begin;
    const uint64_t offset = Offset(header, header.slot, name);
    REWIRE_RETURN_IF_ERROR(ForEachChunk(
        state.device(), t->second.at(skip * 4), mine.size(), ChunkAccess::kRead,
        [&](uint64_t at, std::span<float> values) {
          return WriteAt(fd.get(), fresh, values.data(), values.size() * 4, offset + at * 4);
        }));
  }
  if (ftruncate(fd.get(), static_cast<off_t>(Offset(header, header.slot, ""))) != 0) {
    return Failed(fresh);
  }
  log.Phase("written", MonotonicNs());
  if (fsync(fd.get()) != 0) return Failed(fresh);
  if (rename(fresh.c_str(), path.c_str()) != 0) return Failed(path);
  return absl::OkStatus();
}

absl::Status LoadCheckpoint(const Args& args, TrainingState& state) {
  const CheckpointHeader mine = Describe(args, state);
  std::vector<SavedFile> files;
  uint32_t slots = 1;
  for (uint32_t slot = 0; slot < slots; ++slot) {
    REWIRE_ASSIGN_OR_RETURN(SavedFile f, OpenSaved(args, mine, slot));
    if (slot == 0) slots = f.header.slots;
    const CheckpointHeader& first = files.empty() ? f.header : files[0].header;
    if (f.header.slots != slots || f.header.progress.step != first.progress.step) {
      return Bad(f.path, absl::StrCat("step ", f.header.progress.step, " of ", f.header.slots,
                                      " slots, but slot 0 has step ", first.progress.step, " of ",
                                      slots, " slots"));
    }
    files.push_back(std::move(f));
  }
  for (const char* name : kTensors) {
    const auto t = state.tensors.find(name);
    if (t == state.tensors.end()) continue;
    const Range part = state.Part(t->second.elements);
    REWIRE_RETURN_IF_ERROR(ForEachChunk(state.device(), t->second.at(), part.size(),
                                        ChunkAccess::kWrite,
                                        [&](uint64_t at, std::span<float> values) {
                                          return ReadElements(files, name, part.begin + at, values);
                                        }));
  }
  state.progress = files[0].header.progress;
  state.running = files[0].header.running;
  return absl::OkStatus();
}

}  // namespace rewire::trainer
