// Compares the bytes of a stream connection's handshake with vectors made by Python's hashlib.
#include "reconfig/state/stream/handshake.h"

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
            "52574732020002000500000000000000010000000200000008070605040302011817161514131211"
            "404142434445464748494a4b4c4d4e4f505152535455565758595a5b5c5d5e5f");
  EXPECT_EQ(DecodeStreamHello(hello), Sample());
  const Key key = ConnectionKey(Counting(), Sample());
  EXPECT_EQ(HexOfKey(key), "072512ba8dec5ac2bd65977a15a058c27e429ed3e517af5a565e80894af06870");
  Nonce challenge;
  std::iota(challenge.begin(), challenge.end(), static_cast<unsigned char>(0x80));
  EXPECT_EQ(Hex(EncodeStreamChallenge(
                {true, challenge, ProofOf(Side::kListening, key, hello, challenge)})),
            "5257433201000000808182838485868788898a8b8c8d8e8f909192939495969798999a9b9c9d9e9f"
            "b46e77cd6dae943aec0ec06ed8181887daa258bdb266e969361b3c12443b8aef");
  EXPECT_EQ(Hex(EncodeStreamProof(ProofOf(Side::kConnecting, key, hello, challenge))),
            "5257503200000000ca1c92d03e422cf3c68653a2ebf1eaf3428d99ca85b2f31993dbdfc6fbe16cae");
}

TEST(StreamHandshakeTest, RefusesOtherVersionsPurposesAndSizes) {
  const std::string hello = EncodeStreamHello(Sample());
  for (const size_t place : {size_t{0}, size_t{4}, size_t{7}}) {
    std::string bad = hello;
    bad[place] = static_cast<char>(bad[place] ^ 0x40);
    EXPECT_FALSE(DecodeStreamHello(bad)) << place;
  }
  EXPECT_FALSE(DecodeStreamHello(hello + "x"));
  EXPECT_FALSE(DecodeStreamHello(std::string_view(hello).substr(1)));
  std::string challenge = EncodeStreamChallenge({});
  EXPECT_EQ(DecodeStreamChallenge(challenge), StreamChallenge{});
  challenge[4] = 3;
  EXPECT_FALSE(DecodeStreamChallenge(challenge));
  std::string proof = EncodeStreamProof({});
  proof[4] = 1;
  EXPECT_FALSE(DecodeStreamProof(proof));
}

}  // namespace
}  // namespace rewire::state
