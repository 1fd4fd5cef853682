// The preloaded file in separate processes: how the loader finds it, which NCCL it finds, and its
// error messages.
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <set>
#include <sstream>

#include "shim/preload/library_search.h"
#include "tests/fakes/process/sim_libraries.h"
#include "tests/process/preload/preload_fixture.h"

namespace rewire::shim {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

TEST_F(PreloadTest, NeedsLibcAlone) {
  if (*REWIRE_RUNTIME != 0) GTEST_SKIP() << "with a sanitizer it needs the sanitizer's runtime";
  const Ran ran = RunCommand("", "readelf -dW " REWIRE_PRELOAD);
  ASSERT_EQ(0, ran.status) << ran.output;
  std::istringstream lines(ran.output);
  std::set<std::string> needed;
  for (std::string line; std::getline(lines, line);) {
    const size_t open = line.find('[');
    if (line.find("(NEEDED)") != std::string::npos) {
      needed.insert(line.substr(open + 1, line.find(']') - open - 1));
    }
    EXPECT_THAT(line, Not(HasSubstr("RUNPATH")));
    EXPECT_THAT(line, Not(HasSubstr("RPATH")));
  }
  EXPECT_EQ(1u, needed.count("libc.so.6"));
  for (const std::string& name : needed) {
    EXPECT_TRUE(name == "libc.so.6" || name.rfind("ld-linux", 0) == 0) << name;
  }
  EXPECT_THAT(ran.output, HasSubstr("Library soname: [libnccl.so.2]"));
}

TEST_F(PreloadTest, ExportsWhatTheMapNamesAndNothingElse) {
  const Ran ran = RunCommand("", "nm -D --defined-only " REWIRE_PRELOAD);
  ASSERT_EQ(0, ran.status);
  std::set<std::string> exported;
  std::istringstream words(ran.output);
  for (std::string address, kind, name; words >> address >> kind >> name;) exported.insert(name);
  std::set<std::string> named;
  std::ifstream map(REWIRE_EXPORTS);
  for (std::string word; map >> word;) {
    if (word.back() == ';' && word != "*;" && word != "};") {
      named.insert(word.substr(0, word.size() - 1));
    }
  }
  EXPECT_GE(named.size(), 160u);
  EXPECT_EQ(1u, named.count("pncclAllReduce"));
  EXPECT_EQ(named, exported);
}

TEST_F(PreloadTest, AProgramThatNeverCallsNccl) {
  for (const char* log : {"", "REWIRE_LOG=debug ", "REWIRE_BUILD_MS=soon "}) {
    const Ran ran = RunCommand(preload_ + log, "/bin/sh -c 'exit 3'");
    EXPECT_EQ(3, ran.status);
    EXPECT_EQ("", ran.output);
  }
}

TEST_F(PreloadTest, FoundByItsName) {
  const Ran ran = RunCommand(preload_ + noop_, probe_ + "where version init");
  EXPECT_EQ(0, ran.status);
  EXPECT_THAT(ran.output, HasSubstr("where " REWIRE_PRELOAD));
  EXPECT_THAT(ran.output, HasSubstr("version 0 23099"));
  EXPECT_THAT(ran.output, HasSubstr("init 0 5245574952450001"));
  EXPECT_THAT(ran.output, HasSubstr("destroy 0"));
}

TEST_F(PreloadTest, AlsoUnderItsOtherName) {
  const Ran ran = RunCommand(Preload(Folder(REWIRE_PRELOAD) + "/librewire-preload.so") + noop_,
                             probe_ + "where init");
  EXPECT_THAT(ran.output, HasSubstr("librewire-preload.so"));
  EXPECT_THAT(ran.output, HasSubstr("init 0 5245574952450001"));
}

TEST_F(PreloadTest, FindsNcclByRunpathOfItsUser) {
  const Ran ran = RunCommand(preload_ + "REWIRE_LOG=info", REWIRE_LINKED);
  EXPECT_THAT(ran.output, HasSubstr("version 0 23099"));
  EXPECT_THAT(ran.output, HasSubstr("NCCL 23099 at " + fs::canonical(REWIRE_REAL).string()));
}

TEST_F(PreloadTest, TheRealOneIsFoundOnTheLibraryPathAndIsNeverOurselves) {
  // Drop-in: our library is the first on the path, the real library the second.
  const Ran ran = RunCommand(
      "REWIRE_LOG=info LD_LIBRARY_PATH=" + Folder(REWIRE_PRELOAD) + ":" + Folder(REWIRE_REAL),
      probe_ + "where init");
  EXPECT_THAT(ran.output, HasSubstr("where " + Folder(REWIRE_PRELOAD)));
  EXPECT_THAT(ran.output, HasSubstr("NCCL 23099 at " + fs::canonical(REWIRE_REAL).string()));
  EXPECT_THAT(ran.output, HasSubstr("init 0 5245574952450001"));
}

TEST_F(PreloadTest, OneThatIsLoadedAlreadyIsTheOne) {
  const Ran ran = RunCommand(preload_ + "REWIRE_LOG=info", probe_ + REWIRE_REAL " init");
  EXPECT_THAT(ran.output, HasSubstr("loaded 1"));
  EXPECT_THAT(ran.output, HasSubstr("NCCL 23099 at " + fs::canonical(REWIRE_REAL).string()));
  EXPECT_THAT(ran.output, Not(HasSubstr("two NCCL libraries")));
}

TEST_F(PreloadTest, ASecondCopyIsWarnedOfOnce) {
  const Ran ran = RunCommand(preload_ + noop_, probe_ + "init " REWIRE_REAL " init init");
  EXPECT_EQ(1u, Times(ran.output, "two NCCL libraries in one process")) << ran.output;
}

TEST_F(PreloadTest, NoLibrary) {
  const Ran ran =
      RunCommand(preload_ + "REWIRE_NCCL_LIBRARY=/nowhere/libnccl.so.2", probe_ + "version init");
  EXPECT_EQ(0, ran.status);
  EXPECT_THAT(ran.output, HasSubstr("version 2 0"));  // ncclSystemError
  EXPECT_THAT(ran.output, HasSubstr("init 2 0"));
  EXPECT_THAT(ran.output, HasSubstr("REWIRE_NCCL_LIBRARY=/nowhere/libnccl.so.2: No such file"));
}

TEST_F(PreloadTest, SearchReportsItsPlaces) {
  std::vector<std::string> searched;
  FindNccl(&searched);
  std::string all;
  for (const std::string& place : searched) all += place + "\n";
  EXPECT_THAT(all, HasSubstr("LD_LIBRARY_PATH: "));
  EXPECT_THAT(all, HasSubstr("/etc/ld.so.cache"));
}

TEST_F(PreloadTest, NotNccl) {
  EXPECT_THAT(RunCommand(preload_ + "REWIRE_NCCL_LIBRARY=/bin/true", probe_ + "init").output,
              HasSubstr("init 2 0"));
  const std::string text = temp_ + "/libnccl.so.2";
  std::ofstream(text) << "not a library";
  EXPECT_THAT(RunCommand(preload_ + "REWIRE_NCCL_LIBRARY=" + text, probe_ + "init").output,
              HasSubstr("file too short"));
  EXPECT_THAT(RunCommand(preload_ + "REWIRE_NCCL_LIBRARY=" REWIRE_PRELOAD, probe_ + "init").output,
              HasSubstr("is Rewire itself"));
  // A copy of our library under another inode would call itself.
  fs::copy_file(REWIRE_PRELOAD, temp_ + "/copy.so");
  EXPECT_THAT(
      RunCommand(preload_ + "REWIRE_NCCL_LIBRARY=" + temp_ + "/copy.so", probe_ + "init").output,
      HasSubstr("is a copy of Rewire itself"));
}

TEST_F(PreloadTest, AFunctionThatTheLibraryLacks) {
  const Ran ran =
      RunCommand(preload_ + "REWIRE_NCCL_LIBRARY=" REWIRE_OLD, probe_ + "version revoke free");
  EXPECT_THAT(ran.output, HasSubstr("version 0 21903"));
  EXPECT_THAT(ran.output, HasSubstr("revoke 5"));  // ncclInvalidUsage
  EXPECT_THAT(ran.output,
              HasSubstr("ncclCommRevoke: not in " REWIRE_OLD " version=21903 (needs NCCL 2.28.7)"));
  EXPECT_THAT(ran.output, HasSubstr("free 6"));  // the function has only the ncclX name
}

TEST_F(PreloadTest, AFunctionThatRewireDoesNotKnowIsNamedOnce) {
  const Ran ran =
      RunCommand(preload_ + "REWIRE_NCCL_LIBRARY=" REWIRE_OLD, probe_ + "version version");
  EXPECT_EQ(1u, Times(ran.output, "does not know")) << ran.output;
  EXPECT_THAT(ran.output, HasSubstr(REWIRE_OLD " version=21903 has functions"));
  EXPECT_THAT(ran.output, HasSubstr("a communicator: ncclOfTomorrow\n"));
  EXPECT_THAT(RunCommand(preload_ + noop_, probe_ + "version").output,
              Not(HasSubstr("does not know")));
}

TEST_F(PreloadTest, Disabled) {
  const Ran ran = RunCommand(preload_ + noop_ + "REWIRE_DISABLE=1 REWIRE_BUILD_MS=soon",
                             probe_ + "version init refcount");
  EXPECT_THAT(ran.output, HasSubstr("version 0 23099"));
  EXPECT_THAT(ran.output, HasSubstr("init 0 280028002800280"));  // the real library's own
  EXPECT_THAT(ran.output, HasSubstr("refcount unset"));
}

TEST_F(PreloadTest, WrongSettings) {
  const Ran ran = RunCommand(preload_ + noop_ + "REWIRE_BUILD_MS=soon REWIRE_BUILD_M=7",
                             probe_ + "version init init");
  EXPECT_THAT(ran.output, HasSubstr("version 0 23099"));
  EXPECT_EQ(2u, Times(ran.output, "init 5 0"));  // ncclInvalidUsage
  EXPECT_EQ(1u, Times(ran.output, "REWIRE_BUILD_MS=soon: must be a whole number from 100 to"));
  EXPECT_EQ(1u, Times(ran.output, "REWIRE_BUILD_M: unknown setting; did you mean REWIRE_BUILD_MS"));
}

TEST_F(PreloadTest, AnUnknownSettingIsWarnedOfOnce) {
  const Ran ran = RunCommand(preload_ + noop_ + "REWIRE_SOKET=x", probe_ + "init init");
  EXPECT_EQ(2u, Times(ran.output, "init 0 "));
  EXPECT_EQ(1u, Times(ran.output, "did you mean REWIRE_SOCKET"));
}

TEST_F(PreloadTest, AnAgentWithoutACore) {
  fs::copy_file(REWIRE_PRELOAD, temp_ + "/libnccl.so.2");
  const Ran ran = RunCommand(Preload(temp_ + "/libnccl.so.2") + "REWIRE_SOCKET=/nowhere " + noop_,
                             probe_ + "version init init");
  EXPECT_THAT(ran.output, HasSubstr("version 0 23099"));
  EXPECT_EQ(2u, Times(ran.output, "init 2 0")) << ran.output;
  EXPECT_EQ(1u, Times(ran.output, "the core cannot be loaded"));
  EXPECT_THAT(ran.output, HasSubstr(temp_ + "/librewire.so"));
}

TEST_F(PreloadTest, TheNetPluginIsKept) {
  EXPECT_THAT(RunCommand(preload_ + noop_, probe_ + "version refcount").output,
              HasSubstr("refcount 1"));
  EXPECT_THAT(
      RunCommand(preload_ + noop_ + "NCCL_NET_PLUGIN_REF_COUNT=0", probe_ + "version refcount")
          .output,
      HasSubstr("refcount 0"));
}

// Returns "A=b C=d" of the NCCL_* variables that NCCL's own host code needs without a GPU.
std::string NcclVariables() {
  std::string out;
  for (char** e = environ; *e != nullptr; ++e) {
    if (strncmp(*e, "NCCL_", 5) == 0) out += std::string(*e) + " ";
  }
  return out;
}

std::vector<std::string> SortedLines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  std::sort(lines.begin(), lines.end());
  return lines;
}

// Several processes over the simulated NCCL: the results are equal with and without the shim.
TEST_F(PreloadTest, ResultsAreTheSameAsWithout) {
  const std::string libraries = SimLibraries(REWIRE_SIMGPU);
  const std::string simgpu = NcclVariables() + "LD_LIBRARY_PATH=" + libraries + " ";
  const Ran without = RunCommand(simgpu, REWIRE_RANKS " 3");
  ASSERT_EQ(0, without.status) << without.output;
  ASSERT_EQ(3u, SortedLines(without.output).size());
  const Ran with = RunCommand(preload_ + simgpu + "REWIRE_LOG=info", REWIRE_RANKS " 3");
  EXPECT_EQ(0, with.status);
  std::vector<std::string> results;
  // A build of NCCL's own host code has links in its folder.
  const std::string nccl = fs::canonical(libraries + "/libnccl.so.2").string();
  int found = 0;
  for (const std::string& line : SortedLines(with.output)) {
    if (line.rfind("rank ", 0) == 0) results.push_back(line);
    // The shim was loaded in every process and found the simulated NCCL.
    if (line.find("at " + nccl) != std::string::npos) ++found;
  }
  EXPECT_EQ(SortedLines(without.output), results);
  EXPECT_EQ(3, found) << with.output;
}

TEST_F(PreloadTest, RefusesToStartWithoutTheAgentOrTheMemberThatTheSettingsName) {
  const std::string sim = preload_ + "LD_LIBRARY_PATH=" REWIRE_SIMGPU " ";
  const Ran absent =
      RunCommand(sim + "REWIRE_MEMBER=0 REWIRE_SOCKET=" + temp_ + "/absent", REWIRE_RANKS " 1");
  EXPECT_NE(0, absent.status);
  EXPECT_THAT(absent.output, HasSubstr("connect to the agent: REWIRE_SOCKET=" + temp_ +
                                       "/absent: no agent accepted the connection in time"));
  const Ran nobody = RunCommand(sim + "REWIRE_SOCKET=" + temp_ + "/absent", REWIRE_RANKS " 1");
  EXPECT_NE(0, nobody.status);
  EXPECT_THAT(nobody.output, HasSubstr("REWIRE_MEMBER: not set, but REWIRE_SOCKET is"));
}

// The error has one reason, and no second, false one.
TEST_F(PreloadTest, ACoreThatRefusesIsNotCalledAnotherBuild) {
  const Ran ran = RunCommand(preload_ +
                                 "LD_LIBRARY_PATH=" REWIRE_SIMGPU
                                 " REWIRE_CUDA_LIBRARY=/nowhere/libcuda.so REWIRE_MEMBER=0 "
                                 "REWIRE_SOCKET=" +
                                 temp_ + "/absent",
                             REWIRE_RANKS " 1");
  EXPECT_NE(0, ran.status);
  EXPECT_THAT(ran.output, HasSubstr("/nowhere/libcuda.so"));
  EXPECT_THAT(ran.output, Not(HasSubstr("another build")));
  EXPECT_THAT(ran.output, Not(HasSubstr("mixed builds")));
}

TEST_F(PreloadTest, ProfilingNamesTakeTheSameHandles) {
  const std::string simgpu = "LD_LIBRARY_PATH=" REWIRE_SIMGPU " ";
  const Ran without = RunCommand(simgpu, REWIRE_PROFILED_RANKS " 3");
  ASSERT_EQ(0, without.status) << without.output;
  const Ran with = RunCommand(preload_ + simgpu, REWIRE_PROFILED_RANKS " 3");
  EXPECT_EQ(0, with.status) << with.output;
  EXPECT_EQ(SortedLines(without.output), SortedLines(with.output));
  // As a drop-in, our library is the only one that defines the names.
  const Ran drop_in =
      RunCommand("LD_LIBRARY_PATH=" + Folder(REWIRE_PRELOAD) + ":" REWIRE_SIMGPU " ",
                 REWIRE_PROFILED_RANKS " 3");
  EXPECT_EQ(0, drop_in.status) << drop_in.output;
  EXPECT_EQ(SortedLines(without.output), SortedLines(drop_in.output));
}

TEST(LibrarySearchTest, Folders) {
  EXPECT_THAT(Folders("$ORIGIN/a:/b::${ORIGIN}", "/x"), ElementsAre("/x/a", "/b", "/x"));
  EXPECT_THAT(Folders("", "/x"), ElementsAre());
}

TEST(LibrarySearchTest, LoaderCache) {
  char name[] = "/tmp/rewire_cache_XXXXXX";
  close(mkstemp(name));
  const std::string bytes(
      "head\0libnccl.so.2\0/opt/a/libnccl.so.2\0/opt/b/libnccl.so.21\0"
      "x/libnccl.so.2\0/c/libnccl.so.2",
      89);
  std::ofstream(name, std::ios::binary) << bytes;
  EXPECT_THAT(InLoaderCache(name, "libnccl.so.2"),
              ElementsAre("/opt/a/libnccl.so.2", "/c/libnccl.so.2"));
  unlink(name);
  EXPECT_THAT(InLoaderCache(name, "libnccl.so.2"), ElementsAre());
}

}  // namespace
}  // namespace rewire::shim
