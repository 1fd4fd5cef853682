// The bytes of a stream connection's messages, compared with vectors made by Python's hashlib, and
// the reasons of refusals.
#include "reconfig/state/stream/stream_messages.h"

#include <gtest/gtest.h>

#include <numeric>

namespace rewire::state {
namespace {

std::string Hex(std::string_view bytes) {
  std::string text;
  for (const char c : bytes) {
    char two[3];
    snprintf(two, sizeof two, "%02x", static_cast<unsigned char>(c));
    text += two;
  }
  return text;
}

StreamHello Sample() {
  StreamHello hello{Purpose::kSnapshot, 5, 1, 2, 0x0102030405060708, 0x1112131415161718, {}};
  std::iota(hello.nonce.begin(), hello.nonce.end(), static_cast<unsigned char>(0x40));
  return hello;
}

Key Counting() {
  Key key;
  std::iota(key.bytes.begin(), key.bytes.end(), static_cast<unsigned char>(0));
  return key;
}

TEST(StreamHandshakeTest, MatchesTestVectors) {
  const std::string hello = EncodeStreamHello(Sample());
  EXPECT_EQ(Hex(hello),
            "52574732060002000500000000000000010000000200000008070605040302011817161514131211"
            "404142434445464748494a4b4c4d4e4f505152535455565758595a5b5c5d5e5f");
  EXPECT_EQ(DecodeStreamHello(hello).value(), Sample());
  const Key key = ConnectionKey(Counting(), Sample());
  EXPECT_EQ(HexOfKey(key), "072512ba8dec5ac2bd65977a15a058c27e429ed3e517af5a565e80894af06870");
  Nonce challenge;
  std::iota(challenge.begin(), challenge.end(), static_cast<unsigned char>(0x80));
  EXPECT_EQ(Hex(EncodeStreamChallenge(
                {true, challenge, ProofOf(Side::kListening, key, hello, challenge)})),
            "5257433201000000808182838485868788898a8b8c8d8e8f909192939495969798999a9b9c9d9e9f"
            "b05018fc1e118251460347f5137a0a95d1290c24a2d175f23a6bdef6f9973e1b");
  EXPECT_EQ(Hex(EncodeStreamProof(ProofOf(Side::kConnecting, key, hello, challenge))),
            "525750320000000013df818f474acea31f974637d1c29aab044bcf1a93bc65d4f24cef54e4445122");
}

template <typename T>
std::string Reason(const absl::StatusOr<T>& decoded) {
  EXPECT_EQ(decoded.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(decoded.status().message());
}

TEST(StreamHandshakeTest, RefusesOtherVersionsPurposesAndSizes) {
  const std::string hello = EncodeStreamHello(Sample());
  std::string bad = hello;
  bad[0] = 'X';
  EXPECT_EQ(Reason(DecodeStreamHello(bad)),
            "decode stream hello: magic=0x32475758: must be 0x32475752");
  bad = hello;
  bad[4] = 7;
  EXPECT_EQ(Reason(DecodeStreamHello(bad)), "decode stream hello: version=7: must be 6");
  bad = hello;
  bad[6] = 4;
  EXPECT_EQ(Reason(DecodeStreamHello(bad)), "decode stream hello: purpose=4: must be 1 to 3");
  EXPECT_EQ(Reason(DecodeStreamHello(hello + "x")), "decode stream hello: bytes=73: must be 72");
  EXPECT_EQ(Reason(DecodeStreamHello(std::string_view(hello).substr(1))),
            "decode stream hello: bytes=71: must be 72");
  std::string challenge = EncodeStreamChallenge({});
  EXPECT_EQ(DecodeStreamChallenge(challenge).value(), StreamChallenge{});
  challenge[4] = 3;
  EXPECT_EQ(Reason(DecodeStreamChallenge(challenge)),
            "decode stream challenge: answer=3: must be 1 or 2");
  std::string proof = EncodeStreamProof({});
  proof[4] = 1;
  EXPECT_EQ(Reason(DecodeStreamProof(proof)), "decode stream proof: reserved=1: must be 0");
}

TEST(StreamHandshakeTest, ConnectingSideProvesOnlyAfterTheListeningSide) {
  const ConnectingHandshake mine(Counting(), Sample());
  const Key key = ConnectionKey(Counting(), Sample());
  StreamChallenge challenge{true, RandomNonce(), {}};
  EXPECT_TRUE(absl::IsPermissionDenied(mine.ProofFor(EncodeStreamChallenge(challenge)).status()));
  challenge.proof = ProofOf(Side::kListening, key, mine.hello(), challenge.nonce);
  EXPECT_EQ(mine.ProofFor(EncodeStreamChallenge(challenge)).value(),
            EncodeStreamProof(ProofOf(Side::kConnecting, key, mine.hello(), challenge.nonce)));
  EXPECT_TRUE(absl::IsUnavailable(mine.ProofFor(EncodeStreamChallenge({})).status()));
  EXPECT_TRUE(absl::IsPermissionDenied(mine.ProofFor("no challenge").status()));
}

TEST(FragmentTest, RefusesEveryFlippedBit) {
  FragmentHeader header{3, 5, 6, 7, 8, 9};
  const std::string good = EncodeHeader(header);
  ASSERT_EQ(DecodeHeader(good).value(), header);
  for (size_t bit = 0; bit < 8 * good.size(); ++bit) {
    std::string bad = good;
    bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ (1 << (bit % 8)));
    EXPECT_FALSE(DecodeHeader(bad).ok()) << bit;
  }
}

TEST(FragmentTest, RefusesEmptyTooLargeAndWrappingFragments) {
  const auto reason = [](uint32_t bytes, uint64_t offset) {
    FragmentHeader header;
    header.bytes = bytes;
    header.offset = offset;
    return Reason(DecodeHeader(EncodeHeader(header)));
  };
  EXPECT_EQ(reason(0, 0), "decode fragment header: bytes=0: must be 1 to 1048576");
  EXPECT_EQ(reason(kFragmentBytes + 1, 0),
            "decode fragment header: bytes=1048577: must be 1 to 1048576");
  EXPECT_EQ(reason(2, UINT64_MAX - 1),
            "decode fragment header: offset=18446744073709551614: the fragment ends beyond 2^64");
}

TEST(ReplyTest, RefusesUnknownReplies) {
  std::string reply = EncodeReply(Reply::kRejected);
  EXPECT_EQ(DecodeReply(reply).value(), Reply::kRejected);
  reply[4] = 4;
  EXPECT_EQ(Reason(DecodeReply(reply)), "decode stream reply: reply=4: must be 1 to 3");
}

}  // namespace
}  // namespace rewire::state
