// Each way in which a program comes to NCCL: the collectives' results are those of the same program
// without the shim, and the program's communicators are Rewire's.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/process/loading/loaded_program.h"

namespace rewire {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

namespace fs = std::filesystem;

const std::string kPreload = "LD_PRELOAD=" REWIRE_PRELOAD;
const std::string kInfo = "REWIRE_LOG=info";

std::string LibraryPath(const std::string& folders) { return "LD_LIBRARY_PATH=" + folders; }
std::string FolderOf(const std::string& path) { return fs::path(path).parent_path(); }

class WayTest : public ::testing::Test {
 protected:
  // The lines of a program on real communicators, for 3 ranks.
  std::vector<std::string> Expected(const char* mark) {
    const CommandResult r =
        program_.Run({LibraryPath(program_.with_nccl())}, {CALLER, "3", "open=libnccl.so.2"});
    EXPECT_EQ(r.status, 0) << r.out << r.err;
    std::vector<std::string> lines = SortedLines(r.out);
    EXPECT_EQ(lines.size(), 3U);
    for (std::string& line : lines) line += mark;
    return lines;
  }
  // Runs a program with 3 ranks, which must have Rewire's communicators.
  CommandResult ExpectVirtual(const std::vector<std::string>& variables,
                              const std::vector<std::string>& command) {
    CommandResult r = program_.Run(variables, command);
    EXPECT_EQ(r.status, 0) << r.out << r.err;
    EXPECT_EQ(SortedLines(r.out), Expected(" virtual")) << r.err;
    return r;
  }
  // The same program must work without the shim.
  void ExpectReal(const std::vector<std::string>& variables,
                  const std::vector<std::string>& command) {
    const CommandResult r = program_.Run(variables, command);
    EXPECT_EQ(r.status, 0) << r.out << r.err;
    EXPECT_EQ(SortedLines(r.out), Expected("")) << r.err;
  }
  [[nodiscard]] std::string RealNccl() const { return fs::canonical(program_.nccl()); }

  const LoadedProgram program_;
  const std::string nccl_path_ = LibraryPath(program_.with_nccl());
  const std::string gpu_path_ = LibraryPath(program_.without_nccl());
};

TEST_F(WayTest, LocalExtensionThatNeedsNccl) {
  const std::vector<std::string> command = {CALLER, "3",
                                            "extension=" + program_.Copy(EXTENSION, "ext")};
  ExpectReal({gpu_path_}, command);
  const CommandResult r = ExpectVirtual({kPreload, gpu_path_, kInfo}, command);
  EXPECT_THAT(r.err, HasSubstr("at " + RealNccl()));
}

TEST_F(WayTest, ExtensionWithoutAPathInAProgramWithAnRpath) {
  const std::vector<std::string> command = {program_.Copy(RPATH_CALLER, "bin"), "3",
                                            "extension=" + program_.Copy(PLAIN_EXTENSION, "ext")};
  ExpectReal({gpu_path_}, command);
  ExpectVirtual({kPreload, gpu_path_}, command);
}

TEST_F(WayTest, LibraryPathComesBeforeARunpath) {
  const std::string extension = program_.Copy(EXTENSION, "other/ext");
  program_.Copy(OLD_NCCL, "other/nvidia/nccl/lib", "libnccl.so.2");
  const std::vector<std::string> command = {CALLER, "3", "extension=" + extension};
  ExpectReal({nccl_path_}, command);
  ExpectVirtual({kPreload, nccl_path_}, command);
}

TEST_F(WayTest, OpenedByName) {
  ExpectVirtual({kPreload, nccl_path_}, {CALLER, "3", "open=libnccl.so.2"});
}

TEST_F(WayTest, OpenedByNameFromALibraryWithARunpath) {
  const std::vector<std::string> command = {CALLER, "3",
                                            "extension=" + program_.Copy(OPENER, "ext")};
  ExpectReal({gpu_path_}, command);
  ExpectVirtual({kPreload, gpu_path_}, command);
}

TEST_F(WayTest, OpenedByNameFromAProgramWithAnRpath) {
  const std::vector<std::string> command = {program_.Copy(RPATH_CALLER, "bin"), "3",
                                            "open=libnccl.so.2"};
  ExpectReal({gpu_path_}, command);
  ExpectVirtual({kPreload, gpu_path_}, command);
}

TEST_F(WayTest, OpenedWithoutAVersionFromTheShimsFolder) {
  const std::string path = LibraryPath(FolderOf(REWIRE_PRELOAD) + ":" + program_.with_nccl());
  ExpectVirtual({path}, {CALLER, "3", "open=libnccl.so"});
  // The preloaded file and the file on the library path are one object.
  const CommandResult r = ExpectVirtual({kPreload, path}, {CALLER, "3", "open=libnccl.so"});
  EXPECT_THAT(r.err, Not(HasSubstr("two NCCL libraries")));
}

TEST_F(WayTest, OpenedWithoutAVersionThroughTheRedirect) {
  ExpectVirtual({kPreload + ":" REWIRE_DLOPEN, nccl_path_}, {CALLER, "3", "open=libnccl.so"});
}

TEST_F(WayTest, OpenedByPathThroughTheRedirect) {
  const std::vector<std::string> command = {CALLER, "3", "open=" + program_.nccl()};
  ExpectReal({gpu_path_}, command);
  const CommandResult r = ExpectVirtual({kPreload + ":" REWIRE_DLOPEN, gpu_path_, kInfo}, command);
  EXPECT_THAT(r.err, HasSubstr("at " + RealNccl()));
}

TEST_F(WayTest, ShimByPath) { ExpectVirtual({nccl_path_}, {CALLER, "3", "open=" REWIRE_PRELOAD}); }

TEST_F(WayTest, DropIn) {
  const std::string path = LibraryPath(FolderOf(REWIRE_PRELOAD) + ":" + program_.with_nccl());
  ExpectVirtual({path}, {CALLER, "3", "open=libnccl.so.2"});
  ExpectVirtual({path}, {CALLER, "3", "extension=" + program_.Copy(PLAIN_EXTENSION, "ext")});
}

TEST_F(WayTest, DefaultScope) {
  ExpectReal({"LD_PRELOAD=" + RealNccl(), nccl_path_}, {CALLER, "3", "default"});
  ExpectVirtual({kPreload, nccl_path_}, {CALLER, "3", "default"});
}

// NCCL's symbols have no versions, so dlvsym finds none of them, with the shim as without.
TEST_F(WayTest, VersionedLookup) {
  for (const char* preload : {"LD_PRELOAD=", "LD_PRELOAD=" REWIRE_PRELOAD}) {
    const CommandResult r =
        program_.Run({preload, nccl_path_}, {CALLER, "1", "open=libnccl.so.2", "version=NCCL_2"});
    EXPECT_THAT(r.out, HasSubstr("ncclGetUniqueId: not found")) << r.err;
  }
}

TEST_F(WayTest, ProfilingNames) {
  const std::vector<std::string> command = {CALLER, "3", "open=libnccl.so.2", "prefix=p"};
  ExpectReal({nccl_path_}, command);
  ExpectVirtual({kPreload, nccl_path_}, command);
}

TEST_F(WayTest, LibraryThatExportsItsOwnNccl) {
  const std::string extension = program_.Copy(STATIC_EXTENSION, "ext");
  const std::vector<std::string> command = {CALLER, "3", "extension=" + extension};
  // Another version on the library path must not be taken for the library's own.
  program_.Copy(OLD_NCCL, "other", "libnccl.so.2");
  const std::string path = gpu_path_ + ":" + program_ / "other";
  const CommandResult r = ExpectVirtual({kPreload, path, kInfo}, command);
  EXPECT_THAT(r.err, HasSubstr("at " + fs::canonical(extension).string()));
}

// ---- with other preloaded libraries
// --------------------------------------------------------------

TEST_F(WayTest, ProfilerAboveTheShim) {
  for (const char* names : {"PROFILER=1", "PROFILER_PNCCL=1"}) {
    const std::vector<std::string> command = {CALLER, "3", "default"};
    ExpectReal({"LD_PRELOAD=" PROFILER ":" + RealNccl(), nccl_path_, names}, command);
    const CommandResult r =
        ExpectVirtual({"LD_PRELOAD=" PROFILER ":" REWIRE_PRELOAD, nccl_path_, names}, command);
    std::vector<std::string> counts(3, "profiler: 1 inits, 8 all-reduces");
    EXPECT_EQ(SortedLines(r.err), counts) << names;
  }
}

TEST_F(WayTest, AllocatorThatAcceptsOnlyItsOwnMemory) {
  ExpectVirtual({"LD_PRELOAD=" ALLOCATOR ":" REWIRE_PRELOAD, nccl_path_},
                {CALLER, "3", "open=libnccl.so.2"});
}

}  // namespace
}  // namespace rewire
