// The bytes of messages, and malformed bytes.
#include "reconfig/elastic/protocol/codec.h"

#include <gtest/gtest.h>

#include <set>

#include "reconfig/base/bytes.h"
#include "tests/unit/elastic/protocol/sample_messages.h"

namespace rewire::elastic {
namespace {

std::string Frame(const Message& m) {
  absl::StatusOr<std::string> bytes = Encode(m);
  EXPECT_TRUE(bytes.ok()) << bytes.status();
  return bytes.value_or("");
}

TEST(CodecTest, EveryTypeHasASample) {
  std::set<size_t> types;
  for (const Message& m : SampleMessages()) types.insert(m.index());
  EXPECT_EQ(types.size(), std::variant_size_v<Message>);
}

TEST(CodecTest, DecodesWhatWasEncoded) {
  for (const Message& m : SampleMessages()) {
    const std::string frame = Frame(m);
    const absl::StatusOr<Message> back = Decode(frame);
    ASSERT_TRUE(back.ok()) << MessageName(m) << ": " << back.status();
    EXPECT_EQ(back->index(), m.index());
    EXPECT_EQ(Frame(*back), frame) << MessageName(m);
  }
}

TEST(CodecTest, FieldsSurvive) {
  const auto samples = SampleMessages();
  const auto commit = std::get<Commit>(*Decode(Frame(samples[20])));
  EXPECT_EQ(commit.record, std::get<Commit>(samples[20]).record);
  const auto hello = std::get<Hello>(*Decode(Frame(samples[0])));
  EXPECT_EQ(hello.data_address, "127.0.0.1:40001");
  EXPECT_TRUE(hello.broken);
  EXPECT_EQ(hello.epoch, 6u);
}

// The numbers and bytes of docs/protocol.md: a change breaks agents and members of different
// versions.
TEST(CodecTest, LayoutIsAsDocumented) {
  EXPECT_EQ(Frame(ReclaimNotice{0x0102}), std::string("\x08\0\0\0\x0d\0\x0c\0\x02\x01\0\0", 12));
  EXPECT_EQ(Frame(Refused{"no"}), std::string("\x0a\0\0\0\x0d\0\x0f\0\x02\0\0\0no", 14));
  EXPECT_EQ(Frame(Finished{}), std::string("\x04\0\0\0\x0d\0\x0d\0", 8));
}

TEST(CodecTest, RejectsEveryTruncation) {
  for (const Message& m : SampleMessages()) {
    const std::string frame = Frame(m);
    for (size_t n = 0; n < frame.size(); ++n) {
      EXPECT_FALSE(Decode(frame.substr(0, n)).ok()) << MessageName(m) << " cut to " << n;
      // The frame is also cut with a length field that agrees.
      if (n < 8) continue;
      ByteWriter length;
      length.Put(static_cast<uint32_t>(n - 4));
      EXPECT_FALSE(Decode(length.bytes() + frame.substr(4, n - 4)).ok()) << MessageName(m);
    }
    ByteWriter longer;
    longer.Put(static_cast<uint32_t>(frame.size() - 3));
    EXPECT_FALSE(Decode(longer.bytes() + frame.substr(4) + "x").ok()) << MessageName(m);
  }
}

TEST(CodecTest, EveryCorruptByteGivesAnErrorOrAMessageOfThatFrame) {
  for (const Message& m : SampleMessages()) {
    const std::string frame = Frame(m);
    for (size_t at = 0; at < frame.size(); ++at) {
      for (const int bits : {0x01, 0x80, 0xff}) {
        std::string bad = frame;
        bad[at] = static_cast<char>(bad[at] ^ bits);
        const absl::StatusOr<Message> out = Decode(bad);
        if (at < 6) {
          EXPECT_FALSE(out.ok()) << MessageName(m) << " byte " << at;
        } else if (out.ok()) {
          EXPECT_EQ(Frame(*out), bad) << MessageName(m) << " byte " << at;
        } else {
          EXPECT_FALSE(out.status().message().empty());
        }
      }
    }
  }
}

TEST(CodecTest, ErrorsNameTheFault) {
  const std::string frame = Frame(ReclaimNotice{1});
  std::string version = frame;
  version[4] = 14;
  EXPECT_EQ(Decode(version).status().message(), "protocol version 14: must be 13");
  std::string type = frame;
  type[6] = 99;
  EXPECT_EQ(Decode(type).status().message(), "unknown message type 99");
  std::string flag = Frame(Decide{1, 1, true});
  flag.back() = 2;
  EXPECT_EQ(Decode(flag).status().message(), "malformed Decide message: a flag must be 0 or 1");
  EXPECT_NE(Decode(std::string("\xff\xff\xff\xff\x03\0\x0c\0", 8))
                .status()
                .message()
                .find("malformed frame: length="),
            std::string::npos);
}

TEST(CodecTest, RanksAreAscendingAndOfTheCommunicator) {
  const auto decodes = [](std::vector<uint32_t> held) {
    CommunicatorCreated created;
    created.ranks = 4;
    created.held = std::move(held);
    return Decode(Frame(created)).ok();
  };
  EXPECT_TRUE(decodes({3}));
  EXPECT_TRUE(decodes({0, 1, 2, 3}));
  for (const auto& held : std::vector<std::vector<uint32_t>>{{}, {4}, {1, 1}, {2, 1}}) {
    EXPECT_FALSE(decodes(held)) << held.size();
  }
}

TEST(CodecTest, HugeCountAllocatesNothing) {
  ByteWriter frame;
  frame.Put(uint32_t{4 + 8 + 4});
  frame.Put(kProtocolVersion);
  frame.Put(uint16_t{23});  // Lost
  frame.Put(uint64_t{1});
  frame.Put(uint32_t{0xffffffff});
  EXPECT_EQ(Decode(frame.bytes()).status().message(),
            "malformed Lost message: the message ends too early, or a count is too large");
}

TEST(CodecTest, SenderRejectsMessageLargerThanFrame) {
  EXPECT_FALSE(Encode(Lost{1, std::vector<MemberId>(kMaxFrameBytes / 4)}).ok());
  EXPECT_TRUE(Encode(Lost{1, std::vector<MemberId>(kMaxFrameBytes / 4 - 6)}).ok());
}

TEST(CodecTest, TruncatesLongReason) {
  const auto m = std::get<Refused>(*Decode(Frame(Refused{std::string(10000, 'x')})));
  EXPECT_EQ(m.reason.size(), 4096u);
}

}  // namespace
}  // namespace rewire::elastic
