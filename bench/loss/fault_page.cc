#include "bench/loss/fault_page.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace rewire::bench {

FaultPage::FaultPage(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  void* const mapped =
      file < 0 ? MAP_FAILED
               : ::mmap(nullptr, sizeof(Layout), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (mapped == MAP_FAILED) {
    std::fprintf(stderr, "loss_rank: map %s: %s\n", path.c_str(), std::strerror(errno));
    std::exit(2);
  }
  ::close(file);
  layout_ = static_cast<Layout*>(mapped);
}

FaultPage::~FaultPage() { ::munmap(layout_, sizeof(Layout)); }

}  // namespace rewire::bench
