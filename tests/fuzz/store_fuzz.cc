// libFuzzer: any bytes as a store file and as the world record in the file. A file that opens keeps
// its last record over another open; a decoded record encodes to the same bytes.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <string_view>

#include "reconfig/base/unique_fd.h"
#include "reconfig/control/store/record_log.h"
#include "reconfig/control/store/store.h"
#include "tests/fuzz/require.h"

namespace {

// Each process has a folder in memory, because the fuzzer may run several processes.
const std::string& StoreFolder() {
  static const auto* const path =
      new std::string("/dev/shm/store_fuzz." + std::to_string(getpid()));
  return *path;
}

const std::string& StorePath() {
  static const auto* const path = new std::string(StoreFolder() + "/world");
  return *path;
}

void WriteStore(std::string_view bytes) {
  const rewire::UniqueFd fd(open(StorePath().c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600));
  Require(fd.valid());
  Require(write(fd.get(), bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()));
}

absl::StatusOr<rewire::control::RecordLog> OpenStore() {
  return rewire::control::RecordLog::Open(StorePath(), {});
}

void CheckRecord(std::string_view bytes) {
  const absl::StatusOr<rewire::WorldRecord> record = rewire::control::DecodeRecord(bytes);
  if (record.ok()) Require(rewire::control::EncodeRecord(*record) == bytes);
}

// Prefixes the file's bytes with those of a valid file: random bytes seldom guess the magic.
void CheckFile(std::string_view bytes) {
  WriteStore(bytes);
  std::string last;
  {
    absl::StatusOr<rewire::control::RecordLog> log = OpenStore();
    if (!log.ok()) {
      Require(!log.status().message().empty());
      return;
    }
    last = log->last();
    Require(log->Append("next").ok());
  }
  absl::StatusOr<rewire::control::RecordLog> again = OpenStore();
  Require(again.ok() && again->last() == "next" && again->dropped_bytes() == 0);
}

std::string FileWith(std::string_view record, size_t records) {
  unlink(StorePath().c_str());
  {
    absl::StatusOr<rewire::control::RecordLog> log = OpenStore();
    for (size_t i = 0; i < records; ++i) Require(log.ok() && log->Append(record).ok());
  }
  std::string bytes(1 << 16, '\0');
  const rewire::UniqueFd fd(open(StorePath().c_str(), O_RDONLY));
  const ssize_t n = read(fd.get(), bytes.data(), bytes.size());
  Require(n >= 0);
  bytes.resize(static_cast<size_t>(n));
  return bytes;
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  mkdir(StoreFolder().c_str(), 0700);
  std::atexit([] {
    unlink(StorePath().c_str());
    unlink((StorePath() + ".lock").c_str());
    rmdir(StoreFolder().c_str());
  });
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  CheckRecord(bytes);
  CheckFile(bytes);
  if (size < 3) return 0;
  // Makes a valid file and then cuts it, appends the input, or replaces one byte.
  std::string file = FileWith(bytes.substr(0, 64), data[0] % 3);
  const size_t place = (data[0] | size_t{data[1]} << 8) % file.size();
  switch (data[2] % 3) {
    case 0:
      file.resize(place);
      break;
    case 1:
      file += bytes.substr(3);
      break;
    default:
      file[place] = static_cast<char>(data[0] ^ data[1]);
  }
  CheckFile(file);
  return 0;
}
