#include "bench/shim/interposed.h"

#include <dlfcn.h>
#include <pthread.h>

#include <atomic>
#include <cstddef>

namespace {

std::atomic<bool> counting{false};
std::atomic<uint64_t> allocations{0};
std::atomic<uint64_t> locks{0};

void Count(std::atomic<uint64_t>* counter) {
  if (counting.load(std::memory_order_relaxed)) counter->fetch_add(1, std::memory_order_relaxed);
}

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
  Count(&allocations);
  return __libc_malloc(bytes);
}
REWIRE_INTERPOSED void* calloc(size_t count, size_t bytes) {
  Count(&allocations);
  return __libc_calloc(count, bytes);
}
REWIRE_INTERPOSED void* realloc(void* memory, size_t bytes) {
  Count(&allocations);
  return __libc_realloc(memory, bytes);
}
REWIRE_INTERPOSED void* aligned_alloc(size_t alignment, size_t bytes) {
  Count(&allocations);
  return __libc_memalign(alignment, bytes);
}
REWIRE_INTERPOSED int pthread_mutex_lock(pthread_mutex_t* mutex) noexcept {
  Count(&locks);
  return Next(&mutex_lock, "pthread_mutex_lock")(mutex);
}
REWIRE_INTERPOSED int pthread_rwlock_rdlock(pthread_rwlock_t* lock) noexcept {
  Count(&locks);
  return Next(&read_lock, "pthread_rwlock_rdlock")(lock);
}
REWIRE_INTERPOSED int pthread_rwlock_wrlock(pthread_rwlock_t* lock) noexcept {
  Count(&locks);
  return Next(&write_lock, "pthread_rwlock_wrlock")(lock);
}
}

namespace rewire::bench {

bool PrepareCounting() {
  return Next(&mutex_lock, "pthread_mutex_lock") != nullptr &&
         Next(&read_lock, "pthread_rwlock_rdlock") != nullptr &&
         Next(&write_lock, "pthread_rwlock_wrlock") != nullptr;
}

void StartCounting() {
  allocations.store(0);
  locks.store(0);
  counting.store(true);
}

Counted StopCounting() {
  counting.store(false);
  return {allocations.load(), locks.load()};
}

}  // namespace rewire::bench
