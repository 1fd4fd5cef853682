#include "reconfig/moe/plan/recording.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>

namespace rewire::moe {
namespace {

using ::testing::HasSubstr;

const RecordedShape kShape{{2, 2}, 3};

Recorded Sample(uint64_t micro_batch, uint32_t layer) {
  Recorded r{micro_batch, layer, Counts(4, 3)};
  for (uint32_t i = 0; i < 12; ++i) r.counts.tokens()[i] = i * 1000 + layer;
  r.counts.tokens()[5] = UINT32_MAX;
  return r;
}

class RecordingTest : public ::testing::Test {
 protected:
  RecordingTest() : path_(::testing::TempDir() + "/recording_test." + std::to_string(getpid())) {
    std::filesystem::remove(path_);
  }
  ~RecordingTest() override { std::filesystem::remove(path_); }

  // Returns the bytes of a recording: a shape and two records.
  std::string Bytes() {
    return EncodeShape(kShape) + EncodeRecord(Sample(7, 1)) + EncodeRecord(Sample(UINT64_MAX, 2));
  }
  // Returns the number of records that could be read, and why no more could be read.
  std::pair<int, absl::Status> ReadAll(const std::string& bytes) {
    std::ofstream(path_, std::ios::binary) << bytes;
    absl::StatusOr<CountReader> reader = CountReader::Open(path_);
    if (!reader.ok()) return {-1, reader.status()};
    for (int records = 0;; ++records) {
      auto next = reader->Next();
      if (!next.ok() || !next->has_value()) return {records, next.status()};
    }
  }

  const std::string path_;
};

TEST_F(RecordingTest, RoundTrips) {
  absl::StatusOr<CountWriter> writer = CountWriter::Create(path_, kShape);
  ASSERT_TRUE(writer.ok()) << writer.status();
  EXPECT_EQ(writer->Add(Sample(7, 1)), absl::OkStatus());
  EXPECT_EQ(writer->Add(Sample(UINT64_MAX, 2)), absl::OkStatus());
  std::ifstream file(path_, std::ios::binary);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(file), {}), Bytes());

  absl::StatusOr<CountReader> reader = CountReader::Open(path_);
  ASSERT_TRUE(reader.ok()) << reader.status();
  EXPECT_EQ(reader->shape(), kShape);
  EXPECT_EQ(**reader->Next(), Sample(7, 1));
  EXPECT_EQ(**reader->Next(), Sample(UINT64_MAX, 2));
  EXPECT_FALSE(reader->Next()->has_value());
  EXPECT_FALSE(reader->Next()->has_value());
}

TEST_F(RecordingTest, BytesAreAsDocumented) {
  const std::string bytes = Bytes();
  EXPECT_EQ(bytes.substr(0, 16), std::string("RWCOUNT\x01\r\n\x1a\n\0\0\0\0", 16));
  EXPECT_EQ(bytes.substr(16, 12), std::string("\2\0\0\0\2\0\0\0\3\0\0\0", 12));
  EXPECT_EQ(bytes.substr(32, 16), std::string("\7\0\0\0\0\0\0\0\1\0\0\0\1\0\0\0", 16));
  EXPECT_EQ(bytes.size(), 32U + 2 * (8 + 4 + 12 * 4 + 8));
  EXPECT_EQ(RecordBytes(kShape), 68U);
}

TEST_F(RecordingTest, TruncatedFileGivesWholeRecordsAndThenAnError) {
  const std::string bytes = Bytes();
  for (size_t size = 0; size < bytes.size(); ++size) {
    const auto [records, status] = ReadAll(bytes.substr(0, size));
    if (size < kShapeBytes) {
      EXPECT_EQ(status.message(), "recording " + path_ + ": byte " + std::to_string(size) +
                                      ": the file ends within its header");
      continue;
    }
    const size_t whole = (size - kShapeBytes) / 68, rest = (size - kShapeBytes) % 68;
    EXPECT_EQ(records, static_cast<int>(whole));
    const std::string wanted = "recording " + path_ + ": byte " +
                               std::to_string(kShapeBytes + whole * 68) + ": the file ends after " +
                               std::to_string(rest) +
                               " bytes of a record of 68; the records before are complete";
    EXPECT_EQ(status.message(), rest == 0 ? "" : wanted);
  }
}

TEST_F(RecordingTest, DetectsEveryFlippedBit) {
  const std::string bytes = Bytes();
  for (size_t at = 0; at < bytes.size(); ++at) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string damaged = bytes;
      damaged[at] = static_cast<char>(damaged[at] ^ 1 << bit);
      const auto [records, status] = ReadAll(damaged);
      const bool in_header = at < kShapeBytes;
      const int before = in_header ? -1 : static_cast<int>((at - kShapeBytes) / 68);
      EXPECT_EQ(records, before) << at;
      EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
      const size_t offset = in_header ? 0 : kShapeBytes + static_cast<size_t>(before) * 68;
      EXPECT_THAT(std::string(status.message()),
                  HasSubstr(path_ + ": byte " + std::to_string(offset) + ": " +
                            (at < 16     ? "not a recording of this version"
                             : in_header ? "the checksum of the header is wrong"
                                         : "the hash of a record is wrong")));
    }
  }
}

TEST_F(RecordingTest, RejectsInvalidShape) {
  for (const RecordedShape& shape :
       {RecordedShape{{0, 8}, 16}, RecordedShape{{1, 0}, 16}, RecordedShape{{1, 8}, 0},
        RecordedShape{{1, 1 << 12}, 1 << 13}, RecordedShape{{1U << 31, 2}, UINT32_MAX}}) {
    EXPECT_FALSE(Check(shape).ok());
    EXPECT_THAT(std::string(CountWriter::Create(path_, shape).status().message()),
                HasSubstr("at most 16777216 pairs of device and expert"));
    // A reader also rejects the shape, so it allocates no memory for such a shape.
    const auto [records, status] = ReadAll(EncodeShape(shape));
    EXPECT_EQ(records, -1);
    EXPECT_THAT(std::string(status.message()), HasSubstr("byte 0: "));
    std::filesystem::remove(path_);
  }
  EXPECT_TRUE(Check({{1, 1 << 12}, 1 << 12}).ok());
}

TEST_F(RecordingTest, ErrorsNameFileAndByte) {
  EXPECT_EQ(CountReader::Open(path_).status().message(),
            "recording " + path_ + ": open: No such file or directory");
  EXPECT_THAT(std::string(CountReader::Open("/").status().message()),
              HasSubstr("recording /: read: Is a directory"));
  absl::StatusOr<CountWriter> writer = CountWriter::Create(path_, kShape);
  ASSERT_TRUE(writer.ok());
  EXPECT_EQ(CountWriter::Create(path_, kShape).status().message(),
            "recording " + path_ + ": create: File exists");
  EXPECT_EQ(writer->Add({1, 1, Counts(4, 2)}).message(),
            "recording " + path_ + ": counts of 4 devices and 2 experts: must be 4 and 3");
}

TEST_F(RecordingTest, FullDiskKeepsWrittenRecords) {
  absl::StatusOr<CountWriter> writer = CountWriter::Create(path_, kShape);
  ASSERT_TRUE(writer.ok());
  ASSERT_TRUE(writer->Add(Sample(7, 1)).ok());
  struct rlimit before {};
  getrlimit(RLIMIT_FSIZE, &before);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const struct rlimit full { kShapeBytes + 68 + 30, before.rlim_max };
  setrlimit(RLIMIT_FSIZE, &full);
  const absl::Status status = writer->Add(Sample(8, 1));
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(status.message(), "recording " + path_ + ": write: File too large");
  EXPECT_EQ(std::filesystem::file_size(path_), kShapeBytes + 68);
  EXPECT_EQ(writer->Add(Sample(UINT64_MAX, 2)), absl::OkStatus());
  std::ifstream file(path_, std::ios::binary);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(file), {}), Bytes());
}

}  // namespace
}  // namespace rewire::moe
