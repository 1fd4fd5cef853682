// The installed tree, moved away from its prefix: it is complete, self-contained, and does not
// interfere with a training process.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <set>
#include <sstream>
#include <tuple>

#include "tests/process/install/installed_tree.h"

namespace rewire {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;
using ::testing::Not;
using ::testing::StartsWith;
using ::testing::UnorderedElementsAre;
using ::testing::UnorderedElementsAreArray;

namespace fs = std::filesystem;

const char* const kPrograms[] = {"bin/rewire", "bin/gpt_train"};
const char* const kLibraries[] = {"lib/rewire/librewire.so", "lib/rewire/librewire-moe.so",
                                  "lib/rewire/librewire-net.so", "lib/rewire/simgpu/libcuda.so.1",
                                  "lib/rewire/simgpu/libnccl.so.2"};
const char* const kPreload = "lib/rewire/librewire-preload.so";
const char* const kNetPlugin = "lib/rewire/libnccl-net-rewire.so";

// Runs a short training on the simulated GPU with the programs of a tree.
std::string Training(const std::string& tree, const std::string& data) {
  return tree + "/bin/rewire run -n 2 --sim -- " + tree +
         "/bin/gpt_train --steps 3 --exact --data " + data;
}

class InstallTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { tree_ = std::make_unique<InstalledTree>(); }
  static void TearDownTestSuite() { tree_.reset(); }
  static std::unique_ptr<InstalledTree> tree_;
};
std::unique_ptr<InstalledTree> InstallTest::tree_;

TEST_F(InstallTest, HoldsWhatItShould) {
  const std::vector<std::string> files = tree_->Files();
  for (const char* name : kPrograms) EXPECT_THAT(files, Contains(name));
  for (const char* name : kLibraries) EXPECT_THAT(files, Contains(name));
  EXPECT_THAT(files,
              IsSupersetOf({"include/rewire/rewire.h", "include/rewire/rewire_moe.h",
                            "include/rewire/rewire_result.h", "include/rewire/rewire_version.h"}));
  EXPECT_THAT(files, Contains("share/rewire/python/rewire/experts.py"));
  EXPECT_THAT(files, Contains("share/man/man1/rewire.1"));
  // The folder on every member's library path has only files that must be found there by name.
  std::vector<std::string> found;
  for (const auto& entry : fs::directory_iterator(*tree_ / "lib/rewire")) {
    found.push_back(entry.path().filename());
  }
  const std::string abi = REWIRE_ABI_VERSION, version = REWIRE_FULL_VERSION;
  EXPECT_THAT(found, UnorderedElementsAre("libnccl.so", "libnccl.so.2", "librewire-preload.so",
                                          "librewire-dlopen.so", "librewire.so",
                                          "librewire.so." + abi, "librewire.so." + version,
                                          "librewire-moe.so", "librewire-moe.so." + abi,
                                          "librewire-moe.so." + version, "libnccl-net-rewire.so",
                                          "librewire-net.so", "private", "runtime", "simgpu"));
  EXPECT_EQ(fs::read_symlink(*tree_ / kPreload), "libnccl.so.2");
  EXPECT_EQ(fs::read_symlink(*tree_ / "lib/rewire/libnccl.so"), "libnccl.so.2");
  // Our C++ runtime could be older than the one that a library loaded later needs.
  for (const std::string& name : files) {
    if (IsCxxRuntime(name)) {
      EXPECT_THAT(name, StartsWith("lib/rewire/runtime/"));
    }
  }
}

// Only configured, because a build takes minutes: no file is installed where the default folders
// are.
TEST(FoldersTest, AreTheChoiceOfTheBuild) {
  const TemporaryFolder folder;
  const std::string build = folder / "build";
  const std::string configure = REWIRE_CMAKE
                                " -G Ninja -S " REWIRE_SOURCE_DIR
                                " -DREWIRE_BUILD_TESTS=OFF -DREWIRE_BUILD_BENCH=OFF -B " +
                                build;
  const CommandResult done = Shell(configure +
                                   " -DCMAKE_INSTALL_LIBDIR=lib64/x -DCMAKE_INSTALL_DATADIR=data"
                                   " -DCMAKE_INSTALL_INCLUDEDIR=inc");
  ASSERT_EQ(done.status, 0) << done.err;
  const CommandResult left =
      Shell("cat $(find " + build +
            " -name cmake_install.cmake -o -name \"*.pc\" -o -name \"*-config.cmake\") |"
            " grep -E \"[}]/(lib|include|share/rewire)(/|[^0-9a-z]|$)\"");
  EXPECT_EQ(left.out, "");
  const CommandResult rules = Shell("cat " + build + "/build.ninja");
  EXPECT_THAT(rules.out, HasSubstr("../lib64/x/rewire/private"));
  EXPECT_THAT(rules.out, HasSubstr("REWIRE_TO_PYTHON"));
  const CommandResult refused = Shell(configure + " -DCMAKE_INSTALL_LIBDIR=/usr/lib");
  EXPECT_NE(refused.status, 0);
  EXPECT_THAT(refused.err, HasSubstr("CMAKE_INSTALL_LIBDIR=/usr/lib: must be a path below"));
}

TEST_F(InstallTest, NothingPointsOutOfTheTree) {
  int looked_at = 0;
  for (const std::string& name : tree_->Files()) {
    const std::string path = *tree_ / name;
    if (fs::is_symlink(path)) {
      EXPECT_THAT(fs::read_symlink(path).string(), Not(HasSubstr("/"))) << name;
      continue;
    }
    const CommandResult dynamic = Shell("readelf -dW " + path);
    if (dynamic.err.find("Not an ELF file") != std::string::npos) continue;
    ASSERT_EQ(dynamic.status, 0) << dynamic.err;
    ++looked_at;
    std::istringstream lines(dynamic.out);
    for (std::string line; std::getline(lines, line);) {
      const size_t open = line.find('[');
      const std::string value =
          open == std::string::npos ? "" : line.substr(open + 1, line.find(']') - open - 1);
      if (line.find("(NEEDED)") != std::string::npos) {
        EXPECT_THAT(value, Not(HasSubstr("/"))) << name;
      }
      if (line.find("PATH)") == std::string::npos) continue;
      std::istringstream folders(value + ":");
      for (std::string folder; std::getline(folders, folder, ':');) {
        EXPECT_TRUE(folder == "$ORIGIN" || folder.rfind("$ORIGIN/", 0) == 0)
            << name << ": '" << folder << "' in " << value;
      }
    }
    const CommandResult text = Shell("readelf -W -p .rodata " + path);
    EXPECT_THAT(text.out, Not(HasSubstr(REWIRE_BINARY_DIR))) << name;
  }
  EXPECT_GE(looked_at, 8);
}

TEST_F(InstallTest, EverythingIsFoundInTheTree) {
  const std::string top = *tree_ / "";
  // The NCCL that gpt_train finds is always an external library.
  const std::string nccl = "LD_LIBRARY_PATH=" + (*tree_ / "lib/rewire/simgpu");
  for (const char* name : kPrograms) {
    for (const std::string& need : Needs(*tree_ / name, nccl)) {
      EXPECT_TRUE(need.rfind(top, 0) == 0 || IsLibc(need)) << name << " needs " << need;
    }
  }
  // A library uses the C++ runtime of the program that loads it.
  for (const char* name : kLibraries) {
    for (const std::string& need : Needs(*tree_ / name)) {
      EXPECT_TRUE(need.rfind(top, 0) == 0 || IsLibc(need) || IsCxxRuntime(need))
          << name << " needs " << need;
      EXPECT_FALSE(need.rfind(top, 0) == 0 && IsCxxRuntime(need)) << name << " brings " << need;
    }
  }
  for (const char* name : {kPreload, "lib/rewire/librewire-dlopen.so", kNetPlugin}) {
    for (const std::string& need : Needs(*tree_ / name)) {
      EXPECT_TRUE(IsLibc(need)) << name << " needs " << need;
    }
  }
}

TEST_F(InstallTest, LibrariesShowNothingButTheirInterface) {
  for (const auto& [library, exports, count] :
       {std::tuple("librewire.so", REWIRE_CORE_EXPORTS, 18u),
        std::tuple("librewire-moe.so", REWIRE_MOE_EXPORTS, 23u)}) {
    const CommandResult r =
        Shell("nm -D --defined-only " + (*tree_ / "lib/rewire/") + std::string(library));
    ASSERT_EQ(r.status, 0) << r.err;
    std::set<std::string> shown;
    std::istringstream words(r.out);
    for (std::string address, kind, name; words >> address >> kind >> name;) shown.insert(name);
    std::set<std::string> named;
    std::ifstream map(exports);
    for (std::string word; map >> word;) {
      if (word.rfind("rewire", 0) == 0) named.insert(word.substr(0, word.find(';')));
    }
    EXPECT_EQ(named.size(), count) << library;
    EXPECT_EQ(shown, named) << library;
  }
}

TEST_F(InstallTest, TheCommandHasTheVersion) {
  const CommandResult r = Shell((*tree_ / "bin/rewire") + " --version");
  EXPECT_EQ(r.status, 0) << r.err;
  EXPECT_EQ(r.out, "rewire " REWIRE_FULL_VERSION "\n");
}

TEST_F(InstallTest, ARunOfTheMovedTreeTrains) {
  const CommandResult r = Shell(Training(tree_->path(), REWIRE_TEXT));
  EXPECT_EQ(r.status, 0) << r.out << r.err;
  EXPECT_THAT(r.out, HasSubstr("final step 3 loss "));
}

TEST_F(InstallTest, ARunOfTheMovedTreeTrainsOverTheNetPlugin) {
  const CommandResult r = Shell(Training(tree_->path(), REWIRE_TEXT),
                                "NCCL_NET_PLUGIN=rewire NCCL_NET=rewire REWIRE_LOG=info");
  EXPECT_EQ(r.status, 0) << r.out << r.err;
  EXPECT_THAT(r.out, HasSubstr("final step 3 loss "));
  EXPECT_THAT(r.err, HasSubstr("NET/rewire: net ABI v11, sockets over "));
  EXPECT_THAT(r.err, HasSubstr("links need the job's key"));
}

// Builds against the tree alone, in each way that the pages name; `program` then runs.
class BuiltAgainst : public InstallTest {
 protected:
  void Expect(const std::string& build) {
    const CommandResult built = Shell("cd " + folder_.path() + " && " + build);
    ASSERT_EQ(built.status, 0) << built.out << built.err;
    const CommandResult r = Shell(folder_ / "program", "RANK=1 WORLD_SIZE=3");
    EXPECT_EQ(r.status, 0) << r.err;
    EXPECT_EQ(r.out, "slot 1 of 3, 1 update\n");
  }
  static constexpr char kCompile[] = REWIRE_C_COMPILER
      " -std=c99 -pedantic -Wall -Wextra -Werror -o program " REWIRE_LINKED "/linked.c ";

  const TemporaryFolder folder_;
};

TEST_F(BuiltAgainst, ByFlags) {
  const std::string libraries = *tree_ / "lib/rewire";
  Expect(kCompile + ("-I" + (*tree_ / "include")) + " -L" + libraries +
         " -lrewire -lrewire-moe -Wl,-rpath," + libraries);
}

TEST_F(BuiltAgainst, ByPkgConfig) {
  Expect(kCompile + ("$(PKG_CONFIG_PATH=" + (*tree_ / "lib/pkgconfig")) +
         " pkg-config --cflags --libs rewire rewire-moe)");
}

TEST_F(BuiltAgainst, ByCMake) {
  Expect(REWIRE_CMAKE " -S " REWIRE_LINKED " -B . -DCMAKE_C_COMPILER=" REWIRE_C_COMPILER
                      " -DCMAKE_PREFIX_PATH=" +
         tree_->path() + " && " REWIRE_CMAKE " --build .");
}

TEST_F(InstallTest, TheDebianPackageIsTheTree) {
  const TemporaryFolder folder;
  const CommandResult packed =
      Shell("cd " REWIRE_BINARY_DIR " && " REWIRE_CPACK " -B " + (folder / "out"));
  ASSERT_EQ(packed.status, 0) << packed.out << packed.err;
  const CommandResult unpacked =
      Shell("dpkg-deb -x " + (folder / "out") + "/*.deb " + (folder / "root"));
  ASSERT_EQ(unpacked.status, 0) << unpacked.err;
  const std::string tree = folder / "root/opt/rewire";
  std::vector<std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(tree)) {
    if (entry.is_symlink() || !entry.is_directory()) {
      files.push_back(entry.path().lexically_relative(tree).string());
    }
  }
  EXPECT_THAT(files, UnorderedElementsAreArray(tree_->Files()));
  const CommandResult r = Shell(tree + "/bin/rewire --version");
  EXPECT_EQ(r.status, 0) << r.err;
}

// A root folder that has only libc and the files that a test adds.
class BareRoot : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : {"proc", "dev", "tmp"}) fs::create_directories(At(name));
    if (Enter("/nothing").status != kNotFound) {
      GTEST_SKIP() << "this process may not change its root: nothing was tested";
    }
  }
  static constexpr int kNotFound = 127;

  [[nodiscard]] std::string At(const std::string& name) const { return root_ / name; }
  // Runs a program inside the root, with the machine's /proc and /dev and no other variable.
  CommandResult Enter(const std::string& command) {
    const std::string mounts = "mount --rbind /proc " + At("proc") + " && mount --rbind /dev " +
                               At("dev") + " && exec chroot " + root_.path() + " ";
    return Shell("unshare --mount " + std::string(geteuid() == 0 ? "" : "--map-root-user ") +
                 "sh -c \"" + mounts + command + "\"");
  }
  // Copies the parts of libc that a file needs.
  void CopyLibcOf(const std::string& file) {
    for (const std::string& need : Needs(file)) {
      if (!IsLibc(need)) continue;
      fs::create_directories(fs::path(At(need)).parent_path());
      fs::copy_file(need, At(need), fs::copy_options::skip_existing);
    }
  }

  InstalledTree tree_;
  TemporaryFolder root_;
};

TEST_F(BareRoot, ThePreloadedFileLoads) {
  CopyLibcOf(REWIRE_PROBE);
  CopyLibcOf(tree_ / kPreload);
  fs::copy_file(REWIRE_PROBE, At("probe"));
  fs::copy_file(tree_ / kPreload, At("libnccl.so.2"));
  const CommandResult r = Enter("/probe /libnccl.so.2 where version");
  EXPECT_EQ(r.status, 0) << r.out << r.err;
  EXPECT_THAT(r.out, HasSubstr("loaded 1"));
  EXPECT_THAT(r.out, HasSubstr("where /libnccl.so.2"));
  // The result is ncclSystemError, and the text says that there is no NCCL.
  EXPECT_THAT(r.out, HasSubstr("version 2 0"));
  EXPECT_THAT(r.err, HasSubstr("searched LD_LIBRARY_PATH: not set"));
}

TEST_F(BareRoot, ARunOfTheTreeTrains) {
  for (const std::string& name : tree_.Files()) {
    if (name.rfind("bin/", 0) == 0 || name.find(".so") != std::string::npos) {
      CopyLibcOf(tree_ / name);
    }
  }
  tree_.MoveTo(At("opt/rewire"));
  fs::copy_file(REWIRE_TEXT, At("text"));
  const CommandResult r = Enter(Training("/opt/rewire", "/text"));
  EXPECT_EQ(r.status, 0) << r.out << r.err;
  EXPECT_THAT(r.out, HasSubstr("final step 3 loss "));
}

}  // namespace
}  // namespace rewire
