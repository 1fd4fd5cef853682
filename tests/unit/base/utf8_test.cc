// Valid and invalid UTF-8.
#include "reconfig/base/utf8.h"

#include <gtest/gtest.h>

#include <string>

namespace rewire {
namespace {

TEST(Utf8Test, TakesEachLength) {
  for (const char* good : {"", "layer.0", "\xc2\x80", "\xdf\xbf", "\xe0\xa0\x80", "\xed\x9f\xbf",
                           "\xee\x80\x80", "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf", "a\xc3\xa9z"}) {
    EXPECT_TRUE(IsUtf8(good)) << good;
  }
}

TEST(Utf8Test, RefusesWrongBytes) {
  for (const char* wrong :
       {"\x80", "\xc0\x80", "\xc1\xbf", "\xc3", "\xc3(", "\xe0\x9f\xbf", "\xed\xa0\x80", "\xe2\x82",
        "\xf0\x8f\xbf\xbf", "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xff", "a\xfe"}) {
    EXPECT_FALSE(IsUtf8(wrong)) << wrong;
  }
}

}  // namespace
}  // namespace rewire
