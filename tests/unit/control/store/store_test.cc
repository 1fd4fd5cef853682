// Tests the embedded store on files that are cut off and damaged at every byte.
#include "reconfig/control/store/store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "reconfig/base/log.h"

namespace rewire::control {
namespace {

using ::testing::HasSubstr;

WorldRecord Record(Epoch epoch) {
  WorldRecord r;
  r.world.epoch = epoch;
  r.secret.bytes[0] = static_cast<unsigned char>(epoch * 77);
  r.revision = epoch;
  r.reserved_epoch = epoch + 1;
  r.next_member = 9;
  for (uint32_t i = 0; i < 1 + epoch % 3; ++i) {
    r.world.members.push_back({i, epoch * 100 + i, "127.0.0.1:4000" + std::to_string(i)});
  }
  if (epoch % 2 == 0) r.cuts.push_back({{1, epoch}, 10, 20});
  return r;
}

class StoreTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = ::testing::TempDir() + "/rewire-store-XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    directory_ = name;
    path_ = name + "/world";
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  std::unique_ptr<EmbeddedStore> OpenOrDie(RecordLog::Options options = {}) {
    auto store = EmbeddedStore::Open(path_, options);
    EXPECT_TRUE(store.ok()) << store.status();
    return store.ok() ? *std::move(store) : nullptr;
  }
  static absl::StatusOr<SwapOutcome> Swap(Store& store, Epoch expected, const WorldRecord& record) {
    absl::StatusOr<SwapOutcome> out = absl::InternalError("not answered");
    store.CompareAndSwap(expected, record, [&](auto outcome) { out = std::move(outcome); });
    return out;
  }
  static std::optional<WorldRecord> Read(Store& store) {
    std::optional<WorldRecord> out;
    store.Read([&](auto record) {
      EXPECT_TRUE(record.ok());
      if (record.ok()) out = *record;
    });
    return out;
  }
  // Makes a file with records 1..n; returns the file's size before the first record
  // and after each record.
  std::vector<size_t> Fill(Epoch n) {
    std::vector<size_t> sizes;
    auto store = OpenOrDie();
    sizes.push_back(std::filesystem::file_size(path_));
    for (Epoch e = 1; e <= n; ++e) {
      auto outcome = Swap(*store, e - 1, Record(e));
      EXPECT_TRUE(outcome.ok() && outcome->swapped);
      sizes.push_back(std::filesystem::file_size(path_));
    }
    return sizes;
  }
  [[nodiscard]] std::string Bytes() const {
    std::ifstream in(path_, std::ios::binary);
    std::ostringstream out;
    out << in.rdbuf();
    return out.str();
  }
  void Put(std::string_view bytes) const {
    std::ofstream out(path_, std::ios::binary | std::ios::trunc);
    out << bytes;
    chmod(path_.c_str(), 0600);
  }

  std::string directory_;
  std::string path_;
};

TEST_F(StoreTest, RecordsRoundTrip) {
  for (Epoch e = 1; e < 6; ++e) {
    auto back = DecodeRecord(EncodeRecord(Record(e)));
    ASSERT_TRUE(back.ok()) << back.status();
    EXPECT_EQ(*back, Record(e));
  }
}

TEST_F(StoreTest, RejectsShortenedAndExtendedRecord) {
  const std::string whole = EncodeRecord(Record(2));
  for (size_t n = 0; n < whole.size(); ++n) {
    EXPECT_FALSE(DecodeRecord(whole.substr(0, n)).ok()) << n;
  }
  EXPECT_FALSE(DecodeRecord(whole + "x").ok());
  EXPECT_THAT(std::string(DecodeRecord("\x09" + whole.substr(1)).status().message()),
              HasSubstr("version 9"));
}

TEST_F(StoreTest, ReopensWithLastRecord) {
  EXPECT_EQ(Read(*OpenOrDie()), std::nullopt);
  Fill(5);
  EXPECT_EQ(Read(*OpenOrDie()), Record(5));
}

TEST_F(StoreTest, RejectsStaleRevision) {
  auto store = OpenOrDie();
  ASSERT_TRUE(Swap(*store, 0, Record(4))->swapped);
  auto late = Swap(*store, 0, Record(5));
  ASSERT_TRUE(late.ok());
  EXPECT_FALSE(late->swapped);
  EXPECT_EQ(late->current, Record(4));
  EXPECT_EQ(Swap(*store, 4, Record(4)).status().code(), absl::StatusCode::kInvalidArgument);
  WorldRecord back = Record(3);
  back.revision = 5;
  EXPECT_THAT(std::string(Swap(*store, 4, back).status().message()),
              HasSubstr("revision 5 of epoch 3 does not follow revision 4 of epoch 4"));
  EXPECT_TRUE(Swap(*store, 4, Record(9))->swapped);
  EXPECT_EQ(Read(*store), Record(9));
}

TEST_F(StoreTest, RejectsSecondProcess) {
  auto store = OpenOrDie();
  auto second = EmbeddedStore::Open(path_);
  EXPECT_EQ(second.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(second.status().message()),
              HasSubstr(path_ + " is in use by process " + std::to_string(getpid())));
  store.reset();
  EXPECT_TRUE(EmbeddedStore::Open(path_).ok());
}

std::string& LogText() {
  static std::string text;
  return text;
}

// Before the test that logs this more often than a statement may.
TEST_F(StoreTest, ReportsTornTail) {
  const size_t whole = Fill(2)[2];
  Put(Bytes().substr(0, whole - 3));
  LogText().clear();
  SetLogSink([](LogLevel, const std::string& line) { LogText() += line; });
  EXPECT_EQ(Read(*OpenOrDie()), Record(1));
  SetLogSink(nullptr);
  EXPECT_THAT(LogText(), HasSubstr("store " + path_ + ": dropped the last "));
}

TEST_F(StoreTest, RecoversLastWholeRecordAfterAnyTruncation) {
  const std::vector<size_t> sizes = Fill(4);
  const std::string whole = Bytes();
  ASSERT_EQ(whole.size(), sizes.back());
  for (size_t n = 0; n <= whole.size(); ++n) {
    Put(whole.substr(0, n));
    SetLogSink([](LogLevel, const std::string&) {});
    auto store = EmbeddedStore::Open(path_);
    if (n < sizes[0]) {
      EXPECT_THAT(std::string(store.status().message()),
                  HasSubstr(path_ + " is corrupt at byte 0"));
      continue;
    }
    ASSERT_TRUE(store.ok()) << n << store.status();
    Epoch last = 0;
    while (last + 1 < sizes.size() && sizes[last + 1] <= n) ++last;
    EXPECT_EQ(Read(**store), last == 0 ? std::nullopt : std::optional(Record(last))) << n;
    // The next record is written after the last whole record, and stays.
    ASSERT_TRUE(Swap(**store, last, Record(50))->swapped) << n;
    store->reset();
    EXPECT_EQ(Read(*OpenOrDie()), Record(50)) << n;
  }
  SetLogSink(nullptr);
}

TEST_F(StoreTest, DetectsEveryDamagedBit) {
  Fill(3);
  const std::string whole = Bytes();
  for (size_t i = 0; i < whole.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string damaged = whole;
      damaged[i] = static_cast<char>(damaged[i] ^ (1 << bit));
      Put(damaged);
      auto store = EmbeddedStore::Open(path_);
      ASSERT_EQ(store.status().code(), absl::StatusCode::kDataLoss) << i << " " << bit;
      EXPECT_THAT(std::string(store.status().message()), HasSubstr(path_ + " is corrupt at byte "));
      ASSERT_EQ(Bytes(), damaged) << "a damaged store must stay as it is";
    }
  }
}

TEST_F(StoreTest, DropsTailOfZeros) {
  Fill(2);
  Put(Bytes() + std::string(100, '\0'));
  EXPECT_EQ(Read(*OpenOrDie()), Record(2));
}

TEST_F(StoreTest, RejectsFileThatIsNotAStore) {
  for (const char* other : {"", "RW", "#!/bin/sh\nexit 0\n"}) {
    Put(other);
    EXPECT_EQ(EmbeddedStore::Open(path_).status().code(), absl::StatusCode::kDataLoss) << other;
  }
  path_ = directory_ + "/none/world";
  EXPECT_THAT(std::string(EmbeddedStore::Open(path_).status().message()),
              HasSubstr("No such file or directory"));
}

TEST_F(StoreTest, CompactionKeepsRecordAndBoundsSize) {
  auto store = OpenOrDie({.compact_bytes = 400});
  size_t largest = 0;
  for (Epoch e = 1; e <= 200; ++e) {
    ASSERT_TRUE(Swap(*store, e - 1, Record(e))->swapped);
    largest = std::max<size_t>(largest, std::filesystem::file_size(path_));
  }
  EXPECT_LT(largest, 700u);
  store.reset();
  EXPECT_EQ(Read(*OpenOrDie()), Record(200));
  EXPECT_FALSE(std::filesystem::exists(path_ + ".new"));
}

TEST_F(StoreTest, WritesARemovedFileAgain) {
  auto store = OpenOrDie();
  ASSERT_TRUE(Swap(*store, 0, Record(1))->swapped);
  std::filesystem::remove(path_);
  ASSERT_TRUE(Swap(*store, 1, Record(2))->swapped);
  EXPECT_EQ(Read(*store), Record(2));
  store.reset();
  EXPECT_EQ(Read(*OpenOrDie()), Record(2));
}

TEST_F(StoreTest, GoesOnWithTheOpenFileWhenItsFolderIsRemoved) {
  auto store = OpenOrDie();
  ASSERT_TRUE(Swap(*store, 0, Record(1))->swapped);
  std::filesystem::remove_all(directory_);
  for (Epoch e = 2; e <= 4; ++e) ASSERT_TRUE(Swap(*store, e - 1, Record(e))->swapped) << e;
  EXPECT_EQ(Read(*store), Record(4));
}

TEST_F(StoreTest, IgnoresLeftoverOfCompaction) {
  Fill(3);
  std::ofstream(path_ + ".new") << "half";
  EXPECT_EQ(Read(*OpenOrDie({.compact_bytes = 0})), Record(3));
  auto store = OpenOrDie({.compact_bytes = 0});
  ASSERT_TRUE(Swap(*store, 3, Record(4))->swapped);
  store.reset();
  EXPECT_EQ(Read(*OpenOrDie()), Record(4));
}

TEST_F(StoreTest, FullDiskKeepsOldRecordUntilThereIsRoom) {
  const size_t size = Fill(3)[3];
  const pid_t child = fork();
  if (child == 0) {
    signal(SIGXFSZ, SIG_IGN);
    auto store = EmbeddedStore::Open(path_);
    if (!store.ok()) _exit(2);
    rlimit limit{size + 20, RLIM_INFINITY};  // a part of the record fits; later, nothing fits
    for (int i = 0; i < 3; ++i) {
      setrlimit(RLIMIT_FSIZE, &limit);
      limit.rlim_cur = 20;
      if (Swap(**store, 3, Record(4)).status().code() != absl::StatusCode::kUnavailable) _exit(3);
    }
    limit.rlim_cur = RLIM_INFINITY;
    setrlimit(RLIMIT_FSIZE, &limit);
    if (Read(**store) != Record(3)) _exit(4);
    _exit(Swap(**store, 3, Record(4))->swapped ? 0 : 5);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(Read(*OpenOrDie()), Record(4));
}

// Mounts a small disk that only this process sees. Ends the process with `status` if mounting is
// not allowed.
void MountSmallDisk(const std::string& folder, const char* options, int status) {
  if (unshare(CLONE_NEWNS) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) _exit(status);
  if (mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) _exit(status);
  if (mount("none", folder.c_str(), "tmpfs", 0, options) != 0) _exit(status);
}

TEST_F(StoreTest, ReservesRoomForCommitOnFullDisk) {
  constexpr int kNotAllowed = 77;
  const pid_t child = fork();
  if (child == 0) {
    MountSmallDisk(directory_, "size=256k,mode=700", kNotAllowed);
    auto store = EmbeddedStore::Open(path_);
    if (!store.ok()) _exit(2);
    WorldRecord record = Record(1);
    if (!Swap(**store, 0, record)->swapped) _exit(3);
    const auto next = [&](Epoch epoch) {
      const Epoch expected = record.revision++;
      record.world.epoch = epoch;
      return Swap(**store, expected, record).ok();
    };
    if (!next(1)) _exit(4);  // reserves epoch 2
    std::ofstream full(directory_ + "/full");
    while (full << std::string(1024, 'x') << std::flush) {
    }
    if (!next(2)) _exit(5);  // commits it
    // Later changes fit until the room is used up. Then a reservation fails, and never a commit.
    for (Epoch epoch = 2; epoch < 5000; ++epoch) {
      const WorldRecord before = record;
      if (!next(epoch)) {
        record = before;
        if (epoch < 20) _exit(6);
        full.close();
        std::filesystem::remove(directory_ + "/full");
        _exit(next(epoch) && next(epoch + 1) ? 0 : 7);
      }
      if (!next(epoch + 1)) _exit(8);
    }
    _exit(9);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  if (WIFEXITED(status) && WEXITSTATUS(status) == kNotAllowed) {
    GTEST_SKIP() << "this process may not mount: nothing was tested";
  }
  EXPECT_EQ(status, 0) << (WIFEXITED(status) ? WEXITSTATUS(status) : -1);
}

// The child commits epochs and reports each committed epoch; SIGKILL ends the child at any point.
TEST_F(StoreTest, AnsweredWritesSurviveSigkill) {
  Epoch expected = 0;
  for (int round = 0; round < 10; ++round) {
    int pipe_fds[2];
    ASSERT_EQ(pipe(pipe_fds), 0);
    const pid_t child = fork();
    if (child == 0) {
      auto store = EmbeddedStore::Open(path_, {.compact_bytes = 2000});
      if (!store.ok()) _exit(2);
      for (Epoch e = expected;; ++e) {
        auto outcome = Swap(**store, e, Record(e + 1));
        if (!outcome.ok() || !outcome->swapped) _exit(3);
        const Epoch answered = e + 1;
        if (write(pipe_fds[1], &answered, sizeof answered) != sizeof answered) _exit(4);
      }
    }
    close(pipe_fds[1]);
    Epoch answered = 0;
    for (int i = 0; i < 15 + round; ++i) {
      ASSERT_EQ(read(pipe_fds[0], &answered, sizeof answered), ssize_t{sizeof answered});
    }
    kill(child, SIGKILL);
    while (read(pipe_fds[0], &answered, sizeof answered) == ssize_t{sizeof answered}) {
    }
    close(pipe_fds[0]);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status)) << status;
    auto store = OpenOrDie();
    const Epoch stands = Read(*store)->world.epoch;
    EXPECT_GE(stands, answered);
    EXPECT_LE(stands, answered + 1);
    EXPECT_EQ(Read(*store), Record(stands));
    expected = stands;
  }
}

}  // namespace
}  // namespace rewire::control
