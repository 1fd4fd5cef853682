#include "bench/shim/interposed.h"

#include <dlfcn.h>
#include <link.h>
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace {

// Code may run in malloc, so these are plain.
thread_local bool counting = false;
thread_local uint64_t allocations = 0;
thread_local uint64_t locks = 0;

// The addresses of the library that is left out. Written before the first count.
uintptr_t left_out_begin = 0;
uintptr_t left_out_end = 0;

void Count(uint64_t* counter, const void* caller) {
  const auto address = reinterpret_cast<uintptr_t>(caller);
  if (counting && (address < left_out_begin || address >= left_out_end)) ++*counter;
}
#define REWIRE_COUNT(counter) Count(&(counter), __builtin_return_address(0))

using MutexFunction = int (*)(pthread_mutex_t*);
using RwlockFunction = int (*)(pthread_rwlock_t*);
std::atomic<MutexFunction> mutex_lock{nullptr};
std::atomic<RwlockFunction> read_lock{nullptr};
std::atomic<RwlockFunction> write_lock{nullptr};

template <typename Function>
Function Next(std::atomic<Function>* function, const char* name) {
  Function found = function->load(std::memory_order_relaxed);
  if (found == nullptr) {
    found = reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
    function->store(found, std::memory_order_relaxed);
  }
  return found;
}

}  // namespace

extern "C" {

// glibc's own names for its exports malloc and so on.
void* __libc_malloc(size_t bytes);
void* __libc_calloc(size_t count, size_t bytes);
void* __libc_realloc(void* memory, size_t bytes);
void* __libc_memalign(size_t alignment, size_t bytes);

#define REWIRE_INTERPOSED __attribute__((visibility("default")))

REWIRE_INTERPOSED void* malloc(size_t bytes) {
  REWIRE_COUNT(allocations);
  return __libc_malloc(bytes);
}
REWIRE_INTERPOSED void* calloc(size_t count, size_t bytes) {
  REWIRE_COUNT(allocations);
  return __libc_calloc(count, bytes);
}
REWIRE_INTERPOSED void* realloc(void* memory, size_t bytes) {
  REWIRE_COUNT(allocations);
  return __libc_realloc(memory, bytes);
}
REWIRE_INTERPOSED void* aligned_alloc(size_t alignment, size_t bytes) {
  REWIRE_COUNT(allocations);
  return __libc_memalign(alignment, bytes);
}
REWIRE_INTERPOSED int pthread_mutex_lock(pthread_mutex_t* mutex) noexcept {
  REWIRE_COUNT(locks);
  return Next(&mutex_lock, "pthread_mutex_lock")(mutex);
}
REWIRE_INTERPOSED int pthread_rwlock_rdlock(pthread_rwlock_t* lock) noexcept {
  REWIRE_COUNT(locks);
  return Next(&read_lock, "pthread_rwlock_rdlock")(lock);
}
REWIRE_INTERPOSED int pthread_rwlock_wrlock(pthread_rwlock_t* lock) noexcept {
  REWIRE_COUNT(locks);
  return Next(&write_lock, "pthread_rwlock_wrlock")(lock);
}
}

namespace rewire::bench {

bool PrepareCounting() {
  return Next(&mutex_lock, "pthread_mutex_lock") != nullptr &&
         Next(&read_lock, "pthread_rwlock_rdlock") != nullptr &&
         Next(&write_lock, "pthread_rwlock_wrlock") != nullptr;
}

void LeaveOut(const char* library) {
  const auto note = [](dl_phdr_info* info, size_t /*bytes*/, void* name) {
    if (strstr(info->dlpi_name, static_cast<const char*>(name)) == nullptr) return 0;
    left_out_begin = UINTPTR_MAX;
    for (int i = 0; i < info->dlpi_phnum; ++i) {
      const auto& part = info->dlpi_phdr[i];
      if (part.p_type != PT_LOAD) continue;
      left_out_begin = std::min<uintptr_t>(left_out_begin, info->dlpi_addr + part.p_vaddr);
      left_out_end =
          std::max<uintptr_t>(left_out_end, info->dlpi_addr + part.p_vaddr + part.p_memsz);
    }
    return 1;
  };
  dl_iterate_phdr(note, const_cast<char*>(library));
}

void StartCounting() {
  allocations = 0;
  locks = 0;
  counting = true;
}

Counted StopCounting() {
  counting = false;
  return {allocations, locks};
}

}  // namespace rewire::bench
