#include "reconfig/base/bytes.h"

#include <gtest/gtest.h>

namespace rewire {
namespace {

enum class Colour : uint8_t { kRed = 7 };

TEST(Bytes, RoundTripIsLittleEndian) {
  ByteWriter w;
  w.Put(uint32_t{0x01020304});
  w.Put(int64_t{-2});
  w.Put(Colour::kRed);
  w.PutString("slot");
  EXPECT_EQ(w.bytes().substr(0, 4), std::string("\x04\x03\x02\x01", 4));

  ByteReader r(w.bytes());
  EXPECT_EQ(r.Get<uint32_t>(), 0x01020304u);
  EXPECT_EQ(r.Get<int64_t>(), -2);
  EXPECT_EQ(r.Get<Colour>(), Colour::kRed);
  EXPECT_EQ(r.GetString(), "slot");
  EXPECT_TRUE(r.Finished());
}

TEST(Bytes, EveryTruncationFailsAndStaysFailed) {
  ByteWriter w;
  w.Put(uint32_t{5});
  w.PutString("hello");
  for (size_t n = 0; n < w.bytes().size(); ++n) {
    ByteReader r(std::string_view(w.bytes()).substr(0, n));
    r.Get<uint32_t>();
    r.GetString();
    EXPECT_FALSE(r.ok()) << n;
    EXPECT_EQ(r.Get<uint64_t>(), 0u);
    EXPECT_FALSE(r.Finished());
  }
}

TEST(Bytes, LeftoverIsNotFinished) {
  ByteReader r(std::string_view("ab"));
  r.Get<uint8_t>();
  EXPECT_TRUE(r.ok());
  EXPECT_FALSE(r.Finished());
}

TEST(Bytes, CountThatCannotFollowFails) {
  ByteWriter w;
  w.Put(uint32_t{0xffffffff});
  w.Put(uint64_t{0});
  ByteReader r(w.bytes());
  EXPECT_EQ(r.GetCount(8), 0u);
  EXPECT_FALSE(r.ok());

  ByteWriter good;
  good.Put(uint32_t{1});
  good.Put(uint64_t{9});
  ByteReader g(good.bytes());
  EXPECT_EQ(g.GetCount(8), 1u);
  EXPECT_EQ(g.Get<uint64_t>(), 9u);
  EXPECT_TRUE(g.Finished());
}

}  // namespace
}  // namespace rewire
