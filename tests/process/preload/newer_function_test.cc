// Programs that are linked to a function of an NCCL that is newer than Rewire, which does not
// export the function.
#include "tests/process/preload/preload_fixture.h"

namespace rewire::shim {
namespace {

using ::testing::HasSubstr;

class NewerFunctionTest : public PreloadTest {
 protected:
  // The call reaches the real library, and all known functions are still the shim's, also for the
  // real library.
  static void ExpectCalled(const Ran& ran) {
    EXPECT_EQ(0, ran.status) << ran.output;
    EXPECT_THAT(ran.output, HasSubstr("next year 32"));
    EXPECT_THAT(ran.output, HasSubstr("ncclAllReduce in " REWIRE_PRELOAD));
  }
};

TEST_F(NewerFunctionTest, IsCalledInTheRealLibrary) {
  EXPECT_THAT(RunCommand("", REWIRE_NEWER).output, HasSubstr("next year 31"));
  const Ran ran = RunCommand(preload_, REWIRE_NEWER);
  ExpectCalled(ran);
  EXPECT_THAT(ran.output, HasSubstr("must not get a communicator: ncclOfNextYear\n"));
  ExpectCalled(RunCommand(preload_ + "REWIRE_DISABLE=1", REWIRE_NEWER));
}

TEST_F(NewerFunctionTest, IsCalledFromALibraryThatTheProgramOpens) {
  ExpectCalled(RunCommand(preload_, REWIRE_NEWER_OPENER " " REWIRE_NEWER_LIBRARY));
}

// The loader binds before any code of the shim runs, and ends the program.
TEST_F(NewerFunctionTest, BoundAtTheStartNeedsTheRealLibraryPreloadedAfterTheShim) {
  const Ran without = RunCommand(preload_, REWIRE_NEWER_NOW);
  EXPECT_EQ(127, without.status);
  EXPECT_THAT(without.output, HasSubstr("undefined symbol: ncclOfNextYear"));
  ExpectCalled(RunCommand(Preload(REWIRE_PRELOAD ":" REWIRE_NEWER_NCCL), REWIRE_NEWER_NOW));
}

}  // namespace
}  // namespace rewire::shim
