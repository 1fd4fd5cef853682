#include "bench/swap/free_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <stdexcept>
#include <system_error>

#include "reconfig/base/unique_fd.h"

namespace rewire::bench {
namespace {

// A generation's memory is held for REWIRE_RETIRE_MS at least, so that no peak is this short.
constexpr std::chrono::milliseconds kInterval(1);

}  // namespace

FreeMemory::FreeMemory(const std::string& path, const CudaDriver* cuda, CUcontext context)
    : cuda_(cuda), context_(context) {
  const UniqueFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  void* memory = MAP_FAILED;
  if (fd.valid() && ::ftruncate(fd.get(), sizeof(FreeMemoryPage)) == 0) {
    memory =
        ::mmap(nullptr, sizeof(FreeMemoryPage), PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  }
  if (memory == MAP_FAILED) throw std::system_error(errno, std::generic_category(), path);
  page_ = static_cast<FreeMemoryPage*>(memory);
  thread_ = std::thread([this] { Run(); });
}

FreeMemory::~FreeMemory() {
  stop_ = true;
  thread_.join();
  ::munmap(page_, sizeof(FreeMemoryPage));
}

void FreeMemory::Run() {
  cuda_->CtxSetCurrent(context_);
  uint64_t least = UINT64_MAX;
  for (; !stop_; std::this_thread::sleep_for(kInterval)) {
    const uint64_t round = page_->wanted;
    size_t free_bytes = 0;
    size_t total = 0;
    if (cuda_->MemGetInfo(&free_bytes, &total) != CUDA_SUCCESS) continue;
    least = page_->round == round ? std::min<uint64_t>(least, free_bytes) : free_bytes;
    page_->now = free_bytes;
    page_->least = least;
    page_->round = round;
  }
}

}  // namespace rewire::bench
