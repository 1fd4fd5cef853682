// Checks of the code's own invariants. Input from outside gets an error instead, never a check.
//
// REWIRE_CHECK is active in every build: continuing would use memory that is not the caller's.
// REWIRE_DCHECK is active where the tests are built (REWIRE_BUILD_TESTS), sanitizers included; its
// condition is not evaluated elsewhere. The file has no folder, so that no path of the build gets
// into a library. Both may be used on any thread, and need libc only.
#pragma once

namespace rewire {

// Writes an error line and aborts the process.
[[noreturn]] void CheckFailed(const char* file, int line, const char* condition) noexcept;

}  // namespace rewire

#define REWIRE_CHECK(condition) \
  ((condition) ? void() : ::rewire::CheckFailed(__FILE_NAME__, __LINE__, #condition))
#ifdef REWIRE_DCHECKS
#define REWIRE_DCHECK(condition) REWIRE_CHECK(condition)
#else
#define REWIRE_DCHECK(condition) (true ? void() : void(condition))
#endif
