/* A preloaded allocator in the style of jemalloc and tcmalloc, which ends the process when memory
 * is released by another allocator's function. Memory of operator new has a mark of its own. */
#define _GNU_SOURCE
#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

/* The C library's own functions, which it exports for allocators. */
extern void* __libc_malloc(size_t size);
extern void* __libc_memalign(size_t alignment, size_t size);
extern void __libc_free(void* memory);

typedef struct {
  uint64_t mark;
  size_t size;
  void* block; /* what the C library returned */
  uint64_t unused;
} Header;

static const uint64_t kMalloc = 0x616c6c6f636d616cULL;
static const uint64_t kNew = 0x616c6c6f636e6577ULL;
static const uint64_t kReleased = 0x616c6c6f63676f6eULL;

static void* take(size_t alignment, size_t size, uint64_t mark) {
  char* block;
  Header* header;
  if (size > SIZE_MAX / 2) return errno = ENOMEM, NULL;
  if (alignment < 32) alignment = 32; /* at least sizeof(Header) */
  block = __libc_memalign(alignment, size + alignment);
  if (block == NULL) return NULL;
  header = (Header*)(void*)(block + alignment - sizeof *header);
  header->mark = mark;
  header->size = size;
  header->block = block;
  return header + 1;
}

static Header* header_of(void* memory, uint64_t mark) {
  Header* header = (Header*)memory - 1;
  if (header->mark != mark) {
    static const char text[] = "allocator: memory of another allocator was released\n";
    if (write(2, text, sizeof text - 1) < 0) _exit(7);
    abort();
  }
  return header;
}

static void release(void* memory, uint64_t mark) {
  Header* header;
  if (memory == NULL) return;
  header = header_of(memory, mark);
  header->mark = kReleased;
  __libc_free(header->block);
}

EXPORT void* malloc(size_t size) { return take(0, size, kMalloc); }
EXPORT void free(void* memory) { release(memory, kMalloc); }
EXPORT void* calloc(size_t count, size_t size) {
  void* memory;
  if (size != 0 && count > SIZE_MAX / 2 / size) return errno = ENOMEM, NULL;
  memory = malloc(count * size);
  if (memory != NULL) memset(memory, 0, count * size);
  return memory;
}
EXPORT void* realloc(void* memory, size_t size) {
  size_t old;
  void* fresh;
  if (memory == NULL) return malloc(size);
  old = header_of(memory, kMalloc)->size;
  fresh = malloc(size);
  if (fresh == NULL) return NULL;
  memcpy(fresh, memory, old < size ? old : size);
  free(memory);
  return fresh;
}
EXPORT void* memalign(size_t alignment, size_t size) { return take(alignment, size, kMalloc); }
EXPORT void* aligned_alloc(size_t alignment, size_t size) { return memalign(alignment, size); }
EXPORT int posix_memalign(void** out, size_t alignment, size_t size) {
  void* memory = memalign(alignment, size);
  if (memory == NULL) return ENOMEM;
  *out = memory;
  return 0;
}
EXPORT size_t malloc_usable_size(void* memory) {
  return memory == NULL ? 0 : header_of(memory, kMalloc)->size;
}

/* operator new and delete, plain, of arrays, with a size, and with an alignment. */
EXPORT void* _Znwm(size_t size) {
  void* memory = take(0, size, kNew);
  if (memory == NULL) abort();
  return memory;
}
EXPORT void* _Znam(size_t size) { return _Znwm(size); }
EXPORT void* _ZnwmRKSt9nothrow_t(size_t size, const void* tag) {
  (void)tag;
  return take(0, size, kNew);
}
EXPORT void* _ZnamRKSt9nothrow_t(size_t size, const void* tag) {
  return _ZnwmRKSt9nothrow_t(size, tag);
}
EXPORT void* _ZnwmSt11align_val_t(size_t size, size_t alignment) {
  return take(alignment, size, kNew);
}
EXPORT void* _ZnamSt11align_val_t(size_t size, size_t alignment) {
  return take(alignment, size, kNew);
}
EXPORT void _ZdlPv(void* memory) { release(memory, kNew); }
EXPORT void _ZdaPv(void* memory) { release(memory, kNew); }
EXPORT void _ZdlPvm(void* memory, size_t size) { (void)size, release(memory, kNew); }
EXPORT void _ZdaPvm(void* memory, size_t size) { (void)size, release(memory, kNew); }
EXPORT void _ZdlPvRKSt9nothrow_t(void* memory, const void* tag) {
  (void)tag, release(memory, kNew);
}
EXPORT void _ZdaPvRKSt9nothrow_t(void* memory, const void* tag) {
  (void)tag, release(memory, kNew);
}
EXPORT void _ZdlPvSt11align_val_t(void* memory, size_t alignment) {
  (void)alignment, release(memory, kNew);
}
EXPORT void _ZdlPvmSt11align_val_t(void* memory, size_t size, size_t alignment) {
  (void)size, (void)alignment, release(memory, kNew);
}
