// Keys and proofs, compared with test vectors of Python's hashlib.blake2b.
#include "reconfig/auth/key.h"

#include <gtest/gtest.h>

#include <numeric>

namespace rewire {
namespace {

// Returns the key with the bytes 0, 1, 2 ... 31.
Key Counting() {
  Key key;
  std::iota(key.bytes.begin(), key.bytes.end(), static_cast<unsigned char>(0));
  return key;
}

Nonce CountingFrom32() {
  Nonce nonce;
  std::iota(nonce.begin(), nonce.end(), static_cast<unsigned char>(32));
  return nonce;
}

TEST(KeyTest, MatchesDerivationVector) {
  EXPECT_EQ(HexOfKey(DeriveKey(Counting(), "label", "context")),
            "33243bac5a0edd4db90a789a154b2ba6d1d9c36df417b2c001a25d7512fad98c");
}

TEST(KeyTest, EachLabelContextAndKeyGivesAnotherKey) {
  const Key base = DeriveKey(Counting(), "ab", "c");
  // The position of the label's end is part of the input.
  EXPECT_NE(base, DeriveKey(Counting(), "a", "bc"));
  EXPECT_NE(base, DeriveKey(Counting(), "ab", "d"));
  EXPECT_NE(base, DeriveKey(DeriveKey(Counting(), "ab", "c"), "ab", "c"));
  EXPECT_NE(base, Counting());
}

TEST(KeyTest, RandomKeysDiffer) { EXPECT_NE(RandomKey(), RandomKey()); }

TEST(KeyTest, HexRoundTrips) {
  EXPECT_EQ(KeyOfHex(HexOfKey(Counting())), Counting());
  const auto half = KeyOfHex("000102030405060708090A0b0c0d0e0f");  // 128 bits
  ASSERT_TRUE(half.has_value());
  EXPECT_EQ(HexOfKey(*half), "000102030405060708090a0b0c0d0e0f" + std::string(32, '0'));
}

TEST(KeyTest, RejectsShortLongZeroAndForeignText) {
  for (const std::string& text :
       {std::string(), std::string(31, '1'), std::string(65, '1'), std::string(32, '0'),
        std::string(31, '1') + "g", std::string(31, '1') + " "}) {
    EXPECT_FALSE(KeyOfHex(text).has_value()) << text;
  }
}

TEST(ProofTest, MatchesTestVector) {
  EXPECT_EQ(HexOfKey({ProofOf(Side::kConnecting, Counting(), "hello", CountingFrom32())}),
            "902334d9eeb5e562ef383f6e2321a8f947a9ebad51ad27e32e4d98ba75ee2dab");
  EXPECT_EQ(HexOfKey({ProofOf(Side::kListening, Counting(), "hello", CountingFrom32())}),
            "b3f5a04b8b159f3dbc8a8bc66925085e295de00d5a627111fcf024cccc1aeeda");
}

TEST(ProofTest, DiffersWithSideKeyHelloAndNonce) {
  const Code proof = ProofOf(Side::kConnecting, Counting(), "hello", CountingFrom32());
  Nonce other = CountingFrom32();
  other[31] ^= 1;
  EXPECT_NE(proof, ProofOf(Side::kListening, Counting(), "hello", CountingFrom32()));
  EXPECT_NE(proof, ProofOf(Side::kConnecting, RandomKey(), "hello", CountingFrom32()));
  EXPECT_NE(proof, ProofOf(Side::kConnecting, Counting(), "hellp", CountingFrom32()));
  EXPECT_NE(proof, ProofOf(Side::kConnecting, Counting(), "hello", other));
}

TEST(ProofTest, SameCodeComparesWholeCode) {
  const Code code = ProofOf(Side::kConnecting, Counting(), "hello", CountingFrom32());
  std::string bytes(ViewOf(code));
  EXPECT_TRUE(SameCode(code, bytes));
  EXPECT_FALSE(SameCode(code, std::string_view(bytes).substr(1)));
  EXPECT_FALSE(SameCode(code, ""));
  for (const size_t place : {0, 15, 31}) {
    bytes[place] = static_cast<char>(bytes[place] ^ 0x80);
    EXPECT_FALSE(SameCode(code, bytes));
    bytes[place] = static_cast<char>(bytes[place] ^ 0x80);
  }
}

}  // namespace
}  // namespace rewire
