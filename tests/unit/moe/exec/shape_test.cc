#include "reconfig/moe/exec/shape.h"

#include <gmock/gmock.h>

namespace rewire::moe {
namespace {

using testing::HasSubstr;

Shape Good() {
  Shape shape;
  shape.experts = 16;
  shape.weight_bytes = 1000;
  shape.token_bytes = 10;
  shape.rows = 100;
  return shape;
}

TEST(ShapeTest, ErrorsNameFieldAndRange) {
  EXPECT_TRUE(Check(Good()).ok());
  const auto why = [](auto change) {
    Shape shape = Good();
    change(&shape);
    return std::string(Check(shape).message());
  };
  EXPECT_EQ(why([](Shape* s) { s->experts = 0; }), "experts=0: must be 1 to 256");
  EXPECT_EQ(why([](Shape* s) { s->slots = 17; }), "slots=17: must be 1 to 16");
  EXPECT_EQ(why([](Shape* s) { s->dynamic = 17; }), "dynamic=17: must be 1 to 16");
  EXPECT_THAT(why([](Shape* s) { s->weight_bytes = 0; }), HasSubstr("weight_bytes=0"));
  EXPECT_THAT(why([](Shape* s) { s->token_bytes = 0; }), HasSubstr("token_bytes=0"));
  EXPECT_THAT(why([](Shape* s) { s->rows = 0; }), HasSubstr("rows=0"));
  EXPECT_THAT(why([](Shape* s) { s->token_bytes = uint64_t{1} << 39; }),
              HasSubstr("token_bytes=549755813888: must be 1 to "));
}

TEST(NodeGroupTest, ErrorsNameFieldAndRange) {
  EXPECT_TRUE(Check(NodeGroup{"job-7_a", 1, 2}).ok());
  EXPECT_THAT(Check(NodeGroup{"a", 0, 1}).message(), HasSubstr("ranks=1: must be 2 to 16"));
  EXPECT_THAT(Check(NodeGroup{"a", 2, 2}).message(), HasSubstr("rank=2: must be 0 to 1"));
  EXPECT_THAT(Check(NodeGroup{"", 0, 2}).message(), HasSubstr("length of the group's name=0"));
  EXPECT_THAT(Check(NodeGroup{"../x", 0, 2}).message(), HasSubstr("\"../x\""));
}

TEST(FingerprintTest, EveryMemberCounts) {
  const uint64_t good = Fingerprint(Good(), 2);
  EXPECT_NE(good, Fingerprint(Good(), 4));
  for (const auto change : {+[](Shape* s) { ++s->experts; }, +[](Shape* s) { ++s->weight_bytes; },
                            +[](Shape* s) { ++s->grad_bytes; }, +[](Shape* s) { ++s->token_bytes; },
                            +[](Shape* s) { ++s->slots; }, +[](Shape* s) { ++s->rows; },
                            +[](Shape* s) { ++s->dynamic; }, +[](Shape* s) { ++s->gate_percent; },
                            +[](Shape* s) { ++s->least; }}) {
    Shape shape = Good();
    change(&shape);
    EXPECT_NE(good, Fingerprint(shape, 2));
  }
}

}  // namespace
}  // namespace rewire::moe
