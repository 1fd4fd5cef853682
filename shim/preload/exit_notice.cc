// Says once, at the end of a member's process, that the process has an NCCL and made no
// communicator through the shim: NCCL is linked into the program, or was opened by a path. Called
// by the dynamic loader on the thread that ends the process. Costs one load and one getenv in other
// processes.
//
// Calls alone do not tell: an NCCL that was opened by a path calls some of its own exports through
// the shim.
#include <link.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <vector>

#include "reconfig/base/log.h"
#include "reconfig/base/settings.h"
#include "shim/preload/core_loader.h"
#include "shim/preload/library_search.h"
#include "shim/preload/real_nccl.h"

namespace rewire::shim {

namespace {

// The strings of an object come before CUDA's device code, which can have gigabytes. The limit
// bounds the time of the search.
constexpr size_t kSearched = size_t{256} << 20;

// Every NCCL has a text such as "NCCL version 2.28.9+cuda13.0", which also `strings` finds.
bool HasVersionText(std::string_view bytes) {
  constexpr std::string_view kBegin = "NCCL version 2.";
  constexpr size_t kLongest = 32;  // of the rest of the text
  for (size_t at = 0; at < bytes.size();) {
    const void* const found =
        memmem(bytes.data() + at, bytes.size() - at, kBegin.data(), kBegin.size());
    if (found == nullptr) return false;
    at = static_cast<size_t>(static_cast<const char*>(found) - bytes.data()) + kBegin.size();
    const std::string_view rest = bytes.substr(at, kLongest);
    const size_t end = rest.find_first_not_of("0123456789.");
    if (end != std::string_view::npos && rest.substr(end, 5) == "+cuda") return true;
  }
  return false;
}

bool HasNccl(const dl_phdr_info& object) {
  for (int i = 0; i < object.dlpi_phnum; ++i) {
    const ElfW(Phdr)& segment = object.dlpi_phdr[i];
    if (segment.p_type != PT_LOAD || (segment.p_flags & PF_R) == 0 ||
        (segment.p_flags & PF_W) != 0) {
      continue;
    }
    const auto* begin = reinterpret_cast<const char*>(object.dlpi_addr + segment.p_vaddr);
    if (HasVersionText({begin, std::min<size_t>(segment.p_filesz, kSearched)})) return true;
  }
  return false;
}

struct Search {
  std::vector<std::string> not_these;
  std::string found;
};

int Visit(dl_phdr_info* object, size_t /*size*/, void* argument) {
  auto* search = static_cast<Search*>(argument);
  const bool program = object->dlpi_name == nullptr || object->dlpi_name[0] == '\0';
  char path[PATH_MAX];
  // The vdso has no file.
  if (realpath(program ? "/proc/self/exe" : object->dlpi_name, path) == nullptr) return 0;
  for (const std::string& other : search->not_these) {
    if (other == path) return 0;
  }
  if (!HasNccl(*object)) return 0;
  search->found = path;
  return 1;
}

// Returns the file of a loaded object with a copy of NCCL in it; "" if there is none. This library
// and an NCCL that it has loaded itself do not count. Reads objects' strings from their files, and
// so can take seconds.
std::string FindBypassingNccl() {
  Search search{{OwnPath()}, {}};
  if (!real_functions.was_loaded) search.not_these.emplace_back(real_functions.path);
  dl_iterate_phdr(Visit, &search);
  return search.found;
}

// CUDA's driver is in every process that uses NCCL, and in few of its children.
int IsDriver(dl_phdr_info* object, size_t /*size*/, void* /*argument*/) {
  return strstr(object->dlpi_name, "/libcuda.so") != nullptr ? 1 : 0;
}

__attribute__((destructor)) void NoticeAtExit() {
  if (CreatesHere()) {
    // A copy may have been opened after the last communicator was made.
    if (real_functions.version != 0) WarnOfSecondLibrary(real_functions.path);
    return;
  }
  const char* const socket = getenv("REWIRE_SOCKET");
  if (socket == nullptr || *socket == '\0' || dl_iterate_phdr(IsDriver, nullptr) == 0) return;
  if (Off()) return;
  const std::string nccl = FindBypassingNccl();
  if (nccl.empty()) return;
  REWIRE_WARN(
      "member %lld: no communicator was made through Rewire, but %s has NCCL in it: NCCL is linked "
      "statically or was opened by a path (remedies: docs/limits.md, Loading)",
      static_cast<long long>(Settings::Get().member()), nccl.c_str());
}

}  // namespace

}  // namespace rewire::shim
