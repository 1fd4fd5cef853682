// librewire-dlopen.so in separate processes: which file a dlopen of an NCCL opens.
#include <fstream>

#include "tests/process/preload/preload_fixture.h"

namespace rewire::shim {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class RedirectTest : public PreloadTest {
 protected:
  void SetUp() override {
    if (*REWIRE_RUNTIME != 0) GTEST_SKIP() << "the sanitizer's own dlopen hides the caller";
  }
  const std::string both_ = Preload(REWIRE_PRELOAD ":" REWIRE_DLOPEN);
};

TEST_F(RedirectTest, NcclByItsPathIsTheShimsRealOne) {
  const std::string from = probe_ + "from=" REWIRE_REAL " where version init";
  const Ran without = RunCommand(preload_ + "REWIRE_LOG=info", from);
  EXPECT_THAT(without.output, HasSubstr("init 0 280028002800280"));  // the shim is bypassed
  const Ran with = RunCommand(both_ + "REWIRE_LOG=info", from);
  EXPECT_THAT(with.output, HasSubstr("where " REWIRE_PRELOAD));
  EXPECT_THAT(with.output, HasSubstr("version 0 23099"));
  EXPECT_THAT(with.output, HasSubstr("init 0 5245574952450001"));
  EXPECT_THAT(with.output, HasSubstr("NCCL 23099 at " + fs::canonical(REWIRE_REAL).string()));
  EXPECT_THAT(with.output, Not(HasSubstr("two NCCL libraries")));
  // The setting names another real library.
  EXPECT_THAT(RunCommand(both_ + "REWIRE_NCCL_LIBRARY=" REWIRE_OLD, from).output,
              HasSubstr("version 0 21903"));
}

TEST_F(RedirectTest, NcclWithoutAVersionIsTheShim) {
  const Ran ran = RunCommand(both_ + noop_, probe_ + "from=libnccl.so where init");
  EXPECT_THAT(ran.output, HasSubstr("where " REWIRE_PRELOAD));
  EXPECT_THAT(ran.output, HasSubstr("init 0 5245574952450001"));
}

TEST_F(RedirectTest, NeedsNoPreloadedShim) {
  const Ran ran = RunCommand(Preload(REWIRE_DLOPEN) + noop_, probe_ + "where init");
  EXPECT_THAT(ran.output, HasSubstr("where " REWIRE_PRELOAD));
  EXPECT_THAT(ran.output, HasSubstr("init 0 5245574952450001"));
}

TEST_F(RedirectTest, OtherLibrariesAreFoundByTheirCallersRunpath) {
  const std::string program = REWIRE_LINKED " libpreload_neighbour.so";
  EXPECT_THAT(RunCommand(preload_, program).output, HasSubstr("neighbour 1"));
  EXPECT_THAT(RunCommand(both_, program).output, HasSubstr("neighbour 1"));
  EXPECT_THAT(RunCommand(both_, probe_ + "libpreload_neighbour.so").output, HasSubstr("loaded 0"));
}

TEST_F(RedirectTest, AMissingFileIsRefusedByTheLoader) {
  const Ran ran = RunCommand(both_ + noop_, probe_ + "from=/nowhere/libnccl.so.2");
  EXPECT_THAT(ran.output, HasSubstr("opened 0"));
  EXPECT_THAT(ran.output, HasSubstr("/nowhere/libnccl.so.2: cannot open shared object file"));
}

TEST_F(RedirectTest, AFileThatIsNoLibraryIsRefusedByTheLoader) {
  const std::string text = temp_ + "/libnccl.so.2";
  std::ofstream(text) << "not a library";
  for (const std::string& more : {std::string(), noop_}) {
    const Ran ran = RunCommand(both_ + more, probe_ + "from=" + text);
    EXPECT_THAT(ran.output, HasSubstr("opened 0"));
    EXPECT_THAT(ran.output, HasSubstr(text + ": file too short"));
  }
}

// The file has an NCCL's name and none of its functions.
TEST_F(RedirectTest, ALibraryThatIsNoNcclIsOpenedItself) {
  const std::string other = temp_ + "/libnccl.so.2";
  fs::copy_file(REWIRE_BYSTANDER, other);
  const Ran ran = RunCommand(both_ + noop_, probe_ + "from=" + other + " version");
  EXPECT_THAT(ran.output, HasSubstr("opened 1"));
  EXPECT_THAT(ran.output, HasSubstr("undefined symbol: ncclGetVersion"));
}

// The shim goes on with the first, and does not hide it.
TEST_F(RedirectTest, ASecondNcclIsWarnedOf) {
  const std::string steps = probe_ + "from=" REWIRE_REAL " init from=" REWIRE_NEWER_NCCL " init";
  const Ran late = RunCommand(both_, steps);
  EXPECT_EQ(2u, Times(late.output, "init 0 5245574952450001")) << late.output;
  EXPECT_EQ(1u, Times(late.output, "two NCCL libraries in one process")) << late.output;
  const Ran early =
      RunCommand(both_, probe_ + "from=" REWIRE_REAL " from=" REWIRE_NEWER_NCCL " init");
  EXPECT_EQ(1u, Times(early.output, "two NCCL libraries in one process")) << early.output;
}

TEST_F(RedirectTest, DisabledTheCallIsUnchanged) {
  const std::string off = both_ + noop_ + "REWIRE_DISABLE=1 ";
  const Ran real = RunCommand(off, probe_ + "from=" REWIRE_REAL " where init");
  EXPECT_THAT(real.output, HasSubstr("where " REWIRE_REAL));
  EXPECT_THAT(real.output, HasSubstr("init 0 280028002800280"));
  EXPECT_THAT(RunCommand(off, probe_ + "from=/nowhere/libnccl.so.2").output, HasSubstr("opened 0"));
}

TEST_F(RedirectTest, AnotherMajorVersionIsNotTheShim) {
  EXPECT_THAT(RunCommand(both_ + noop_, probe_ + "from=libnccl.so.3").output,
              HasSubstr("opened 0"));
  EXPECT_THAT(RunCommand(both_ + noop_, probe_ + "from=libnccl.so.2.21.5 where").output,
              HasSubstr("where " REWIRE_PRELOAD));
}

}  // namespace
}  // namespace rewire::shim
